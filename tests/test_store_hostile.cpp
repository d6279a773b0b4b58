// Shelves that nobody wrote by accident: every checksum holds, and a counter, a count or a place is
// at the end of its range or beyond. Opening gives a coded error or a shelf that works rightly; the
// last number of a kind is refused in good time and never wraps.
#include <array>
#include <limits>

#include "forgery.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::kCopies;
using format::kMaxCounter;
using format::kMaxVersion;
using format::Page;
using format::PageRef;
using format::Root;

namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("a shelf of format 1 is refused by name, and left as it is") {
  const Forgery forgery;
  auto superblock = forgery.superblock();
  superblock.format_version = 1;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    write_page(*forgery.bench.medium, format::superblock_at(copy),
               format::encode_superblock(superblock, copy));
  }
  const auto all = forgery.bench.medium->view({0, forgery.bench.medium->size()});
  const std::vector<std::byte> before(all.begin(), all.end());
  for (const Mode mode : {Mode::read, Mode::update, Mode::append}) {
    try {
      forgery.bench.open(mode);
      FAIL("it was opened");
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::unsupported);
      REQUIRE(std::string(error.what()).find("format 1") != std::string::npos);
    }
  }
  REQUIRE(std::equal(before.begin(), before.end(), all.begin()));
}

TEST_CASE("the last version is refused before anything is lost, and never wraps") {
  const Forgery forgery;
  forgery.set_version(kMaxVersion - 3);
  {
    Shelf shelf = forgery.bench.open();
    REQUIRE(shelf.info().version == kMaxVersion - 3);
    auto a = shelf.find("a").value();
    a.write(pattern(5000, 10));
    REQUIRE(shelf.persist(7).version == kMaxVersion - 2);
    a.write(pattern(5000, 11));
    REQUIRE(shelf.persist(8).version == kMaxVersion - 1);
    a.write(pattern(5000, 12));
    for (int attempt = 0; attempt < 2; ++attempt) {  // it stays as it is: not failed, not lost
      REQUIRE(code_of([&] { shelf.persist(9); }) == Errc::full);
      REQUIRE(code_of([&] { shelf.persist_async(9).get(); }) == Errc::full);
      REQUIRE(contains(error_of([&] { shelf.persist(9); })->what(), "version 1099511627774 of "));
    }
    REQUIRE((value(a) == pattern(5000, 12)));
    REQUIRE((value(a, true) == pattern(5000, 11)));
    make(shelf, "more", 100);
    REQUIRE(shelf.verify().damage.empty());
    REQUIRE(forgery.bench.open(Mode::read).info().version == kMaxVersion - 1);
  }
  Shelf again = forgery.bench.open(Mode::update, Verify::on_open);
  REQUIRE(again.info().version == kMaxVersion - 1);
  REQUIRE(again.info().step == 8U);
  REQUIRE_FALSE(again.info().recovery.degraded);
  REQUIRE((value(*again.find("a")) == pattern(5000, 11)));
  REQUIRE(code_of([&] { again.persist(); }) == Errc::full);
  REQUIRE(code_of([&] { again.rollback(kMaxVersion - 1); }) == Errc::full);
  REQUIRE(code_of([&] { again.prepare(); }) == Errc::full);
  again.close();
  REQUIRE((value(*forgery.bench.open().find("a")) == pattern(5000, 11)));
}

TEST_CASE("a root of the version that marks unused homes is none") {
  const Forgery forgery;
  forgery.set_version(kMaxVersion);
  const Shelf shelf = forgery.bench.open();
  REQUIRE(shelf.info().version == 2);  // from the other home
}

TEST_CASE("the last tensor is refused, and the shelf stays usable") {
  const Forgery forgery;
  forgery.edit_root([](Root& root) { root.next_tensor_id = kMaxCounter - 1; });
  for (int round = 0; round < 2; ++round) {
    Shelf shelf = forgery.bench.open();
    if (round == 0) make(shelf, "last", 100).write(pattern(100, 4));
    REQUIRE(code_of([&] { make(shelf, "one more", 100); }) == Errc::full);
    REQUIRE(code_of([&] { shelf.replace("a", DType::uint8, std::vector<std::int64_t>{7}); }) ==
            Errc::full);
    shelf.find("a")->write(pattern(5000, 20));
    shelf.persist();
    REQUIRE((value(*shelf.find("last")) == pattern(100, 4)));
    REQUIRE_FALSE(shelf.info().recovery.degraded);
  }
}

TEST_CASE("incarnations that wrap in the version word") {
  const std::uint64_t tag = std::uint64_t{1} << (64 - format::kVersionBits);
  const std::uint64_t incarnation = GENERATE_COPY(tag - 2, tag - 1, tag, kMaxCounter - tag - 2);
  CAPTURE(incarnation);
  const Forgery forgery;
  forgery.set_incarnation(incarnation);
  for (unsigned round = 1; round <= 4; ++round) {
    Shelf shelf = forgery.bench.open();
    REQUIRE(shelf.info().incarnation == incarnation + round);
    REQUIRE(shelf.info().version == 1 + round);
    REQUIRE_FALSE(shelf.info().recovery.degraded);
    shelf.find("a")->write(pattern(5000, round));
    shelf.persist(round);
    shelf.close();
    REQUIRE((value(*forgery.bench.open(Mode::read).find("a")) == pattern(5000, round)));
  }
}

TEST_CASE("the last incarnation fences writers off, and never wraps or comes twice") {
  struct Row {
    std::uint64_t recorded;
    unsigned opens;  // for writing, that still have a number
  };
  const Row row =
      GENERATE(Row{kMaxCounter - 4, 3}, Row{kMaxCounter - 2, 1}, Row{kMaxCounter - 1, 0},
               Row{kMaxCounter, 0}, Row{kMaxCounter + 1, 0}, Row{kMax, 0}, Row{0, 0});
  CAPTURE(row.recorded);
  const Forgery forgery;
  forgery.set_incarnation(row.recorded);
  for (unsigned open = 1; open <= row.opens; ++open) {
    Shelf shelf = forgery.bench.open();
    REQUIRE(shelf.info().incarnation == row.recorded + open);
    shelf.persist(open);
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    REQUIRE(forgery.error_of_opening(Mode::update) == Errc::corrupt);
  }
  const Shelf reader = forgery.bench.open(Mode::read, Verify::on_open);
  REQUIRE(reader.info().version == 2 + row.opens);
}

TEST_CASE("one incarnation record near its end and the other damaged") {
  const std::uint64_t recorded =
      GENERATE(kMaxCounter - 3, kMaxCounter - 2, kMaxCounter - 1, kMaxCounter);
  const unsigned damaged = GENERATE(0u, 1u);
  CAPTURE(recorded, damaged);
  const Forgery forgery;
  forgery.set_incarnation(recorded);
  write_page(*forgery.bench.medium, format::incarnation_at(damaged), Page{});
  std::uint64_t last = recorded;
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (last + 2 > kMaxCounter) {  // the damaged copy may have held one more: that is skipped
      REQUIRE(forgery.error_of_opening(Mode::update) == Errc::corrupt);
      continue;
    }
    const std::uint64_t given = forgery.bench.open().info().incarnation;
    REQUIRE(given > last);
    REQUIRE(given <= kMaxCounter);
    last = given;
  }
}

TEST_CASE(
    "whichever record of the incarnation is damaged, time after time, no number comes twice") {
  const unsigned harm = GENERATE(range(0U, 81U));  // before each of four opens: none, 0 or 1
  CAPTURE(harm);
  const Forgery forgery;
  std::uint64_t last = forgery.bench.open().info().incarnation;
  for (unsigned rest = harm, open = 0; open < 4; ++open, rest /= 3) {
    const unsigned copy = rest % 3;
    if (copy < kCopies) {
      write_page(*forgery.bench.medium, format::incarnation_at(copy), Page{});
    }
    const ShelfInfo info = forgery.bench.open().info();
    CHECK(info.incarnation > last);
    CHECK(info.incarnation <= last + 2);
    CHECK(info.recovery.repaired_copies == (copy < kCopies ? 1 : 0));
    last = info.incarnation;
  }
}

TEST_CASE("features that this release does not know: ignored, read only, or refused") {
  using format::Superblock;
  enum class Does { write, read, refuse };
  struct Row {
    const char* what;
    std::function<void(Superblock&)> edit;
    Does does;
  };
  constexpr std::uint64_t last = std::uint64_t{1} << 63;
  const std::vector<Row> rows = {
      {"none", [](Superblock&) {}, Does::write},
      {"a compatible one", [](Superblock& s) { s.compat_features = 1; }, Does::write},
      {"the last compatible one", [](Superblock& s) { s.compat_features = last; }, Does::write},
      {"one to read", [](Superblock& s) { s.ro_compat_features = 1; }, Does::read},
      {"the last one to read", [](Superblock& s) { s.ro_compat_features = last; }, Does::read},
      {"an incompatible one", [](Superblock& s) { s.incompat_features = 1; }, Does::refuse},
      {"the last of these", [](Superblock& s) { s.incompat_features = last; }, Does::refuse},
      {"no medium", [](Superblock& s) { s.medium_count = 0; }, Does::refuse},
      {"two media", [](Superblock& s) { s.medium_count = 2; }, Does::refuse},
      {"pages of 8 KiB", [](Superblock& s) { s.page_bytes *= 2; }, Does::refuse},
      {"chunks of 2 MiB", [](Superblock& s) { s.chunk_bytes *= 2; }, Does::refuse},
      {"one slot", [](Superblock& s) { s.slot_count = 1; }, Does::refuse},
      {"17 slots", [](Superblock& s) { s.slot_count = format::kMaxSlots + 1; }, Does::refuse},
  };
  const Mode mode = GENERATE(Mode::read, Mode::update);
  for (const Row& row : rows) {
    CAPTURE(row.what, mode == Mode::read);
    const Forgery forgery;
    forgery.edit_superblock(row.edit);
    const auto all = forgery.bench.medium->view({0, forgery.bench.medium->size()});
    const std::vector<std::byte> before(all.begin(), all.end());
    if (row.does == Does::refuse) {
      REQUIRE(forgery.error_of_opening(mode) == Errc::newer_format);
    } else {
      const bool writes = row.does == Does::write && mode == Mode::update;
      Shelf shelf = forgery.bench.open(mode, Verify::on_open);
      REQUIRE(shelf.info().writable == writes);
      REQUIRE((value(*shelf.find("a")) == pattern(5000, 3)));
      TensorRef a = shelf.find("a").value();
      const std::function<void()> calls[] = {[&] { a.write(pattern(5000, 5)); },
                                             [&] { make(shelf, "c", 10); },
                                             [&] { shelf.erase("b"); }, [&] { shelf.persist(3); },
                                             [&] { shelf.persist_async(4).get(); }};
      for (const auto& call : calls) {
        const auto error = error_of(call);
        REQUIRE(error.has_value() == !writes);
        if (error) REQUIRE(error->code() == Errc::read_only);
      }
      if (writes) continue;
    }
    REQUIRE(same(before, all));  // as it was
  }
}

TEST_CASE("roots whose numbers are beyond reason are refused") {
  struct Row {
    const char* what;
    std::string says;
    std::function<void(Root&)> edit;
    std::uint32_t format_version = format::kFormatVersion;
  };
  const std::string kNone = "no version is whole; version 1: ";  // no root of version 2 is there
  const std::string kPlace = "version 2: a manifest page is said to lie at ";
  const std::string kCounts = "version 2: the manifest contradicts itself: the root counts other";
  const std::string kSpans = "version 2 of the shelf spans ";
  const std::vector<Row> rows = {
      {"capacity at the end", kSpans,
       [](Root& r) { r.capacity_bytes = kMax / kPageBytes * kPageBytes; }},
      {"capacity of 2^63", kSpans, [](Root& r) { r.capacity_bytes = std::uint64_t{1} << 63; }},
      {"capacity a page too large", kSpans, [](Root& r) { r.capacity_bytes += 64 * kMiB; }},
      {"capacity of the headers alone", kPlace,
       [](Root& r) { r.capacity_bytes = format::kHeapAt; }},
      {"capacity of nothing", kNone, [](Root& r) { r.capacity_bytes = 0; }},
      {"capacity with a bit of a page", kNone, [](Root& r) { r.capacity_bytes += 1; }},
      {"leaves without number", kNone, [](Root& r) { r.leaf_count = ~0U; }},
      {"a flag of no meaning", kNone, [](Root& r) { r.flags |= 2; }},
      {"a leaf more than it names", "version 2: a manifest page is said to lie at 0",
       [](Root& r) { ++r.leaf_count; }},
      {"as many leaves as it can name", "version 2: a manifest page is said to lie at 0",
       [](Root& r) { r.leaf_count = format::kRootRefs; }},
      {"a leaf more than it can name", kNone,
       [](Root& r) { r.leaf_count = format::kRootRefs + 1; }},
      {"leaves where directories are", "version 2: a directory of the manifest is another one",
       [](Root& r) { r.flags = 0; }},
      {"171 leaves in one directory", "version 2: a manifest page is said to lie at 0",
       [](Root& r) { r.leaf_count = format::kDirectoryRefs + 1; }, 2},
      {"directories where leaves are", "version 2: the manifest contradicts itself: a leaf is of",
       [](Root& r) {
         r.flags = format::kLeavesInRoot;
         r.leaf_count = 1;
       },
       2},
      {"leaves below two levels of directories",
       "version 2: 28218 manifest pages cannot lie in the shelf",
       [](Root& r) { r.leaf_count = format::kRootRefs * format::kDirectoryRefs + 1; }, 2},
      {"a leaf more than there can be", kNone,
       [](Root& r) { r.leaf_count = format::kMaxLeaves + 1; }},
      {"as many pages as there can be", "version 2: 4796715 manifest pages cannot lie in the shelf",
       [](Root& r) { r.leaf_count = format::kMaxLeaves; }, 2},
      {"a floor beyond the version", kNone, [](Root& r) { ++r.floor; }},
      {"a floor below what is kept", kNone, [](Root& r) { --r.floor; }},
      {"another K", kNone,
       [](Root& r) {
         r.keep = 0;  // of which this is a home as well
         r.in_flight = 0;
       }},
      {"a K of three", kNone,
       [](Root& r) {
         r.keep = 1;
         r.floor = 6;  // whose home is the same with either
         r.word = format::attempt_word(6, r.incarnation, r.sequence);
       }},
      {"nothing in flight", kNone,
       [](Root& r) {
         r.keep = 1;
         r.in_flight = 0;
       }},
      {"tensors without number", kCounts, [](Root& r) { r.tensor_count = kMax; }},
      {"one tensor less", kCounts, [](Root& r) { --r.tensor_count; }},
      {"an id that is yet to come", "tensor 'a' is impossible: its id was never given out",
       [](Root& r) { r.next_tensor_id = 1; }},
      {"the last id is yet to come", "tensor 'b' is impossible: its id was never given out",
       [](Root& r) { r.next_tensor_id = 2; }},
      {"the first id beyond all", kNone, [](Root& r) { r.next_tensor_id = kMaxCounter + 1; }},
      {"ids at the end", kNone, [](Root& r) { r.next_tensor_id = kMax; }},
      {"an incarnation at the end", kNone,
       [](Root& r) {
         r.incarnation = kMax;
         r.word = format::attempt_word(format::word_version(r.word), r.incarnation, r.sequence);
       }},
      {"the first incarnation beyond all", kNone,
       [](Root& r) {
         r.incarnation = kMaxCounter + 1;
         r.word = format::attempt_word(format::word_version(r.word), r.incarnation, r.sequence);
       }},
      {"an incarnation that is not the word's", kNone, [](Root& r) { ++r.incarnation; }},
      {"a sequence that is not the word's", kNone, [](Root& r) { ++r.sequence; }},
      {"a page at the end", kPlace, [](Root& r) { r.pages[0].at[0] = kMax - 4095; }},
      {"a page just beyond", kPlace, [](Root& r) { r.pages[0].at[1] = r.capacity_bytes; }},
      {"a page between two pages", kPlace, [](Root& r) { r.pages[0].at[1] += 8; }},
      {"a page just before the heap", "a manifest page is said to lie at 258048",
       [](Root& r) { r.pages[0].at[1] = format::kHeapAt - kPageBytes; }},
      {"a page in the header", "version 2: a manifest page is said to lie at 0",
       [](Root& r) { r.pages[0].at[1] = 0; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Forgery forgery(0, Placement::whole, row.format_version);
    forgery.edit_root(row.edit);
    for (const Mode mode : {Mode::read, Mode::update}) {
      const auto error = forgery.refusal(mode);
      REQUIRE(error);
      CAPTURE(error->what());
      CHECK(error->code() == (row.says.ends_with("spans ") ? Errc::truncated : Errc::corrupt));
      CHECK(contains(error->what(), row.says));
    }
  }
}

TEST_CASE("a mark whose numbers are beyond reason is none, and one at their end counts") {
  using format::PreparedMark;
  struct Row {
    const char* what;
    void (*edit)(PreparedMark&);
    bool counts = false;
  };
  const std::vector<Row> rows = {
      {"another format", [](PreparedMark& m) { m.format_version = 3; }},
      {"no counter", [](PreparedMark& m) { m.counter = 0; }},
      {"the last counter", [](PreparedMark& m) { m.counter = kMaxCounter; }, true},
      {"a counter beyond", [](PreparedMark& m) { m.counter = kMaxCounter + 1; }},
      {"the longest id", [](PreparedMark& m) { m.id_bytes = format::kMaxIdBytes; }, true},
      {"an id beyond its place", [](PreparedMark& m) { m.id_bytes = format::kMaxIdBytes + 1; }},
      {"the last version", [](PreparedMark& m) { m.version = kMaxVersion - 1; }, true},
      {"the version of unused homes", [](PreparedMark& m) { m.version = kMaxVersion; }},
      {"the last incarnation", [](PreparedMark& m) { m.incarnation = kMaxCounter - 2; }, true},
      {"an incarnation beyond", [](PreparedMark& m) { m.incarnation = kMaxCounter + 1; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Forgery forgery;
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      auto mark = format::empty_mark(5);
      row.edit(mark);
      write_page(*forgery.bench.medium, format::mark_at(copy),
                 format::encode_mark(mark, forgery.seeds, copy));
    }
    CHECK(forgery.bench.open(Mode::read).info().version == 2);
    const auto error = forgery.refusal(Mode::update);
    REQUIRE(error.has_value() == !row.counts);
    if (row.counts) continue;
    CHECK(error->code() == Errc::corrupt);
    CHECK(contains(error->what(), "both copies of the mark of a prepared attempt are damaged"));
    CHECK(contains(error->remedy(), "mode=\"r\""));
    CHECK(contains(error->remedy(), "repair()"));
  }
}
