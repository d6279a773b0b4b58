#include "media_plays.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "entropy.hpp"
#include "model.hpp"
#include "tests/asleep.hpp"
#include "tests/cached_disk.hpp"

namespace tensorshelf::crash {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t kBytes = 1000;
constexpr std::array kSecond = {1U};

struct Pair {
  std::shared_ptr<testing::CachedDisk> first = std::make_shared<testing::CachedDisk>();
  std::shared_ptr<testing::CachedDisk> second = std::make_shared<testing::CachedDisk>();

  Pair() {
    testing::CachedMedium medium(first);
    Shelf::format(medium);
  }
  Shelf open() const {
    std::vector<std::unique_ptr<Medium>> also;
    also.push_back(std::make_unique<testing::CachedMedium>(second));
    return Shelf::open(std::make_unique<testing::CachedMedium>(first), std::move(also),
                       {.mode = Mode::update});
  }
};

TensorRef made(Shelf& shelf, std::string_view name, std::int64_t size) {
  return shelf.create(name, DType::uint8, std::array{size}, kSecond);
}

Bytes stamped(std::uint64_t serial, std::int64_t size = kBytes) {
  Bytes bytes(static_cast<std::size_t>(size));
  stamp(bytes, "w", serial, 0);
  return bytes;
}

}  // namespace

// By name, and not as damage of whatever tensor is read first.
std::string older_copy_of_a_medium_is_refused() {
  const Pair pair;
  {
    Shelf shelf = pair.open();
    made(shelf, "w", kBytes).write(stamped(1));
    shelf.persist();
  }
  const Bytes older = pair.second->visible;
  {
    Shelf shelf = pair.open();
    shelf.find("w")->write(stamped(2));
    shelf.persist();
  }
  const Bytes newer = std::exchange(pair.second->visible, older);
  try {
    const Shelf shelf = pair.open();
    return "an older copy of a medium passes for it";
  } catch (const Error& error) {
    if (error.code() != Errc::medium_missing) throw;
  }
  pair.second->visible = newer;
  Bytes found(kBytes);
  pair.open().find("w")->read(found);
  return found == stamped(2) ? "" : "another value than was committed";
}

// Its value was assigned when the removal came; and a medium that was removed may be thrown away.
std::string made_beside_a_removal_lies_elsewhere() {
  const Pair pair;
  {
    Shelf shelf = pair.open();
    Assignment late = shelf.create_with("late", DType::uint8, std::array{kBytes}, kSecond);
    late.write(stamped(1), 0);
    testing::Waiter removal([&] { shelf.remove_medium(1); });
    if (!removal.waits()) return "a removal waits for no assignment";
    late.done();
    removal.join();
    shelf.persist();
  }
  try {
    const Shelf alone =
        Shelf::open(std::make_unique<testing::CachedMedium>(pair.first), {.mode = Mode::update});
    Bytes found(kBytes);
    alone.find("late")->read(found);
    return found == stamped(1) ? "" : "another value than was committed";
  } catch (const Error& error) {
    if (error.code() != Errc::medium_missing) throw;
    return "a tensor lies on a medium that was removed before it was added";
  }
}

// The version says how far the medium is the shelf's, each time it grew.
std::string what_a_medium_grew_by_stays_taken() {
  const Pair pair;
  constexpr std::int64_t large = 4 * 1024 * 1024;
  {
    Shelf shelf = pair.open();
    made(shelf, "v", kBytes).write(stamped(1));
    shelf.persist();
    made(shelf, "w", large).write(stamped(2, large));
    shelf.persist();
  }
  try {
    Shelf shelf = pair.open();
    const auto there = shelf.find("w");
    if (!there) return "the version that has it is lost";
    made(shelf, "x", large).write(stamped(3, large));
    shelf.persist();
    Bytes found(large);
    there->read(found);
    return found == stamped(2, large) ? "" : "another tensor lies over it";
  } catch (const Error& error) {
    return std::string("it does not open: ") + error.what();
  }
}

// Of a further medium nothing but its stamp tells whether a mirror has what it got, and an attempt
// that was abandoned had the number of the version that came then.
std::string mirror_of_another_attempt_is_filled(bool in_one_opening) {
  const Pair pair;
  const auto mirror = std::make_shared<testing::CachedDisk>();
  const auto open = [&](Mode mode, bool whole = true) {
    std::vector<std::unique_ptr<Medium>> also;
    if (whole) also.push_back(std::make_unique<testing::CachedMedium>(pair.second));
    std::vector<MirrorMedium> mirrors;
    mirrors.push_back({1, std::make_unique<testing::CachedMedium>(mirror)});
    return Shelf::open(std::make_unique<testing::CachedMedium>(pair.first), std::move(also),
                       std::move(mirrors), {.mode = mode});
  };
  const auto commit_in_its_place = [](Shelf& shelf) {
    shelf.resolve(Decision::abandon);
    shelf.find("w")->write(stamped(3));
    shelf.persist();
  };
  pair.open();
  entropy_salt = 1;  // the mirror's id is another one
  Bytes older;
  {
    Shelf shelf = open(Mode::update);
    entropy_salt = 0;
    TensorRef tensor = made(shelf, "w", kBytes);
    tensor.write(stamped(1));
    shelf.persist();
    tensor.write(stamped(2));
    shelf.prepare();
    older = mirror->visible;
    if (in_one_opening) commit_in_its_place(shelf);
  }
  if (!in_one_opening) {
    Shelf shelf = open(Mode::update);
    commit_in_its_place(shelf);
  }
  mirror->become(older);
  open(Mode::update);
  Bytes found(kBytes);
  open(Mode::read, false).find("w")->read(found);
  return found == stamped(3) ? "" : "a mirror has what was abandoned";
}

}  // namespace tensorshelf::crash
