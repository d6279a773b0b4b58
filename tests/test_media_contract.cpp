// The contract of include/tensorshelf/medium.hpp, statement by statement, on every medium there is.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>
#include <tensorshelf/error.hpp>
#include <thread>

#include "base/copy_hash.hpp"
#include "bytes.hpp"
#include "catch.hpp"
#include "media/shifted.hpp"
#include "tests/media_rows.hpp"
#include "tests/memory_pins.hpp"
#include "thrown.hpp"

namespace tensorshelf {
namespace {

using testing::Bytes;
using testing::code_of;
using testing::pattern;
using testing::same;
constexpr std::uint64_t kRoom = 4 * 1024 * 1024;

Bytes read(Medium& medium, std::uint64_t at, std::size_t size) {
  Bytes bytes(size, std::byte{0xEE});
  medium.read(at, bytes);
  return bytes;
}

void write(Medium& medium, std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), kChunkBytes));
    medium.wait(medium.write(at, piece, 0));
    at += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

// Runs `check` on a fresh medium of each row.
template <class Check>
void on_every_medium(Check check) {
  for (const MediaRow& row : media_rows()) {
    DYNAMIC_SECTION(row.name) {
      MediumUnderTest medium(row);
      check(row, medium);
    }
  }
}

TEST_CASE("what lies behind another's begin is read within its bounds alone") {
  constexpr std::uint64_t kShift = 3 * kPageBytes;
  const auto inner = testing::memory_of(8 * kPageBytes);
  inner->reserve(8 * kPageBytes);
  const Bytes written = pattern(8 * kPageBytes, 7);
  write(*inner, 0, written);
  ShiftedMedium shifted(inner, kShift);
  REQUIRE(shifted.size() == 5 * kPageBytes);
  const auto expected = std::span(written).subspan(kShift + 4 * kPageBytes, kPageBytes);
  Bytes bytes(kPageBytes);
  shifted.read(4 * kPageBytes, bytes);
  CHECK(std::ranges::equal(bytes, expected));
  shifted.look(4 * kPageBytes, bytes);
  CHECK(std::ranges::equal(bytes, expected));
  for (const std::uint64_t at : {4 * kPageBytes + 1, 5 * kPageBytes, ~std::uint64_t{0} - 10}) {
    CAPTURE(at);
    CHECK(code_of([&] { shifted.read(at, bytes); }) == Errc::truncated);
    CHECK(code_of([&] { shifted.look(at, bytes); }) == Errc::truncated);
    CHECK(code_of([&] { shifted.view({at, kPageBytes}); }) == Errc::truncated);
  }
  CHECK(code_of([&] { shifted.store_word(0, 1); }) == Errc::read_only);
}

TEST_CASE("promises are those of the place") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    const Promises promises = medium->promises();
    INFO(promises.medium << ": " << promises.detail);
    REQUIRE(promises.medium == row.medium);
    REQUIRE(std::count(row.survives.begin(), row.survives.end(), promises.survives) == 1);
    REQUIRE(promises.mapped == row.mapped);
    REQUIRE(promises.atomic_bytes >= 8);
    REQUIRE_FALSE(promises.detail.empty());
    for (const std::string& word : row.says) {
      INFO("says " << word);
      REQUIRE(promises.detail.find(word) != std::string::npos);
    }
    for (const std::string& word : row.omits) {
      INFO("omits " << word);
      REQUIRE(promises.detail.find(word) == std::string::npos);
    }
    const std::string chosen = MediumUnderTest::kNote;
    const bool told = std::count(promises.notes.begin(), promises.notes.end(), chosen) == 1;
    REQUIRE(told == !row.in_memory());
    // What is less than the best is explained.
    const bool weak = promises.survives != Survives::power_loss || !row.omits.empty();
    if (weak) REQUIRE(promises.notes.size() > told);
  });
}

TEST_CASE("a write reads back, hashed as it was copied, and touches no other page") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    medium->reserve(kRoom);
    const Bytes before = pattern(kRoom, 1);
    write(*medium, 0, before);
    const Bytes source = pattern(kChunkBytes + 64, 2);
    std::uint64_t at = kPageBytes;
    std::size_t shift = 0;
    for (const std::size_t size : {1u, 2u, 7u, 63u, 64u, 65u, 240u, 241u, 511u, 512u, 513u, 4095u,
                                   4096u, 4097u, 12345u, 65539u, 1048575u, 1048576u}) {
      INFO("size " << size << " at " << at);
      shift = (shift + 13) % 64;
      const auto piece = std::span(source).subspan(shift, size);
      const Ticket ticket = medium->write(at, piece, at);
      REQUIRE(ticket.checksum == hash_bytes(piece, at));
      const bool seen = same(read(*medium, at, size), piece);  // before any wait
      REQUIRE(seen);
      medium->wait(ticket);
      medium->barrier();
      const bool kept = same(read(*medium, at, size), piece);
      REQUIRE(kept);
      const std::uint64_t next = at + round_up(size, kPageBytes);
      const bool page_before_same =
          read(*medium, next, kPageBytes) ==
          Bytes(before.begin() + static_cast<std::ptrdiff_t>(next),
                before.begin() + static_cast<std::ptrdiff_t>(next + kPageBytes));
      REQUIRE(page_before_same);
      at = next + kPageBytes;
      if (at + kChunkBytes + kPageBytes > kRoom) at = kPageBytes;
      write(*medium, 0, before);
    }
    const bool first_page_same =
        read(*medium, 0, kPageBytes) == Bytes(before.begin(), before.begin() + kPageBytes);
    REQUIRE(first_page_same);
  });
}

TEST_CASE("read takes any alignment and size") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    medium->reserve(kRoom);
    const Bytes all = pattern(kRoom, 3);
    write(*medium, 0, all);
    const unsigned seed = std::random_device()();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for (unsigned n = 0; n < testing::rounds(300); ++n) {
      const std::size_t at = random() % kRoom;
      const std::size_t limit = n % 10 == 0 ? kRoom : 10000;
      const std::size_t size = random() % std::min(limit, kRoom - at + 1);
      INFO(size << " bytes at " << at);
      const bool alike = same(read(*medium, at, size), std::span(all).subspan(at, size));
      REQUIRE(alike);
    }
    const bool whole = read(*medium, 0, kRoom) == all;
    REQUIRE(whole);
  });
}

TEST_CASE("store_word changes its 8 bytes and no others") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    medium->reserve(kRoom);
    Bytes expected = pattern(16 * kPageBytes, 4);
    write(*medium, 0, expected);
    medium->barrier();
    std::uint64_t word = 0x0102030405060708;
    for (const std::uint64_t at : {0u, 8u, 504u, 512u, 2048u, 4088u, 4096u, 40000u, 65528u}) {
      INFO("at " << at);
      word = word * 0x9E3779B185EBCA87 + 1;
      std::memcpy(expected.data() + at, &word, 8);
      medium->store_word(at, word);
      const bool seen = read(*medium, 0, expected.size()) == expected;
      REQUIRE(seen);
      medium->barrier();
      const bool kept = read(*medium, 0, expected.size()) == expected;
      REQUIRE(kept);
    }
  });
}

TEST_CASE("store_word keeps what was written over its page since the last word") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    constexpr unsigned kPages = 12;  // more than a medium may keep copies of
    medium->reserve(kRoom);
    Bytes expected = pattern(kPages * kPageBytes, 20);
    write(*medium, 0, expected);
    std::uint64_t word = 77;
    const auto store_words = [&] {
      for (unsigned page = 0; page < kPages; ++page) {
        const std::uint64_t at = page * kPageBytes + 8 * page;
        std::memcpy(expected.data() + at, &++word, 8);
        medium->store_word(at, word);
      }
      const bool seen = read(*medium, 0, expected.size()) == expected;
      REQUIRE(seen);
    };
    store_words();
    struct Range {
      std::uint64_t at, size;
    };
    for (const Range& range : {Range{0, kPageBytes}, Range{kPageBytes, 5 * kPageBytes},
                               Range{2 * kPageBytes, 100}, Range{0, kPages * kPageBytes}}) {
      INFO(range.size << " bytes at " << range.at);
      const Bytes fresh = pattern(range.size, range.size + range.at);
      std::memcpy(&expected[range.at], fresh.data(), fresh.size());
      write(*medium, range.at, fresh);
      const std::uint64_t end = range.at + range.size;  // up to the next page: undefined, but fixed
      const Bytes rest = read(*medium, end, round_up(end, kPageBytes) - end);
      std::ranges::copy(rest, expected.begin() + static_cast<std::ptrdiff_t>(end));
      store_words();
    }
  });
}

TEST_CASE("a view is the bytes in place where the medium is mapped, and empty elsewhere") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    medium->reserve(kRoom);
    const Bytes bytes = pattern(10000, 5);
    write(*medium, 3 * kPageBytes, bytes);
    const auto view = medium->view({3 * kPageBytes, bytes.size()});
    if (!medium->promises().mapped) {
      REQUIRE(view.empty());
      return;
    }
    REQUIRE(view.size() == bytes.size());
    const bool alike = same(view, bytes);
    REQUIRE(alike);
    const Bytes changed = pattern(10000, 6);
    write(*medium, 3 * kPageBytes, changed);
    const bool follows = same(view, changed);
    REQUIRE(follows);
  });
}

TEST_CASE("reserve gives zeroed room, keeps what there is, and never shrinks") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.on_device()) {
      const std::uint64_t size = medium->size();
      REQUIRE(size >= kRoom);
      REQUIRE(medium->reserve(kRoom) == size);
      REQUIRE(medium->reserve(size) == size);
      return;
    }
    REQUIRE(medium->size() <= kPageBytes);
    const std::uint64_t first = medium->reserve(kPageBytes);
    REQUIRE(first >= kPageBytes);
    const Bytes bytes = pattern(kPageBytes, 7);
    write(*medium, 0, bytes);
    const auto view = medium->view({0, kPageBytes});

    const std::uint64_t grown = medium->reserve(kRoom - 100);
    REQUIRE(grown >= kRoom - 100);
    REQUIRE(medium->size() == grown);
    REQUIRE(medium->reserve(kPageBytes) == grown);
    const bool kept = read(*medium, 0, kPageBytes) == bytes;
    REQUIRE(kept);
    const bool zero = read(*medium, kPageBytes, grown - kPageBytes) == Bytes(grown - kPageBytes);
    REQUIRE(zero);
    if (medium->promises().mapped) {
      REQUIRE(medium->view({0, kPageBytes}).data() == view.data());
      const bool in_place = same(view, bytes);
      REQUIRE(in_place);
    }
    if (!row.in_memory()) {  // blocks are there, so that later writes convert no extent
      struct stat status = {};
      REQUIRE(::stat(medium.path().c_str(), &status) == 0);
      REQUIRE(static_cast<std::uint64_t>(status.st_size) >= grown);
      REQUIRE(static_cast<std::uint64_t>(status.st_blocks) * 512 >= grown);
    }
  });
}

TEST_CASE("beyond the cap or the device's end is full, and leaves everything usable") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    const std::uint64_t size = medium->reserve(kRoom);
    const std::uint64_t cap = row.on_device() ? size : MediumUnderTest::kCapBytes;
    const Bytes bytes = pattern(kPageBytes, 8);
    write(*medium, kPageBytes, bytes);
    for (const std::uint64_t wanted : {cap + 1, cap + kRoom, std::uint64_t{1} << 60}) {
      INFO("reserve " << wanted);
      REQUIRE(code_of([&] { medium->reserve(wanted); }) == Errc::full);
      REQUIRE_FALSE(medium->failed());
      REQUIRE(medium->size() == size);
      const bool kept = read(*medium, kPageBytes, kPageBytes) == bytes;
      REQUIRE(kept);
      write(*medium, 2 * kPageBytes, bytes);
      medium->barrier();
    }
    REQUIRE(medium->reserve(cap) == cap);
    write(*medium, cap - kPageBytes, bytes);
    medium->barrier();
    const bool last_page = read(*medium, cap - kPageBytes, kPageBytes) == bytes;
    REQUIRE(last_page);
  });
}

TEST_CASE("of a cap within a page, its whole pages are room and no byte more is taken") {
  for (const MediaRow& row : media_rows()) {
    if (row.on_device()) continue;
    for (const std::uint64_t rest : {1UL, 100UL, kPageBytes - 1}) {
      DYNAMIC_SECTION(row.name << ", cap " << rest << " into a page") {
        const std::uint64_t whole = kRoom - kPageBytes;  // no multiple of a huge page either
        MediumUnderTest medium(row, whole + rest);
        REQUIRE(medium->reserve(kPageBytes) <= whole);
        REQUIRE(medium->reserve(whole) == whole);
        const Bytes bytes = pattern(kPageBytes, 10);
        write(*medium, whole - kPageBytes, bytes);
        REQUIRE(code_of([&] { medium->reserve(whole + 1); }) == Errc::full);
        REQUIRE_FALSE(medium->failed());
        REQUIRE(medium->size() == whole);
        medium->barrier();
        const bool kept = read(*medium, whole - kPageBytes, kPageBytes) == bytes;
        REQUIRE(kept);
        if (!row.in_memory()) REQUIRE(std::filesystem::file_size(medium.path()) == whole);
      }
    }
  }
}

constexpr std::uint64_t kEnd = kRoom / 2 + 3 * kPageBytes;  // of what is made shorter
constexpr std::uint64_t kWordAt = kRoom - 5 * kPageBytes + 16;

std::uint64_t length_of(const std::filesystem::path& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return static_cast<std::uint64_t>(status.st_size);
}

TEST_CASE("shrink gives back what lies beyond, and what is reserved there anew is zero") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    const std::uint64_t size = medium->reserve(kRoom);
    Bytes bytes = pattern(kRoom, 12);
    write(*medium, 0, bytes);
    medium->store_word(kWordAt, 7);
    medium->store_word(8, 7);  // kept pages of words: one stays, one goes
    medium->barrier();
    const std::uint64_t word = 7;
    std::memcpy(bytes.data() + 8, &word, 8);
    std::memcpy(bytes.data() + kWordAt, &word, 8);
    const auto all = std::span<const std::byte>(bytes);
    if (row.on_device()) {
      REQUIRE(medium->shrink(kEnd) == size);
      REQUIRE(medium->size() == size);
      const bool kept = same(read(*medium, 0, kRoom), all);
      REQUIRE(kept);
      REQUIRE(medium->reserve(size) == size);
      return;
    }
    const auto view = medium->view({0, kEnd});
    REQUIRE(medium->shrink(kEnd) == kEnd);
    REQUIRE(medium->size() == kEnd);
    REQUIRE(medium->reserve(kEnd) == kEnd);
    REQUIRE(medium->shrink(kEnd) == kEnd);
    const bool kept = same(read(*medium, 0, kEnd), all.first(kEnd));
    REQUIRE(kept);
    if (!row.in_memory()) REQUIRE(length_of(medium.path()) == kEnd);
    Bytes page(kPageBytes);
    for (const std::uint64_t at : {kEnd - 1, kEnd, kRoom - kPageBytes}) {
      REQUIRE(code_of([&] { medium->read(at, page); }) == Errc::corrupt);
      REQUIRE(code_of([&] { (void)medium->view({at, kPageBytes}); }) == Errc::corrupt);
    }
    write(*medium, kEnd - kPageBytes, page);  // up to the end
    medium->barrier();
    if (!row.in_memory()) REQUIRE(length_of(medium.path()) == kEnd);
    write(*medium, kEnd - kPageBytes, all.subspan(kEnd - kPageBytes, kPageBytes));

    const std::uint64_t grown = medium->reserve(kRoom);
    REQUIRE(grown >= kRoom);
    REQUIRE(medium->size() == grown);
    const bool zero = read(*medium, kEnd, grown - kEnd) == Bytes(grown - kEnd);
    REQUIRE(zero);
    if (medium->promises().mapped) {
      REQUIRE(medium->view({0, kEnd}).data() == view.data());
      const bool shown = same(medium->view({kEnd, kRoom - kEnd}), Bytes(kRoom - kEnd));
      REQUIRE(shown);
    }
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(kEnd), bytes.end(), std::byte{0});
    std::memcpy(bytes.data() + kWordAt + 8, &word, 8);
    medium->store_word(kWordAt + 8, word);  // in a page of zeros
    std::memcpy(bytes.data() + 16, &word, 8);
    medium->store_word(16, word);  // and one that was kept
    const bool seen = same(read(*medium, 0, kRoom), all);
    REQUIRE(seen);
    const Bytes last = pattern(kPageBytes, 13);
    std::memcpy(&bytes[kRoom - kPageBytes], last.data(), kPageBytes);
    write(*medium, kRoom - kPageBytes, last);
    medium->barrier();
    if (!row.in_memory()) {
      struct stat status = {};
      REQUIRE(::stat(medium.path().c_str(), &status) == 0);
      REQUIRE(static_cast<std::uint64_t>(status.st_blocks) * 512 >= grown);
      medium.reopen();
      REQUIRE(medium->size() == grown);
    }
    const bool again = same(read(*medium, 0, kRoom), all);
    REQUIRE(again);
    REQUIRE_FALSE(medium->failed());
  });
}

TEST_CASE("a place that was made shorter is as long when it is opened again, and can grow") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.in_memory() || row.on_device()) return;
    medium->reserve(kRoom);
    const Bytes bytes = pattern(kRoom, 14);
    write(*medium, 0, bytes);
    medium->barrier();
    constexpr std::uint64_t kFirst = 3 * kPageBytes;
    REQUIRE(medium->shrink(kFirst) == kFirst);
    medium.reopen();
    REQUIRE(medium->size() == kFirst);
    const std::uint64_t grown = medium->reserve(kRoom);
    REQUIRE(grown >= kRoom);
    const bool kept = same(read(*medium, 0, kFirst), std::span(bytes).first(kFirst));
    REQUIRE(kept);
    const bool zero = read(*medium, kFirst, grown - kFirst) == Bytes(grown - kFirst);
    REQUIRE(zero);
    REQUIRE(medium->shrink(kPageBytes) == kPageBytes);  // what was found goes as what was made does
    REQUIRE(medium->reserve(kRoom) >= kRoom);
    write(*medium, kRoom - kPageBytes, std::span(bytes).first(kPageBytes));
    medium->barrier();
    const bool there =
        same(read(*medium, kRoom - kPageBytes, kPageBytes), std::span(bytes).first(kPageBytes));
    REQUIRE(there);
  });
}

TEST_CASE("writes that nobody waited for go with what lies beyond") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.on_device()) return;
    medium->reserve(kRoom);
    const Bytes bytes = pattern(kRoom, 15);
    write(*medium, 0, bytes);
    medium->barrier();
    const Bytes fresh = pattern(100 * 1024, 16);  // too large for a cache
    medium->write(0, fresh, 0);
    medium->write(kEnd, fresh, 0);
    const Ticket last = medium->write(kRoom - kChunkBytes / 2, fresh, 0);
    medium->store_word(kRoom - 8, 9);
    REQUIRE(medium->shrink(kEnd) == kEnd);
    medium->wait(last);
    medium->barrier();
    if (!row.in_memory()) REQUIRE(length_of(medium.path()) == kEnd);
    medium->reserve(kRoom);
    medium->wait(last);
    medium->barrier();
    const bool zero = read(*medium, kEnd, kRoom - kEnd) == Bytes(kRoom - kEnd);
    REQUIRE(zero);
    const bool kept = same(read(*medium, 0, fresh.size()), fresh);
    REQUIRE(kept);
  });
}

TEST_CASE("a reader beside a writer that makes the file shorter gets errors, and no signal") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.in_memory() || row.on_device()) return;
    const std::uint64_t size = medium->reserve(kRoom);
    const Bytes bytes = pattern(kRoom, 17);
    write(*medium, 0, bytes);
    medium->barrier();
    auto file = std::make_shared<ShelfFile>(ShelfFile::open(medium.path(), false));
    GuardedMedium reader(row.make(std::move(file), {}, ""));
    REQUIRE(reader.size() == size);
    Bytes page(kPageBytes);
    reader.read(kRoom - kPageBytes, page);
    REQUIRE(medium->shrink(kEnd) == kEnd);
    for (const std::uint64_t at : {kEnd - 512, kEnd, kRoom - kPageBytes}) {
      CAPTURE(at);
      REQUIRE(code_of([&] { reader.read(at, page); }) == Errc::truncated);
      REQUIRE(code_of([&] { reader.look(at, page); }) == Errc::truncated);
    }
    const bool kept = same(read(reader, 0, kEnd), std::span(bytes).first(kEnd));
    REQUIRE(kept);
    REQUIRE(reader.size() == kEnd);
    REQUIRE(code_of([&] { reader.read(kEnd, page); }) == Errc::corrupt);
    const std::uint64_t grown = medium->reserve(kRoom);
    REQUIRE(reader.size() == grown);
    const bool zero = read(reader, kEnd, grown - kEnd) == Bytes(grown - kEnd);
    REQUIRE(zero);
    REQUIRE(reader.shrink(kEnd) == grown);  // a reader changes nothing
    REQUIRE(length_of(medium.path()) == grown);
  });
}

// The kernel refuses to let this process's files grow past `bytes`, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit = {bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_ = {};
  void (*previous_handler_)(int);
};

TEST_CASE("a file that the system does not let grow is full, and leaves everything usable") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.in_memory() || row.on_device()) return;
    medium->reserve(kPageBytes);
    const Bytes bytes = pattern(kPageBytes, 9);
    write(*medium, 0, bytes);
    const std::uint64_t size = medium->size();
    {
      const FileSizeLimit limit(size);
      REQUIRE(code_of([&] { medium->reserve(kRoom); }) == Errc::full);
    }
    REQUIRE(medium->size() == size);
    write(*medium, 0, bytes);
    medium->barrier();
    REQUIRE(medium->reserve(kRoom) >= kRoom);
    const bool kept = read(*medium, 0, kPageBytes) == bytes;
    REQUIRE(kept);
    const bool zero = read(*medium, size, kRoom - size) == Bytes(kRoom - size);
    REQUIRE(zero);
  });
}

TEST_CASE("sequences grow, and waiting for one ticket frees all earlier sources") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    medium->reserve(kRoom);
    const Bytes original = pattern(kRoom, 10);
    Bytes source = original;
    constexpr std::size_t kPiece = 24 * kPageBytes;  // not a power of two: pieces join and split
    Ticket last;
    std::uint64_t at = 0;
    for (; at + kPiece <= kRoom; at += kPiece) {
      const Ticket ticket = medium->write(at, std::span(source).subspan(at, kPiece), 0);
      REQUIRE(ticket.sequence > last.sequence);
      last = ticket;
    }
    medium->wait(last);
    std::fill(source.begin(), source.end(), std::byte{0});
    medium->wait(last);  // waiting twice is harmless
    medium->barrier();
    const bool kept = same(read(*medium, 0, at), std::span(original).first(at));
    REQUIRE(kept);
  });
}

TEST_CASE("threads write and read disjoint pages at once", "[threads]") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    constexpr unsigned kThreads = 4;
    constexpr std::uint64_t kShare = kRoom / kThreads;
    medium->reserve(kRoom);
    const Bytes all = pattern(kRoom, 11);
    std::vector<unsigned> wrong(kThreads, 0);
    {
      std::vector<std::jthread> threads;
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          std::mt19937 random(thread);
          std::uint64_t at = thread * kShare;
          const std::uint64_t end = at + kShare;
          while (at < end) {
            const std::uint64_t pages =
                std::min<std::uint64_t>(1 + random() % 40, (end - at) / kPageBytes);
            const auto piece = std::span(all).subspan(at, pages * kPageBytes);
            const Ticket ticket = medium->write(at, piece, thread);
            if (ticket.checksum != hash_bytes(piece, thread)) ++wrong[thread];
            if (random() % 4 == 0) medium->wait(ticket);
            if (!same(read(*medium, at, piece.size()), piece)) ++wrong[thread];
            at += piece.size();
            if (at == end) medium->wait(ticket);
          }
        });
      }
    }
    medium->barrier();
    REQUIRE(wrong == std::vector<unsigned>(kThreads, 0));
    const bool kept = read(*medium, 0, kRoom) == all;
    REQUIRE(kept);
  });
}

TEST_CASE("bytes and words behind a barrier are there when the place is opened again") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.in_memory()) return;
    const std::uint64_t size = medium->reserve(kRoom);
    Bytes expected = pattern(kRoom, std::random_device()());
    write(*medium, 0, expected);
    medium->barrier();
    const std::uint64_t word = 0x1122334455667788;
    std::memcpy(expected.data() + 5 * kPageBytes + 16, &word, 8);
    medium->store_word(5 * kPageBytes + 16, word);
    medium->barrier();
    for (int n = 0; n < 2; ++n) {
      medium.reopen();
      REQUIRE(medium->size() == size);
      const bool kept = read(*medium, 0, kRoom) == expected;
      REQUIRE(kept);
    }
  });
}

TEST_CASE("reads and views beyond the end are refused as damage") {
  on_every_medium([](const MediaRow&, MediumUnderTest& medium) {
    const std::uint64_t size = medium->reserve(kRoom);
    Bytes byte(2);
    medium->read(size - 2, byte);
    for (const std::uint64_t at : {size - 1, size, size + kPageBytes, ~std::uint64_t{0}}) {
      INFO("at " << at << " of " << size);
      REQUIRE(code_of([&] { medium->read(at, byte); }) == Errc::corrupt);
      REQUIRE(code_of([&] { (void)medium->view({at, 2}); }) == Errc::corrupt);
    }
    REQUIRE(code_of([&] { (void)medium->view({kPageBytes, ~std::uint64_t{0}}); }) == Errc::corrupt);
    REQUIRE_FALSE(medium->failed());
  });
}

TEST_CASE("what a file with holes holds beyond its room can still be read") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    if (row.in_memory() || row.on_device()) return;
    medium->reserve(kRoom);
    const Bytes bytes = pattern(kPageBytes, 11);
    write(*medium, kRoom - kPageBytes, bytes);
    medium->barrier();
    const int fd = ::open(medium.path().c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    const int punched = ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                    static_cast<off_t>(kRoom - kPageBytes));
    ::close(fd);
    if (punched != 0) {
      WARN("skipped: holes, which " << row.directory << " cannot have");
      return;
    }
    medium.reopen();
    REQUIRE(medium->reserve(kPageBytes) >= kPageBytes);
    REQUIRE(medium->reserve(2 * kPageBytes) >= 2 * kPageBytes);
    const bool zero = read(*medium, kPageBytes, kPageBytes) == Bytes(kPageBytes);
    REQUIRE(zero);
    const bool kept = read(*medium, kRoom - kPageBytes, kPageBytes) == bytes;
    REQUIRE(kept);
    if (medium->promises().mapped) {
      const bool shown = same(medium->view({kRoom - kPageBytes, kPageBytes}), bytes);
      REQUIRE(shown);
    }
    REQUIRE(medium->size() == kRoom);
    REQUIRE(medium->reserve(kRoom) == kRoom);
  });
}

// A copy of what the medium must hold. Bytes after a write's end, up to the page's, are unknown.
struct Model {
  Bytes bytes;
  std::vector<bool> known;

  void grow(std::size_t size) {
    bytes.resize(size);
    known.resize(size, true);
  }
  void cut(std::size_t size) {
    bytes.resize(size);
    known.resize(size);
  }
  void write(std::size_t at, std::span<const std::byte> source) {
    std::memcpy(&bytes[at], source.data(), source.size());
    for (std::size_t n = at; n < round_up(at + source.size(), kPageBytes); ++n) {
      known[n] = n < at + source.size();
    }
  }
  bool agrees(std::size_t at, std::span<const std::byte> found) const {
    for (std::size_t n = 0; n < found.size(); ++n) {
      if (known[at + n] && bytes[at + n] != found[n]) return false;
    }
    return true;
  }
};

TEST_CASE("a random walk of all verbs agrees with a model") {
  on_every_medium([](const MediaRow& row, MediumUnderTest& medium) {
    const unsigned seed = std::random_device()();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Model model;
    model.grow(medium->reserve(row.on_device() ? kRoom : 64 * kPageBytes));
    if (row.on_device()) {
      model.grow(kRoom);
      write(*medium, 0, model.bytes);
    }
    std::vector<Bytes> sources;  // stay put until the wait
    Ticket last;
    const auto settle = [&] {
      medium->wait(last);
      sources.clear();
    };
    for (unsigned n = 0; n < testing::rounds(400); ++n) {
      const std::uint64_t pages = model.bytes.size() / kPageBytes;
      const std::uint64_t at = random() % pages * kPageBytes;
      INFO("operation " << n << " at " << at);
      switch (random() % 8) {
        case 0:
        case 1:
        case 2: {
          const std::size_t most = std::min<std::size_t>(model.bytes.size() - at, 40000);
          sources.push_back(pattern(1 + random() % most, random()));
          last = medium->write(at, sources.back(), n);
          REQUIRE(last.checksum == hash_bytes(sources.back(), n));
          model.write(at, sources.back());
          break;
        }
        case 3: {
          settle();
          const std::uint64_t word = random();
          const std::uint64_t place = at + random() % 512 * 8;
          medium->store_word(place, word);
          std::memcpy(model.bytes.data() + place, &word, 8);
          for (std::size_t each = place; each < place + 8; ++each) model.known[each] = true;
          break;
        }
        case 4:
          settle();
          medium->barrier();
          break;
        case 5:
          if (!row.on_device() && random() % 8 == 0 && model.bytes.size() < kRoom) {
            settle();
            model.grow(medium->reserve(model.bytes.size() + random() % (256 * 1024)));
          } else if (!row.on_device() && random() % 8 == 0) {
            if (random() % 2 == 0) settle();
            model.cut(medium->shrink(std::max(at, 16 * kPageBytes)));
          }
          break;
        default: {
          const std::size_t from = random() % model.bytes.size();
          const std::size_t size =
              random() % std::min<std::size_t>(model.bytes.size() - from, 90000);
          const bool alike = model.agrees(from, read(*medium, from, size));
          REQUIRE(alike);
          const auto view = medium->view({at, std::min<std::uint64_t>(kPageBytes, size)});
          const bool view_same = model.agrees(at, view);
          REQUIRE(view_same);
        }
      }
    }
    settle();
    medium->barrier();
    if (!row.in_memory()) medium.reopen();
    const bool whole = model.agrees(0, read(*medium, 0, model.bytes.size()));
    REQUIRE(whole);
  });
}

}  // namespace
}  // namespace tensorshelf
