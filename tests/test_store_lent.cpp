// Assignments of bytes that are lent (Assignment::write_lent): who may wait for them, until when,
// and which tensors are written from where such bytes lie.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 3 * kChunkBytes;

TensorRef make(Shelf& shelf, const char* name, std::span<const unsigned> media = {}) {
  const std::array shape = {static_cast<std::int64_t>(kSize)};
  return shelf.create(name, DType::uint8, shape, media);
}

}  // namespace

TEST_CASE(
    "what is lent is awaited by whoever has the assignment, also when it or the shelf ended") {
  const Folder folder;
  const PageMemory memory(kSize);
  const Bytes first = pattern(kSize, 1);
  std::ranges::copy(first, memory.bytes().begin());
  std::optional<Shelf> shelf(Shelf::open(folder.file(), {.mode = Mode::create, .tier = "block"}));
  TensorRef tensor = make(*shelf, "x");
  {
    Assignment undone = tensor.assign();
    undone.write_lent(memory.bytes());
    undone.await_lent(memory.bytes());
    CHECK(undone.takes_lent());
  }
  Assignment assignment = tensor.assign();
  assignment.write_lent(memory.bytes());
  assignment.done();
  CHECK(code_of([&] { static_cast<void>(assignment.takes_lent()); }) == Errc::unsupported);
  CHECK(code_of([&] { assignment.write_lent(memory.bytes()); }) == Errc::unsupported);
  assignment.await_lent(memory.bytes());
  std::ranges::fill(memory.bytes(), std::byte{9});
  shelf->persist(1);
  shelf->close();
  assignment.await_lent(memory.bytes());
  shelf.reset();
  assignment.await_lent(memory.bytes());
  Shelf again = Shelf::open(folder.file(), {.mode = Mode::update, .tier = "block"});
  Bytes found(kSize);
  again.find("x")->read(found);
  CHECK(same(found, first));
}

TEST_CASE("a tensor takes what is lent where some of it lies on a drive") {
  if (!std::filesystem::is_directory("/dev/shm")) return;
  const Folder mapped("/dev/shm");
  const Folder drive;
  if (Shelf::open(drive.file("probe")).info().promises.mapped) return;
  const bool drive_first = GENERATE(false, true);
  const auto& [first, second] = drive_first ? std::tie(drive, mapped) : std::tie(mapped, drive);
  OpenOptions options;
  options.mode = Mode::create;
  options.also = {second.file("part").string()};
  Shelf shelf = Shelf::open(first.file(), options);
  const auto takes = [&](const char* name, std::span<const unsigned> media) {
    TensorRef tensor = make(shelf, name, media);
    return tensor.assign().takes_lent();
  };
  CHECK(takes("first", std::array{0U}) == drive_first);
  CHECK(takes("second", std::array{1U}) == !drive_first);
  CHECK(takes("both", std::array{0U, 1U}));
}
