// What is accepted, copied on, or shown where the first medium is damaged or an older copy, and its
// mirror is not.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <tensorshelf/repair.hpp>

#include "entropy.hpp"
#include "folder.hpp"
#include "mirror_plays.hpp"
#include "mirrored_play.hpp"

namespace tensorshelf::crash {
namespace {

// A bit of that value where it begins, in a file or on a disk.
void rot_value(Bytes& bytes, std::uint64_t serial) {
  const Bytes value = stamped(kMirroredBytes, serial);
  const auto at = std::search(bytes.begin(), bytes.end(), value.begin(), value.begin() + 64);
  if (at == bytes.end()) throw std::runtime_error("the value is not there");
  *at ^= std::byte{1};
}

void rot(CachedDisk& disk, std::uint64_t serial) {
  rot_value(disk.visible, serial);
  disk.durable = disk.visible;
}

void lose_root(const Mirrored& mirrored, std::uint64_t version) {
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    flip(*mirrored.first, format::root_at(static_cast<unsigned>(version % 2), copy) + 200);
  }
}

void prepare(const Mirrored& mirrored, std::uint64_t serial) {
  Shelf shelf = mirrored.open();
  shelf.find("a")->write(stamped(kMirroredBytes, serial));
  shelf.prepare(serial, "four");
}

std::uint64_t shown(const Shelf& shelf) {
  Bytes bytes(kMirroredBytes);
  shelf.find("a")->read(bytes);
  const std::uint64_t step = shelf.step().value_or(0);
  return bytes == stamped(kMirroredBytes, step) ? step : 0;
}

}  // namespace

// Every chunk is looked at before what was prepared elsewhere is committed, and before a version is
// accepted behind which a newer one may be lost.
std::string rot_of_what_is_accepted_is_read_from_the_mirror() {
  {
    const Mirrored mirrored;
    mirrored.commit(3);
    prepare(mirrored, 4);
    rot(*mirrored.first, 4);
    Shelf shelf = mirrored.open();
    shelf.resolve(Decision::commit);
    if (shown(shelf) != 4) return "what was prepared is not what was committed";
  }
  for (const unsigned keep : {0U, 1U}) {
    const Mirrored mirrored(keep);
    for (std::uint64_t serial = 3; serial < 8; ++serial) mirrored.commit(serial);
    rot(*mirrored.first, 7);
    const unsigned waiting = 8 % (keep + 2);
    for (CachedDisk* disk : {mirrored.first.get(), mirrored.mirror.get()}) {
      const std::uint64_t from = disk == mirrored.first.get() ? 0 : format::kMirrorAt;
      for (unsigned copy = 0; copy < format::kCopies; ++copy) {
        const auto at = disk->visible.begin() +
                        static_cast<std::ptrdiff_t>(from + format::root_at(waiting, copy));
        std::fill_n(at, kPageBytes, std::byte{0xDB});
      }
      disk->durable = disk->visible;
    }
    if (shown(mirrored.open()) != 7) return "an acknowledged version that the mirror has is gone";
  }
  return "";
}

// Nobody may take it for an attempt that was never prepared, and the mirror keeps what it has.
std::string lost_root_of_what_is_prepared_is_told() {
  const Mirrored mirrored;
  mirrored.commit(3);
  prepare(mirrored, 4);
  lose_root(mirrored, 4);
  const Bytes mirror = mirrored.mirror->visible;
  if (shown(mirrored.open(Mode::read)) != 3) return "the version before it cannot be read";
  try {
    mirrored.open();
    return "what was prepared is forgotten";
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  const bool kept = mirrored.mirror->visible == mirror;
  return kept ? "" : "what the mirror had of it was written over by an opening that is refused";
}

// By repair(), which the error of an opening names, and by nobody else.
std::string lost_root_of_what_is_prepared_is_given_up() {
  const Folder folder;
  {
    Shelf shelf = Shelf::open(folder.shelf(), {.mode = Mode::create});
    shelf.create("a", DType::uint8, std::array{kMirroredBytes});
    shelf.find("a")->write(stamped(kMirroredBytes, 1));
    shelf.persist(1);
    shelf.find("a")->write(stamped(kMirroredBytes, 2));
    shelf.prepare(2, "two");
  }
  {
    std::fstream file(folder.shelf(), std::ios::binary | std::ios::in | std::ios::out);
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      file.seekp(static_cast<std::streamoff>(format::root_at(0, copy) + 200));
      file << "rot";
    }
  }
  try {
    Shelf::open(folder.shelf(), {.mode = Mode::update});
    return "what was prepared is forgotten";
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
  }
  if (!repair(folder.shelf()).repaired) return "a repair finds no need where openings are refused";
  Shelf shelf = Shelf::open(folder.shelf(), {.mode = Mode::update});
  if (shown(shelf) != 1) return "the version before it is not there";
  shelf.find("a")->write(stamped(kMirroredBytes, 3));
  shelf.persist(3);
  return shown(shelf) == 3 ? "" : "nobody can go on behind a repair";
}

// The copy shows an attempt that was committed since; others have been opened since.
std::string copy_from_before_a_commit_is_refused() {
  const Mirrored mirrored;
  mirrored.commit(3);
  Bytes before;
  {
    Shelf shelf = mirrored.open();
    shelf.find("a")->write(stamped(kMirroredBytes, 4));
    shelf.prepare(4, "four");
    before = mirrored.first->visible;
    shelf.resolve(Decision::commit);
  }
  for (int again = 0; again < 2; ++again) mirrored.open();
  mirrored.first->become(before);
  if (!mirrored.is_refused(Mode::read)) return "an older copy is shown";
  if (!mirrored.is_refused()) return "an older copy takes back what the mirror has";
  return mirrored.alone(4);
}

// Its end is lost, and the first has lost the root that both had; the opening that mends that dies
// at each step.
std::string short_mirror_with_the_only_root_is_filled() {
  const Mirrored mirrored;
  mirrored.commit(3);
  lose_root(mirrored, 3);
  const Bytes first = mirrored.first->visible;
  Bytes mirror = mirrored.mirror->visible;
  mirror.resize(format::kMirrorAt + format::kHeapAt);
  bool opened = false;
  for (unsigned step = 0; !opened; ++step) {
    mirrored.first->become(first);
    mirrored.mirror->become(mirror);
    opened = mirrored.opens_before_death(step);
    if (shown(mirrored.open()) != 3) return "an acknowledged version is gone";
    if (mirrored.mirror->visible.size() < format::kMirrorAt + mirrored.first->visible.size()) {
      return "the mirror has no room for what is written next";
    }
    if (std::string problem = mirrored.alone(3); !problem.empty()) return problem;
  }
  return "";
}

// Of a tensor that is placed whole what nobody assigned is copied when it is frozen.
std::string commit_copies_forward_from_the_mirror() {
  const Mirrored mirrored;
  constexpr std::int64_t kRows = 2;
  const std::int64_t shape[] = {kRows, static_cast<std::int64_t>(kChunkBytes)};
  const auto open = [&] {
    std::vector<MirrorMedium> mirrors;
    mirrors.push_back({0, std::make_unique<CachedMedium>(mirrored.mirror)});
    return Shelf::open(std::make_unique<CachedMedium>(mirrored.first), {}, std::move(mirrors),
                       {.mode = Mode::update, .placement = Placement::whole});
  };
  {
    Shelf shelf = open();
    shelf.create("two", DType::uint8, shape).write(stamped(kChunkBytes, 9), kChunkBytes);
    shelf.persist(3);
  }
  rot(*mirrored.first, 9);
  Shelf shelf = open();
  shelf.find("two")->write(stamped(kChunkBytes, 8));
  try {
    shelf.persist(4);
  } catch (const Error& error) {
    return error.what();
  }
  Bytes found(kChunkBytes);
  shelf.find("two")->read(found, kChunkBytes);
  return found == stamped(kChunkBytes, 9) ? "" : "what was copied on is another value";
}

// A copy of the shelf went on with its mirror, and the shelf without: to the same number.
std::string mirror_of_another_history_is_not_shown() {
  const Folder folder;
  const std::filesystem::path own = folder.shelf();
  const std::filesystem::path mirror = own.parent_path() / "a.mirror";
  const std::filesystem::path copy = own.parent_path() / "b.shelf";
  const std::filesystem::path copied = own.parent_path() / "b.mirror";
  const auto commit = [](const std::filesystem::path& path, OpenOptions options,
                         std::uint64_t serial) {
    Shelf shelf = Shelf::open(path, options);
    if (serial == 1) shelf.create("a", DType::uint8, std::array{kMirroredBytes});
    shelf.find("a")->write(stamped(kMirroredBytes, serial));
    shelf.persist(serial);
  };
  entropy_salt = 0;
  commit(own, {.mode = Mode::create, .mirrors = {{mirror.native()}}}, 1);
  std::filesystem::copy_file(own, copy);
  std::filesystem::rename(mirror, copied);
  commit(copy, {.mode = Mode::update, .mirrors = {{copied.native()}}}, 2);
  commit(own, {.mode = Mode::update, .without = {1}}, 3);
  std::filesystem::rename(copied, mirror);
  std::filesystem::resize_file(own, std::filesystem::file_size(own) / 2);
  try {
    const Shelf shelf = Shelf::open(own, {.mode = Mode::read, .mirrors = {{mirror.native()}}});
    return fmt::format("step {} is shown", shelf.step().value_or(0));
  } catch (const Error& error) {
    if (error.code() != Errc::truncated && error.code() != Errc::corrupt) throw;
    return "";
  }
}

}  // namespace tensorshelf::crash
