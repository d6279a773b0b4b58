// A mapped shelf whose bytes fail under it: its file is cut short by someone else, or a line of the
// memory is poisoned. Each call of the medium then throws; nothing ends the process.
#include <tensorshelf/shelf.hpp>

#include <sys/mman.h>

#include <barrier>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include <tensorshelf/shelf.hpp>

#include "base/fault_guard.hpp"
#include "base/side_by_side.hpp"
#include "bytes.hpp"
#include "media/media.hpp"
#include "pmem_fixture.hpp"
#include "poison.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kSize = 4 * kMebibyte;
constexpr std::uint64_t kCutTo = kMebibyte;

// What a call gave away of the failure: its code, and whether it named the file and the place.
std::optional<Errc> failure_at(std::uint64_t at, const fs::path& path,
                               const std::function<void()>& call) {
  const auto error = error_of(call);
  if (!error) return std::nullopt;
  INFO(error->what());
  CHECK(contains(error->what(), path.native()));
  CHECK(contains(error->what(), "offset " + std::to_string(at)));
  CHECK_FALSE(error->remedy().empty());
  return error->code();
}

}  // namespace

TEST_CASE("a file that someone cuts short: an error at each call", "[pmem]") {
  for (const std::string& place : mapped_places()) {
    INFO(place);
    const scratch::Directory dir(place);
    const fs::path path = dir / "s";
    const auto writer = make_pmem_medium(open_file(path), {});
    REQUIRE(writer->reserve(kSize) == kSize);
    const auto data = pattern(kPageBytes, 1);
    writer->write(0, data, 0);
    writer->write(2 * kMebibyte, data, 0);
    const auto reader = make_pmem_medium(open_file(path, false), {});
    std::vector<std::byte> bytes(kPageBytes);
    reader->read(2 * kMebibyte, bytes);
    CHECK(same(bytes, data));

    fs::resize_file(path, kCutTo);
    const std::uint64_t gone = 2 * kMebibyte;
    for (Medium* medium : {writer.get(), reader.get()}) {
      CHECK(failure_at(gone, path, [&] { medium->read(gone, bytes); }) == Errc::truncated);
      medium->read(0, bytes);  // the rest is there
      CHECK(same(bytes, data));
      const auto view = medium->view({gone, kPageBytes});  // no touch yet
      CHECK_FALSE(touch_mapped(view, [&] { std::memcpy(bytes.data(), view.data(), 8); }));
    }
    // One that begins within the file and ends beyond.
    std::vector<std::byte> across(2 * kPageBytes);
    const std::uint64_t last = kCutTo - kPageBytes;
    CHECK(failure_at(last, path, [&] { reader->read(last, across); }) == Errc::truncated);

    CHECK(failure_at(gone, path, [&] { writer->write(gone, data, 0); }) == Errc::io);
    CHECK(failure_at(gone, path, [&] { writer->store_word(gone, 1); }) == Errc::io);
    // A chunk copied forward inside the shelf: its source is damaged, and the medium has not
    // failed.
    const auto source = writer->view({gone, kPageBytes});
    CHECK(failure_at(gone, path, [&] { writer->write(0, source, 0); }) == Errc::corrupt);
    writer->write(0, data, 0);
    writer->store_word(8, 5);
    writer->barrier();
    CHECK(fs::file_size(path) == kCutTo);
  }
}

TEST_CASE("a chunk copied forward by way of the file: its source may be gone", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  const auto medium = made_by_file(dir / "s");
  const auto data = pattern(kPageBytes, 1);
  constexpr std::uint64_t kGone = 2 * kMebibyte;
  medium->write(kGone, data, 0);
  const auto source = medium->view({kGone, kPageBytes});
  medium->write(0, source, 0);
  CHECK(same(medium->view({0, kPageBytes}), data));
  fs::resize_file(dir / "s", kCutTo);
  CHECK(failure_at(kGone, dir / "s", [&] { medium->write(0, source, 0); }) == Errc::corrupt);
  CHECK(same(medium->view({0, kPageBytes}), data));
}

TEST_CASE("by way of the file too the checksum is of what was written", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  CHECK(hashes_what_it_writes(*made_by_file(dir / "s")));
}

TEST_CASE("a write into what was cut off fails for good", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  GuardedMedium medium(make_pmem_medium(open_file(dir / "s"), {}));
  medium.reserve(kSize);
  fs::resize_file(dir / "s", kCutTo);
  const auto data = pattern(kPageBytes, 1);
  std::vector<std::byte> bytes(kPageBytes);
  CHECK(code_of([&] { medium.read(kCutTo, bytes); }) == Errc::truncated);
  CHECK_FALSE(medium.failed());
  medium.write(0, data, 0);
  CHECK(code_of([&] { medium.write(kCutTo, data, 0); }) == Errc::io);
  CHECK(medium.failed());  // I8
  CHECK(code_of([&] { medium.write(0, data, 0); }) == Errc::failed);
  CHECK(code_of([&] { medium.barrier(); }) == Errc::failed);
  medium.read(0, bytes);
  CHECK(same(bytes, data));
}

// All parts by a helper, none by the caller.
void share_with_helper(unsigned threads, std::size_t parts, PartJob job) {
  REQUIRE(threads == 2);
  const auto caller = std::this_thread::get_id();
  std::barrier both(2);
  auto all = [&](std::size_t) {
    both.arrive_and_wait();  // one each
    if (std::this_thread::get_id() == caller) return;
    for (std::size_t part = 0; part < parts; ++part) job(part);
  };
  side_by_side(2, 2, PartJob(all));
}

TEST_CASE("a thread that copies beside the caller meets what was cut off", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  const fs::path path = dir / "s";
  Shelf shelf = Shelf::open(path, {.mode = Mode::replace, .threads = 2});
  TensorRef w = shelf.create("w", DType::uint8, std::vector<std::int64_t>{kSize});
  const auto data = pattern(kSize, 1);
  w.write(data);
  shelf.persist(1);
  fs::resize_file(path, kCutTo);
  sharing = {.bytes_each = 1, .share = share_with_helper};
  const auto error = error_of([&] { w.write(data); });
  sharing = {};
  REQUIRE(error);
  CHECK(error->code() == Errc::io);
  CHECK(contains(error->what(), path.native() + " was cut to"));
  CHECK(code_of([&] { shelf.persist(2); }) == Errc::failed);
}

TEST_CASE("a poisoned line: EIO for what holds it, and nothing else", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  const fs::path path = dir / "s";
  const auto medium = make_pmem_medium(open_file(path), {});
  medium->reserve(kSize);
  const auto data = pattern(4 * kPageBytes, 1);
  medium->write(0, data, 0);
  std::vector<std::byte> bytes(kPageBytes);

  SECTION("read") {
    const Poison poison(medium->view({kPageBytes, kPageBytes}));
    if (!poison.laid()) {
      WARN("skipped: poison (userfaultfd of Linux 6.6 and permission to use it)");
      return;
    }
    for (int n = 0; n < 2; ++n) {
      const auto error =
          error_of([&] { medium->read(kPageBytes + 100, std::span(bytes).first(8)); });
      REQUIRE(error);
      CHECK(error->code() == Errc::io);
      CHECK(error->os_error() == EIO);
      CHECK(contains(error->what(), path.native()));
      CHECK(contains(error->what(), "offset 4196"));
      CHECK(contains(error->what(), "unreadable"));
    }
    std::vector<std::byte> joined(3 * kPageBytes);
    CHECK(code_of([&] { medium->read(0, joined); }) == Errc::io);
    for (const std::uint64_t page : {0, 2, 3}) {
      medium->read(page * kPageBytes, bytes);
      CHECK(same(bytes, std::span(data).subspan(page * kPageBytes, kPageBytes)));
    }
  }
  SECTION("write and store_word") {
    const Poison poison(work_mapping(path).subspan(kPageBytes, kPageBytes));
    if (!poison.laid()) return;
    CHECK(failure_at(kPageBytes, path, [&] {
            medium->write(kPageBytes, std::span(data).first(kPageBytes), 0);
          }) == Errc::io);
    CHECK(failure_at(kPageBytes + 8, path, [&] { medium->store_word(kPageBytes + 8, 1); }) ==
          Errc::io);
    medium->write(0, std::span(data).first(kPageBytes), 0);
    medium->store_word(2 * kPageBytes, 1);
    medium->barrier();
  }
}

TEST_CASE("a shelf whose file is cut short after its chunks were verified", "[pmem]") {
  if (!pmem_supported()) {
    WARN("skipped: cut short after verifying (a build without libpmem2)");
    return;
  }
  const scratch::Directory dir(kTmpfs);
  const fs::path path = dir / "s.shelf";
  Shelf shelf = Shelf::open(path, {.mode = Mode::append, .tier = "pmem"});
  const auto data = pattern(kSize, 1);
  TensorRef w =
      shelf.create("w", DType::uint8, std::vector<std::int64_t>{static_cast<std::int64_t>(kSize)});
  w.write(data);
  shelf.persist();
  std::vector<std::byte> whole(kSize);
  std::vector<std::byte> part(100);
  w.read(whole);
  REQUIRE(same(whole, data));
  fs::resize_file(path, kCutTo);
  for (int attempt = 0; attempt < 2; ++attempt) {
    CHECK(error_of([&] { w.read(whole); }));
    CHECK(error_of([&] { w.read(part, kSize - 200); }));
    CHECK(error_of([&] { w.read_committed(part, kSize - kMebibyte); }));
    CHECK(error_of([&] { w.read(std::span(whole).first(kMebibyte), kSize - kMebibyte); }));
  }
}

TEST_CASE("a poisoned line in a chunk that is copied forward: damage of that chunk", "[pmem]") {
  if (!pmem_supported()) return;
  const scratch::Directory dir(kTmpfs);
  OpenOptions options;
  options.mode = Mode::replace;
  Shelf shelf = Shelf::open(dir / "s", options);
  const auto make = [&](const char* name, std::int64_t size) {
    return shelf.create(name, DType::uint8, std::vector<std::int64_t>{size});
  };
  TensorRef damaged = make("damaged", 3 * kMebibyte);
  TensorRef other = make("other", kPageBytes);
  const auto data = pattern(3 * kMebibyte, 1);
  const auto next = pattern(3 * kMebibyte, 2);
  const auto first_of = [](const std::vector<std::byte>& bytes, std::size_t size) {
    return std::span(bytes).first(size);
  };
  damaged.write(data);
  other.write(first_of(data, kPageBytes));
  shelf.persist(1);

  std::span<const std::byte> line;  // of the second chunk
  {
    const Lease lease = damaged.lease_committed();
    line = lease.bytes().subspan(kMebibyte, kPageBytes);
  }
  const Poison poison(line);
  if (!poison.laid()) {
    WARN("skipped: poison (userfaultfd of Linux 6.6 and permission to use it)");
    return;
  }
  damaged.write(first_of(next, kMebibyte), 0);  // the other chunks are for persist() to copy
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto error = error_of([&] { shelf.persist(2); });
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->what(), "'damaged'"));
    CHECK(contains(error->what(), "chunk 1"));
  }
  damaged.write(next);  // whole: nothing of the damaged value is needed
  other.write(first_of(next, kPageBytes));
  CHECK(shelf.persist(3).version == 2);
  std::vector<std::byte> back(3 * kMebibyte);
  damaged.read(back);
  CHECK(same(back, next));
  other.read(std::span(back).first(kPageBytes));
  CHECK(same(std::span(back).first(kPageBytes), first_of(next, kPageBytes)));
}
