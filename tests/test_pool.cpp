// The pool medium: what is recognised, made and refused, locks in both directions, segments and
// replicas. On tmpfs; pmempool, where it is there, says what it thinks of our pools.
#include <fmt/format.h>
#include <libpmemobj.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "base/copy_hash.hpp"
#include "bytes.hpp"
#include "catch.hpp"
#include "media/media.hpp"
#include "media/pool/medium.hpp"
#include "scratch.hpp"
#include "tensorshelf/error.hpp"
#include "tensorshelf/shelf.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTmpfsPlace = "/dev/shm";
constexpr std::uint64_t kSmallPool = 32 << 20;

OpenOptions pool_options(Mode mode = Mode::append) {
  OpenOptions options;
  options.mode = mode;
  options.tier = "pool";
  options.max_size_bytes = kSmallPool;
  return options;
}

OpenOptions by_itself(Mode mode = Mode::append) {
  OpenOptions options;
  options.mode = mode;
  return options;
}

// Two replicas: a.0 and a.1, and b.0.
fs::path put_set(const scratch::Directory& dir) {
  const std::string at = dir.path().native();
  scratch::put(dir / "run.set",
               fmt::format("PMEMPOOLSET\n# two devices\n16M {0}/a.0\n16M {0}/a.1\n\nREPLICA\n"
                           "32M {0}/b.0\n",
                           at));
  return dir / "run.set";
}

void commit(Shelf& shelf, int value) {
  const std::array<int, 4> values{value, value, value, value};
  auto tensor = shelf.find("x");
  if (!tensor) tensor = shelf.create("x", DType::int32, {{4}});
  tensor->write(std::as_bytes(std::span(values)));
  shelf.persist();
}

int committed(const Shelf& shelf) {
  std::array<int, 4> values{};
  shelf.find("x")->read(std::as_writable_bytes(std::span(values)));
  CHECK(values[0] == values[3]);
  return values[0];
}

bool has_pmempool() { return std::system("command -v pmempool >/dev/null") == 0; }

int pmempool(const std::string& verb, const fs::path& path) {
  return std::system(
      fmt::format("pmempool {} '{}' >/dev/null 2>/dev/null", verb, path.native()).c_str());
}

void overwrite(const fs::path& path, std::uint64_t at, std::string_view text) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file << text;
}

std::unique_ptr<Medium> tiny_segments(const fs::path& path, bool set, bool make) {
  constexpr std::uint64_t kObject = 600'000;
  if (set || !make) {
    auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
    return make_pool_medium_of(file, by_itself(make ? Mode::create : Mode::update), {}, kObject);
  }
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  auto medium = make_pool_medium_of(file, pool_options(), {}, kObject);
  file->publish(false);
  return medium;
}

}  // namespace

TEST_CASE("a build without libpmemobj would say so", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  scratch::put(dir / "p", std::string("PMEMOBJ\0", 8) + std::string(5000, 'x'));
  const auto error = error_of([&] { Shelf::open(dir / "p", by_itself(Mode::update)); });
  REQUIRE(error);
  CHECK(error->code() == (pool_supported() ? Errc::corrupt : Errc::unsupported));
}

TEST_CASE("tier pool makes a pool, which is recognised when it is opened", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = dir / "run.shelf";
  {
    Shelf shelf = Shelf::open(path, pool_options());
    CHECK(shelf.info().promises.medium == "pool");
    commit(shelf, 7);
  }
  CHECK(fs::file_size(path) == kSmallPool);
  for (const Mode mode : {Mode::update, Mode::append, Mode::read}) {
    const Shelf shelf = Shelf::open(path, by_itself(mode));
    CHECK(shelf.info().promises.medium == "pool");
    CHECK(committed(shelf) == 7);
  }
  if (has_pmempool()) {
    CHECK(pmempool("check", path) == 0);
    CHECK(pmempool("info", path) == 0);
  }
}

TEST_CASE("reading writes nothing to a pool", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = dir / "run.shelf";
  {
    Shelf shelf = Shelf::open(path, pool_options());
    commit(shelf, 7);
  }
  const std::string before = scratch::contents(path);
  CHECK(committed(Shelf::open(path, by_itself(Mode::read))) == 7);
  const bool same = scratch::contents(path) == before;
  CHECK(same);
}

TEST_CASE("a pool needs its size, and keeps it", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  OpenOptions unsized = pool_options();
  unsized.max_size_bytes = 0;
  CHECK(code_of([&] { Shelf::open(dir / "p", unsized); }) == Errc::bad_argument);
  unsized.max_size_bytes = 1 << 20;
  CHECK(code_of([&] { Shelf::open(dir / "p", unsized); }) == Errc::bad_argument);
  CHECK(scratch::entries(dir.path()) == 0);

  Shelf shelf = Shelf::open(dir / "p", pool_options());
  commit(shelf, 1);
  const auto error = error_of([&] { shelf.create("large", DType::uint8, {{64 << 20}}); });
  REQUIRE(error);
  CHECK(error->code() == Errc::full);
  CHECK(contains(error->what(), "a pool does not grow"));
  commit(shelf, 2);
  CHECK(committed(shelf) == 2);
}

TEST_CASE("a pool that has no room is full, and leaves nothing", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  OpenOptions large = pool_options();
  large.max_size_bytes = std::uint64_t{1} << 45;
  CHECK(code_of([&] { Shelf::open(dir / "p", large); }) == Errc::full);
  CHECK(scratch::entries(dir.path()) == 0);
  scratch::put(dir / "run.set", fmt::format("PMEMPOOLSET\n32T {}/a\n", dir.path().native()));
  const auto error = error_of([&] { Shelf::open(dir / "run.set", by_itself()); });
  REQUIRE(error);
  CHECK(error->code() == Errc::full);
  CHECK(scratch::entries(dir.path()) == 1);  // the set alone
}

TEST_CASE("a pool set is made by whoever may make a shelf", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = put_set(dir);
  CHECK(code_of([&] { Shelf::open(path, by_itself(Mode::read)); }) == Errc::not_found);
  CHECK(code_of([&] { Shelf::open(path, by_itself(Mode::update)); }) == Errc::not_found);
  {
    Shelf shelf = Shelf::open(path, by_itself());
    CHECK(contains(shelf.info().promises.detail, "2 replicas"));
    commit(shelf, 3);
  }
  CHECK(contains(scratch::contents(path), "PMEMPOOLSET"));
  CHECK(code_of([&] { Shelf::open(path, by_itself(Mode::create)); }) == Errc::exists);
  CHECK(committed(Shelf::open(path, by_itself(Mode::read))) == 3);
  CHECK(committed(Shelf::open(path, by_itself())) == 3);
  if (has_pmempool()) CHECK(pmempool("check", path) == 0);
  CHECK_FALSE(Shelf::open(path, by_itself(Mode::replace)).find("x"));
}

TEST_CASE("another application's pool is no shelf, and stays as it is", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = dir / "theirs";
  PMEMobjpool* const theirs = ::pmemobj_create(path.c_str(), "theirs", PMEMOBJ_MIN_POOL, 0644);
  REQUIRE(theirs != nullptr);
  ::pmemobj_close(theirs);
  const std::string before = scratch::contents(path);
  for (const Mode mode : {Mode::read, Mode::update, Mode::append}) {
    const auto error = error_of([&] { Shelf::open(path, by_itself(mode)); });
    REQUIRE(error);
    CHECK(error->code() == Errc::not_a_shelf);
    CHECK(contains(error->what(), "another application"));
  }
  for (const char* tier : {"block", "pmem"}) {
    OpenOptions options = by_itself(Mode::update);
    options.tier = tier;
    CHECK(code_of([&] { Shelf::open(path, options); }) == Errc::unsupported);
  }
  // But for what the library itself keeps in its descriptor, of each opening.
  const std::string after = scratch::contents(path);
  const bool untouched = after.size() == before.size() &&
                         after.substr(0, 6144) == before.substr(0, 6144) &&
                         after.substr(8192) == before.substr(8192);
  CHECK(untouched);
}

TEST_CASE("a pool set may have blanks and comments behind its parts", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const std::string behind = GENERATE(as<std::string>{}, " ", " # the first", "# close", "\t");
  CAPTURE(behind);
  const auto path = dir / "run.set";
  scratch::put(path, fmt::format("PMEMPOOLSET\n16M {0}/a{1}\nREPLICA\n16M {0}/b{1}\n",
                                 dir.path().native(), behind));
  for (std::uint64_t step = 1; step < 4; ++step) {
    Shelf shelf = Shelf::open(path, {.mode = Mode::append});
    CHECK(shelf.info().created == (step == 1));
    CHECK(shelf.version() == step - 1);
    shelf.persist(step);
  }
}

TEST_CASE("what is no pool is not opened as one", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  { Shelf::open(dir / "plain", by_itself()); }
  CHECK(code_of([&] { Shelf::open(dir / "plain", pool_options()); }) == Errc::not_a_shelf);
  for (const char* text :
       {"PMEMPOOLSET\n", "PMEMPOOLSET\n16M relative\n", "PMEMPOOLSET\n16Q /dev/shm/none\n"}) {
    INFO(text);
    scratch::put(dir / "bad.set", text);
    const auto error = error_of([&] { Shelf::open(dir / "bad.set", by_itself(Mode::create)); });
    REQUIRE(error);
    CHECK(error->code() == Errc::not_a_shelf);
    CHECK(contains(error->remedy(), "poolset(5)"));
  }
  scratch::put(dir / "bad.set", fmt::format("PMEMPOOLSET\n1G {}\n", dir.path().native()));
  CHECK(code_of([&] { Shelf::open(dir / "bad.set", by_itself()); }) == Errc::unsupported);
  scratch::put(dir / "bad.set", "POOLSET\n");
  const auto error = error_of([&] { Shelf::open(dir / "bad.set", pool_options()); });
  REQUIRE(error);
  CHECK(error->code() == Errc::not_a_shelf);
  CHECK(contains(error->what(), "PMEMPOOLSET"));
}

TEST_CASE("a lost or damaged replica is named, with what mends it", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = put_set(dir);
  {
    Shelf shelf = Shelf::open(path, by_itself());
    commit(shelf, 5);
  }
  struct Case {
    const char* part;
    unsigned replica;
    std::function<void(const fs::path&)> harm;
  };
  const std::vector<Case> cases = {
      {"b.0", 1, [](const fs::path& part) { fs::remove(part); }},
      {"a.1", 0, [](const fs::path& part) { fs::remove(part); }},
      {"b.0", 1, [](const fs::path& part) { overwrite(part, 0, std::string(4096, '\0')); }},
  };
  for (const Case& each : cases) {
    INFO(each.part);
    each.harm(dir / each.part);
    for (const Mode mode : {Mode::read, Mode::append}) {
      const auto error = error_of([&] { Shelf::open(path, by_itself(mode)); });
      REQUIRE(error);
      CHECK(error->code() == Errc::corrupt);
      CHECK(contains(error->what(), fmt::format("replica {}", each.replica)));
      CHECK(contains(error->what(), each.part));
      CHECK(contains(error->remedy(), fmt::format("pmempool sync {}", path.native())));
    }
    if (!has_pmempool()) return;
    REQUIRE(pmempool("sync", path) == 0);
    CHECK(committed(Shelf::open(path, by_itself())) == 5);
  }
  overwrite(dir / "b.0", 100, "damage");  // within the header: the library says what it saw
  const auto error = error_of([&] { Shelf::open(path, by_itself()); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(contains(error->remedy(), "pmempool sync"));
}

TEST_CASE("one lock: ours keeps the library out, and the library keeps us out", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  for (const bool set : {false, true}) {
    INFO("set " << set);
    const fs::path path = set ? put_set(dir) : dir / "p";
    {
      Shelf shelf = Shelf::open(path, set ? by_itself() : pool_options());
      commit(shelf, 1);
      CHECK(::pmemobj_open(path.c_str(), "tensorshelf") == nullptr);
      if (has_pmempool()) CHECK(pmempool("check", path) != 0);
      for (const Mode mode : {Mode::read, Mode::update, Mode::append}) {
        const auto error = error_of([&] { Shelf::open(path, by_itself(mode)); });
        REQUIRE(error);
        CHECK(error->code() == Errc::busy);
      }
      commit(shelf, 2);
    }
    PMEMobjpool* const theirs = ::pmemobj_open(path.c_str(), "tensorshelf");
    REQUIRE(theirs != nullptr);
    for (const Mode mode : {Mode::read, Mode::update}) {
      CHECK(code_of([&] { Shelf::open(path, by_itself(mode)); }) == Errc::busy);
    }
    ::pmemobj_close(theirs);
    CHECK(committed(Shelf::open(path, by_itself())) == 2);
  }
}

TEST_CASE("bytes lie across segments as in one", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  for (const bool set : {false, true}) {
    const fs::path path = set ? put_set(dir) : dir / "p";
    auto medium = tiny_segments(path, set, true);
    const std::uint64_t size = medium->size();
    REQUIRE(size > 16 << 20);
    std::vector<std::byte> expected(size);
    const unsigned seed = std::random_device()();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for (int n = 0; n < 200; ++n) {
      const std::uint64_t at = random() % (size / kPageBytes - 256) * kPageBytes;
      const auto bytes = pattern(1 + random() % kChunkBytes, random());
      const Ticket ticket = medium->write(at, bytes, 9);
      REQUIRE(ticket.checksum == hash_bytes(bytes, 9));
      std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
    }
    medium->barrier();
    unsigned shown = 0;
    for (std::uint64_t at = 0; at + 8 * kPageBytes <= size; at += 8 * kPageBytes) {
      const auto view = medium->view({at, 8 * kPageBytes});
      shown += !view.empty();
      const bool alike = view.empty() || same(view, std::span(expected).subspan(at, view.size()));
      REQUIRE(alike);
    }
    CHECK(shown > size / (16 * kPageBytes));
    CHECK(shown < size / (8 * kPageBytes));  // some lie across
    for (int n = 0; n < 2; ++n) {
      std::vector<std::byte> found(size);
      medium->read(0, found);
      const bool whole = found == expected;
      REQUIRE(whole);
      medium.reset();
      medium = tiny_segments(path, set, false);
      REQUIRE(medium->size() == size);
    }
  }
}

TEST_CASE("bytes of a pool that are gone are damage to copy, and a failure to write", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  constexpr std::uint64_t kPiece = 8 * kPageBytes;
  for (const bool set : {false, true}) {
    INFO("a set " << set);
    const fs::path path = set ? put_set(dir) : dir / "p";
    auto medium = tiny_segments(path, set, true);
    std::uint64_t at = 0;  // of what lies last in the pool, whose objects lie in any order
    for (std::uint64_t i = 0; i + kPiece <= medium->size(); i += kPiece) {
      if (medium->view({i, kPiece}).data() > medium->view({at, kPiece}).data()) at = i;
    }
    const auto bytes = pattern(kPiece, 1);
    medium->write(at, bytes, 0);
    const auto shown = medium->view({at, kPiece});
    fs::resize_file(set ? dir / "a.1" : path, set ? 8 << 20 : 16 << 20);

    CHECK(code_of([&] { medium->write(0, shown, 0); }) == Errc::corrupt);
    CHECK(medium->write(0, bytes, 9).checksum == hash_bytes(bytes, 9));
    std::vector<std::byte> found(kPiece);
    CHECK(code_of([&] { medium->read(at, found); }) == Errc::io);
    CHECK(code_of([&] { medium->write(at, bytes, 0); }) == Errc::io);
    CHECK(code_of([&] { medium->store_word(at, 1); }) == Errc::io);
  }
}

TEST_CASE("a pool that failed makes its replicas alike when it is opened again", "[pool]") {
  const bool fails = GENERATE(true, false);
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = put_set(dir);
  const auto bytes = pattern(4 * kPageBytes, 1);
  auto medium = tiny_segments(path, true, true);
  medium->write(0, bytes, 0);
  if (fails) {
    fs::resize_file(dir / "b.0", 16 << 20);
    CHECK(code_of([&] {
            for (std::uint64_t at = 0; at < medium->size(); at += kPageBytes) {
              medium->write(at, std::span(bytes).first(kPageBytes), 0);
            }
          }) == Errc::io);
  }
  medium.reset();
  fs::resize_file(dir / "b.0", 32 << 20);
  const std::string whole(reinterpret_cast<const char*>(bytes.data()), kPageBytes);
  const auto place = scratch::contents(dir / "b.0").find(whole);
  REQUIRE(place != std::string::npos);
  overwrite(dir / "b.0", place + 5, "other");
  medium = tiny_segments(path, true, false);
  const bool alike = scratch::contents(dir / "b.0").substr(place, whole.size()) == whole;
  CHECK(alike == fails);
}

TEST_CASE("a pool whose heap leads nowhere is damage, and no opening without end", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = put_set(dir);
  tiny_segments(path, true, true).reset();
  fs::resize_file(dir / "a.1", 8 << 20);
  fs::resize_file(dir / "a.1", 16 << 20);
  const int status = scratch::in_child([&] {
    ::alarm(60);
    const auto error = error_of([&] { tiny_segments(path, true, false); });
    return error && error->code() == Errc::corrupt;
  });
  CHECK(status == 0);
}

// heap_layout.h of libpmemobj: a header of 1 KiB, a zone's of 64 bytes, then one of 8 for each
// chunk.
TEST_CASE("a pool of which a chunk has no size is damage, and no opening without end", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  tiny_segments(dir / "p", false, true).reset();
  const std::uint64_t heap = scratch::contents(dir / "p").find("MEMORY_HEAP_HDR");
  REQUIRE(heap != std::string::npos);
  overwrite(dir / "p", heap + 1024 + 64 + 4, std::string_view("\0\0\0\0", 4));
  const int status = scratch::in_child([&] {
    ::alarm(120);
    const auto error = error_of([&] { tiny_segments(dir / "p", false, false); });
    return error && error->code() == Errc::corrupt;
  });
  CHECK(status == 0);
}

TEST_CASE("a pool that is smaller than one can be was cut short, and is no question of size",
          "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const bool set = GENERATE(false, true);
  CAPTURE(set);
  const fs::path path = set ? put_set(dir) : dir / "p";
  tiny_segments(path, set, true).reset();
  fs::resize_file(set ? dir / "a.1" : path, 1 << 20);
  for (const Mode mode : {Mode::read, Mode::update, Mode::append}) {
    const auto error = error_of([&] { Shelf::open(path, by_itself(mode)); });
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->what(), "smaller than"));
    CHECK_FALSE(contains(error->remedy(), "make it"));
  }
}

TEST_CASE("a table that does not agree with its pool is damage", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const fs::path path = dir / "p";
  tiny_segments(path, false, true).reset();
  const std::uint64_t table = scratch::contents(path).find("TSPOOL01");
  REQUIRE(table != std::string::npos);
  const std::string whole = scratch::contents(path);
  struct Case {
    std::uint64_t at;
    Errc code;
  };
  for (const Case& each :
       {Case{0, Errc::not_a_shelf}, Case{8, Errc::not_a_shelf}, Case{24, Errc::corrupt},
        Case{32, Errc::corrupt}, Case{40, Errc::corrupt}, Case{48, Errc::corrupt},
        Case{56, Errc::corrupt}}) {
    INFO("at " << each.at);
    overwrite(path, table + each.at, "\x11\x22\x33\x44\x55\x66\x77\x08");
    CHECK(code_of([&] { tiny_segments(path, false, false); }) == each.code);
    scratch::put(path, whole);
  }
  // One that begins behind the end of its object.
  std::uint64_t skipped = 0;
  std::memcpy(&skipped, whole.data() + table + 48, sizeof skipped);
  skipped += std::uint64_t{1} << 30;
  overwrite(path, table + 48, {reinterpret_cast<const char*>(&skipped), sizeof skipped});
  CHECK(code_of([&] { tiny_segments(path, false, false); }) == Errc::corrupt);
  scratch::put(path, whole);
  // Two segments that are one.
  std::string twice = whole;
  std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(table) + 32, 32,
              twice.begin() + static_cast<std::ptrdiff_t>(table) + 64);
  scratch::put(path, twice);
  CHECK(code_of([&] { tiny_segments(path, false, false); }) == Errc::corrupt);
  scratch::put(path, whole);
  CHECK(tiny_segments(path, false, false)->size() > 0);
}

TEST_CASE("damage of what libpmemobj keeps in a pool ends no process", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  {
    Shelf shelf = Shelf::open(dir / "p", pool_options());
    commit(shelf, 7);
  }
  const std::string whole = scratch::contents(dir / "p");
  std::mt19937_64 random(7);
  unsigned refused = 0;
  for (std::uint64_t at = 8192; at < (4 << 20); at += 90'000) {
    CAPTURE(at);
    std::string bytes = whole;
    for (std::uint64_t i = 0; i < 8192; ++i) bytes[at + i] = static_cast<char>(random());
    scratch::put(dir / "p", bytes);
    const auto opens = [&](Mode mode) {  // in a process of its own, which a lock may stay with
      const int status = scratch::in_child([&] {
        ::alarm(30);
        try {
          return committed(Shelf::open(dir / "p", by_itself(mode))) == 7;
        } catch (const Error& error) {
          ::_exit(error.code() == Errc::corrupt || error.code() == Errc::not_a_shelf ? 3 : 4);
        }
      });
      REQUIRE(WIFEXITED(status));
      REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
      refused += WEXITSTATUS(status) == 3;
    };
    opens(Mode::read);
    opens(Mode::update);
  }
  CHECK(refused > 0);
}

TEST_CASE("behind a fault within libpmemobj no pool is opened any more", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  for (const char* name : {"good", "bad", "other"}) {
    Shelf shelf = Shelf::open(dir / name, pool_options());
    commit(shelf, 1);
  }
  std::mt19937_64 random(7);
  std::string bytes = scratch::contents(dir / "bad");
  for (std::uint64_t at = 8192; at < 16'384; ++at) bytes[at] = static_cast<char>(random());
  scratch::put(dir / "bad", bytes);
  const int status = scratch::in_child([&] {
    ::alarm(30);
    Shelf open = Shelf::open(dir / "good", by_itself());
    const auto error = error_of([&] { Shelf::open(dir / "bad", by_itself()); });
    if (!error || error->code() != Errc::corrupt) return false;
    if (code_of([&] { Shelf::open(dir / "bad", by_itself()); }) != Errc::busy) return false;
    if (code_of([&] { Shelf::open(dir / "other", by_itself()); }) != Errc::unsupported)
      return false;
    if (code_of([&] { Shelf::open(dir / "new", pool_options()); }) != Errc::unsupported)
      return false;
    commit(open, 2);
    open.close();
    return true;
  });
  CHECK(status == 0);
  CHECK(committed(Shelf::open(dir / "good", by_itself())) == 2);
}

TEST_CASE("what takes the flushes from libpmemobj is told, and no power loss is promised",
          "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  const Shelf shelf = Shelf::open(dir / "p", pool_options());
  const auto told = [&](const std::string& name) {
    const Promises promises = shelf.info().promises;
    CHECK(promises.survives == Survives::process_crash);
    return std::ranges::any_of(promises.notes, [&](const std::string& note) {
      return note.find(name) != std::string::npos;
    });
  };
  for (const std::string name : {"PMEM_IS_PMEM_FORCE", "PMEM_NO_FLUSH"}) {
    for (const std::string value : {"", "0", "1"}) {
      if (value.empty()) {
        ::unsetenv(name.c_str());
      } else {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      CHECK(told(name + "=") == (value == "1"));
    }
    ::unsetenv(name.c_str());
  }
}

TEST_CASE("a forked child that lets go of the pool changes nothing of its parent's", "[pool]") {
  const scratch::Directory dir(kTmpfsPlace);
  auto shelf = std::make_unique<Shelf>(Shelf::open(dir / "p", pool_options()));
  commit(*shelf, 1);
  const int status = scratch::in_child([&] {
    shelf.reset();
    return true;
  });
  CHECK(status == 0);
  CHECK(code_of([&] { Shelf::open(dir / "p", by_itself(Mode::update)); }) == Errc::busy);
  commit(*shelf, 2);
  shelf.reset();
  CHECK(committed(Shelf::open(dir / "p", by_itself())) == 2);
}
