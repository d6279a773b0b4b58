// Manifests that nobody wrote by accident: every checksum holds, and a record, a page or a place is
// beyond reason, or contradicts another. The version is not shown, and the error says why.
#include <array>
#include <limits>

#include "forgery.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using format::kMaxVersion;
using format::Page;
using format::PageRef;
using format::Root;

namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void add(std::byte* at, std::uint64_t more) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  put(at, value + more);
}

const std::string kOutside = "the chunk records of tensor 'a' lie outside";
const std::string kNotTheBytes = "tensor 'a' has a dtype and shape that do not make";
const std::string kNoSuchId = "the record of tensor 'a' is impossible: its id was never given out";
const std::string kTakenId = "the record of tensor 'b' is impossible: another tensor has its id";
const std::string kImpossible =
    "the record of tensor 'a' is impossible: what it says of a chunk cannot be";
const std::string kCounts = "the record of tensor 1 has impossible counts";
const std::string kClaimed = "two things claim the bytes at";

// By any open, as damage of version 2 with that reason; salvage is named where it shows version 1.
void check_refused(const Forgery& forgery, const std::string& says) {
  for (const Mode mode : {Mode::read, Mode::update}) {
    const auto error = forgery.refusal(mode);
    REQUIRE(error);
    CAPTURE(error->what());
    CHECK(error->code() == Errc::corrupt);
    CHECK(error->os_error() == 0);
    const bool salvageable = contains(error->what(), "version 1: chunk 0 of 'a' v1 slot A fails");
    CHECK(contains(error->remedy(), "Restore the file from a copy"));
    CHECK(contains(error->remedy(), "salvage=True") == salvageable);
    CHECK(contains(error->what(), "no version is whole; version 2: "));
    CHECK(contains(error->what(), says));
  }
}

}  // namespace

TEST_CASE("records whose numbers are beyond reason are refused") {
  using format::TensorRecord;
  struct Row {
    const char* what;
    std::string says;
    std::function<void(TensorRecord&, std::byte*)> edit;  // and what follows it: slots, shape
  };
  constexpr std::uint64_t shape_at = kSlots * sizeof(format::SlotRecord);
  constexpr std::uint64_t last_slot_at = shape_at - sizeof(format::SlotRecord);
  constexpr std::uint64_t medium_at = offsetof(format::SlotRecord, medium);
  const auto resize = [](TensorRecord& record, std::byte* rest, std::uint64_t size) {
    record.size_bytes = size;
    put(rest + shape_at, size);
  };
  const std::vector<Row> rows = {
      {"a size of 2^62", kOutside,
       [&](TensorRecord& r, std::byte* rest) { resize(r, rest, std::uint64_t{1} << 62); }},
      {"a size of 2^64 - 1", kNotTheBytes,
       [&](TensorRecord& r, std::byte* rest) { resize(r, rest, kMax); }},
      {"a size of 2^63 - 1", kNotTheBytes,
       [&](TensorRecord& r, std::byte* rest) { resize(r, rest, kMax / 2); }},
      {"a size of 1 TiB", kOutside,
       [&](TensorRecord& r, std::byte* rest) { resize(r, rest, std::uint64_t{1} << 40); }},
      {"a size that its shape does not make", kNotTheBytes,
       [](TensorRecord& r, std::byte*) { ++r.size_bytes; }},
      {"cells at the end", kOutside, [](TensorRecord& r, std::byte*) { r.first_cell = kMax; }},
      {"cells that end beyond", kOutside,
       [](TensorRecord& r, std::byte*) { r.first_cell = kMax - 1; }},
      {"more cells than others leave of them", "a chunk record belongs to two tensors",
       [&](TensorRecord& r, std::byte* rest) { resize(r, rest, std::uint64_t{254} << 20); }},
      {"cells of another", "two tensors claim the chunk record 1",
       [](TensorRecord& r, std::byte*) { r.first_cell += 1; }},
      {"an id at the end", kNoSuchId, [](TensorRecord& r, std::byte*) { r.tensor_id = kMax; }},
      {"the id of another", kTakenId, [](TensorRecord& r, std::byte*) { r.tensor_id += 1; }},
      {"a slot at the end", "tensor 1 names a place that no medium has",
       [](TensorRecord&, std::byte* rest) { put(rest, kMax - 4095); }},
      {"a slot between two pages", kClaimed,
       [](TensorRecord&, std::byte* rest) { add(rest, 512); }},
      {"a slot in the header", kClaimed,
       [](TensorRecord&, std::byte* rest) { put(rest, std::uint64_t{0}); }},
      {"a slot beside the pages", "tensor 1 names a place that no medium has",
       [](TensorRecord&, std::byte* rest) { put(rest, kMax); }},
      {"the last slot in the header", kClaimed,
       [](TensorRecord&, std::byte* rest) { put(rest + last_slot_at, std::uint64_t{0}); }},
      {"the first slot on another medium", "two things claim the bytes at",
       [](TensorRecord&, std::byte* rest) { put(rest + medium_at, 1U); }},
      {"the last slot on another medium", "of medium 1, or they lie beyond the 0 bytes",
       [](TensorRecord&, std::byte* rest) { put(rest + last_slot_at + medium_at, 1U); }},
      {"the last slot on a medium without end", "tensor 1 names a place that no medium has",
       [](TensorRecord&, std::byte* rest) { put(rest + last_slot_at + medium_at, ~0U); }},
      {"dimensions without number", kCounts,
       [](TensorRecord& r, std::byte*) { r.dim_count = 0xffff; }},
      {"a name without end", kCounts, [](TensorRecord& r, std::byte*) { r.name_bytes = 0xffff; }},
      {"slots without number", kCounts, [](TensorRecord& r, std::byte*) { r.slot_count = 0xffff; }},
      {"a record without end", kCounts, [](TensorRecord& r, std::byte*) { r.record_bytes = ~0U; }},
      {"a record of no bytes", kCounts, [](TensorRecord& r, std::byte*) { r.record_bytes = 0; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Forgery forgery;
    forgery.edit_record(row.edit);
    check_refused(forgery, row.says);
  }
}

namespace {

void set_shape(format::TensorLayout& layout, const std::vector<std::int64_t>& shape) {
  layout.shape.assign(shape.begin(), shape.end());
}

}  // namespace

TEST_CASE("a record that no writer would make is refused, though all of it is there") {
  struct Row {
    const char* what;
    std::string says;
    std::function<void(format::TensorLayout&)> edit;
  };
  using Layout = format::TensorLayout;
  const std::vector<Row> rows = {
      {"one slot less", kCounts, [](Layout& l) { l.slot_at.pop_back(); }},
      {"one slot more", kCounts, [](Layout& l) { l.slot_at.push_back(l.slot_at[0] + kMiB); }},
      {"one dimension too many", kCounts,
       [](Layout& l) { set_shape(l, std::vector<std::int64_t>(kMaxDims + 1, 1)); }},
      {"a negative dimension", kNotTheBytes,
       [](Layout& l) {
         set_shape(l, {-1, -5000});
       }},
      {"no such dtype", kNotTheBytes, [](Layout& l) { l.dtype = static_cast<DType>(200); }},
      {"no name", "the name of tensor 1 is empty", [](Layout& l) { l.name = ""; }},
      {"a name that is too long", "the name of tensor 1 is longer than 1024 bytes",
       [](Layout& l) { l.name = std::string(1025, 'a'); }},
      {"a name with a NUL", "the name of tensor 1 contains a NUL",
       [](Layout& l) { l.name = std::string("a\0b", 3); }},
      {"a name that is no text", "the name of tensor 1 is not valid UTF-8",
       [](Layout& l) { l.name = "a\xFF"; }},
      {"the name of another", "the record of tensor 'b' is impossible: two tensors have its name",
       [](Layout& l) { l.name = "b"; }},
      {"placed in no way", "tensor 1 is placed in no way that there is",
       [](Layout& l) { l.placement = static_cast<Placement>(0); }},
      {"placed in another way", "tensor 1 is placed in no way that there is",
       [](Layout& l) { l.placement = static_cast<Placement>(3); }},
      {"two slots in one place", kClaimed, [](Layout& l) { l.slot_at[1] = l.slot_at[0]; }},
      {"a slot over a slot", kClaimed, [](Layout& l) { l.slot_at[1] = l.slot_at[0] + kPageBytes; }},
      {"a slot over a copy of the header", kClaimed,
       [](Layout& l) { l.slot_at[1] = format::kMediumHeapAt; }},
      {"a slot right in front of the heap", kClaimed,
       [](Layout& l) { l.slot_at[1] = format::kHeapAt - 2 * kPageBytes; }},
      {"a slot beyond the shelf", kClaimed, [](Layout& l) { l.slot_at[1] = 64 * kMiB; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Forgery forgery;
    forgery.edit_layouts([&](auto& layouts) { row.edit(layouts[0]); });
    check_refused(forgery, row.says);
  }
  const Forgery forgery;  // the forger's hand leaves nothing else behind
  forgery.edit_layouts([](auto&) {});
  CHECK((value(*forgery.bench.open().find("a")) == pattern(5000, 3)));
}

TEST_CASE("a page of records that ends where it cannot is refused") {
  const std::string length = "a page of tensor records has an impossible length";
  struct Row {
    std::uint32_t ends;
    std::string says;
  };
  const std::uint32_t record = 88;
  const std::uint32_t head = sizeof(format::PageHead);
  const auto row = GENERATE_COPY(  //
      Row{0, length}, Row{head - 1, length}, Row{head, "the root counts other tensors"},
      Row{head + 8, "a tensor record is cut off"}, Row{head + record - 8, kCounts},
      Row{head + record, "the root counts other tensors"},
      Row{head + record + 8, "a tensor record is cut off"},
      Row{head + 2 * record - 8, "the record of tensor 2 has impossible counts"},
      Row{head + 2 * record + 8, "a tensor record is cut off"},
      Row{kPageBytes, "the record of tensor 0 has impossible counts"}, Row{kPageBytes + 1, length},
      Row{~0U, length});
  CAPTURE(row.ends);
  const Forgery forgery;
  forgery.edit_leaf(format::PageKind::records, [&](Page& page) {
    auto there = format::page_head(page);
    REQUIRE(there.used_bytes == head + 2 * record);
    there.used_bytes = row.ends;  // all else of it is as it was
    format::store(page, there);
  });
  check_refused(forgery, row.says);
}

TEST_CASE("a directory that says it is another is refused") {
  const auto edit = GENERATE(
      +[](format::PageHead& head) { ++head.index; }, +[](format::PageHead& head) { ++head.level; },
      +[](format::PageHead& head) { --head.level; },
      +[](format::PageHead& head) { head.kind = format::PageKind::cells; });
  const Forgery forgery(0, Placement::whole, 2);
  forgery.edit_directory([&](Page& page) {
    auto head = format::page_head(page);
    edit(head);
    format::store(page, head);
  });
  check_refused(forgery, "a directory of the manifest is another one");
}

TEST_CASE("cells whose numbers are beyond reason are refused") {
  using format::chunk_state;
  using format::ChunkKind;
  struct Row {
    unsigned cell;  // 0 of 'a', 1 and 2 of 'b', which lies whole in one slot; the rest is nobody's
    std::uint64_t state;
    std::string says;
    bool by_chunk_too = true;
  };
  constexpr auto stored = ChunkKind::stored;
  const std::string second =
      "the record of tensor 'b' is impossible: what it says of a chunk cannot be";
  const std::string stray = "a chunk record belongs to no tensor, or to two";
  const auto row = GENERATE_COPY(
      Row{0, chunk_state(stored, 0, 3), kImpossible},  // from the future
      Row{0, chunk_state(stored, 1, 3), kImpossible},
      Row{0, chunk_state(stored, 0, kMaxVersion), kImpossible},
      Row{0, chunk_state(stored, 2, 2), kImpossible},
      Row{0, chunk_state(stored, 255, 2), kImpossible},
      Row{0, chunk_state(ChunkKind::none, 0, 2), kImpossible},
      Row{0, chunk_state(ChunkKind::zeros, 0, 2), kImpossible, false},
      Row{0, chunk_state(static_cast<ChunkKind>(3), 0, 2), kImpossible},
      Row{0, chunk_state(static_cast<ChunkKind>(255), 0, 2), kImpossible},
      Row{0, chunk_state(stored, 0, 2) | 1ULL << 56, kImpossible},
      Row{0, chunk_state(stored, 0, 2) | 1ULL << 63, kImpossible},
      Row{1, chunk_state(stored, 1, 1), second, false},  // the other is in slot 0
      Row{2, chunk_state(stored, 1, 1), second, false}, Row{2, chunk_state(stored, 0, 3), second},
      Row{3, chunk_state(stored, 0, 2), stray}, Row{254, chunk_state(stored, 0, 2), stray});
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  CAPTURE(row.cell, row.state, static_cast<int>(placement));
  const Forgery forgery(0, placement);
  forgery.edit_leaf(format::PageKind::cells, [&](Page& page) {
    format::set_cell(page, row.cell, {0, row.state});
  });
  if (placement == Placement::by_chunk && !row.by_chunk_too) {
    CHECK_FALSE(forgery.refusal(Mode::read));
  } else {
    check_refused(forgery, row.says);
  }
}

TEST_CASE("a page that says it is another of its kind is refused") {
  struct Row {
    format::PageKind kind;
    unsigned tensors, page, says;
  };
  constexpr auto records = format::PageKind::records;
  constexpr auto cells = format::PageKind::cells;
  const Row row = GENERATE(Row{records, 0, 0, 1}, Row{cells, 0, 0, 1},      // number 0 is missing
                           Row{records, 60, 1, 0}, Row{cells, 300, 1, 0});  // is there twice
  CAPTURE(static_cast<unsigned>(row.kind), row.page);
  const Forgery forgery;
  if (row.tensors > 0) {  // on two pages of that kind
    Shelf shelf = forgery.bench.open();
    for (unsigned i = 0; i < row.tensors; ++i) make(shelf, "t" + std::to_string(i), 0);
    shelf.find("a")->write(pattern(5000, 5));
    shelf.persist(3);
    shelf.find("a")->write(pattern(5000, 6));  // and dropped: version 2 is not whole any more
  }
  REQUIRE_FALSE(forgery.error_of_opening(Mode::read));
  const auto renumber = [&](Page& page) {
    auto head = format::page_head(page);
    head.index = row.says;
    format::store(page, head);
  };
  forgery.edit_leaf(row.kind, renumber, row.page);
  REQUIRE(forgery.error_of_opening(Mode::read) == Errc::corrupt);
  REQUIRE(forgery.error_of_opening(Mode::update) == Errc::corrupt);
}

// What versions share is said by each of them for itself.
TEST_CASE("a version that says something else of a tensor than the newest does is dropped") {
  using Layouts = std::vector<format::TensorLayout>;
  struct Row {
    const char* what;
    void (*edit)(Layouts&);  // of version 4, in which a is the first tensor and c the third
  };                         // its name may be another, and so may the leaf that says all this
  const std::vector<Row> rows = {
      {"dtype", [](Layouts& l) { l[0].dtype = DType::int8; }},
      {"size", [](Layouts& l) { l[0].shape[0] = static_cast<std::int64_t>(--l[0].size_bytes); }},
      {"shape",
       [](Layouts& l) {
         set_shape(l[0], {50, 100});
       }},
      {"slots", [](Layouts& l) { std::swap(l[0].slot_at[0], l[0].slot_at[1]); }},
      {"placement", [](Layouts& l) { l[0].placement = Placement::by_chunk; }},
      {"cells", [](Layouts& l) { std::swap(l[0].first_cell, l[2].first_cell); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Forgery forgery(1);
    {
      Shelf shelf = forgery.bench.open();
      make(shelf, "c", 100);
      shelf.persist(3);
      make(shelf, "d", 100);  // so that version 4 shares no leaf with version 3
      shelf.persist(4);
      REQUIRE(shelf.versions().size() == 2);
    }
    forgery.edit_layouts(row.edit);
    for (const Mode mode : {Mode::read, Mode::update}) {
      const Shelf shelf = forgery.bench.open(mode, Verify::never);
      const Recovery recovery = shelf.info().recovery;
      CHECK(recovery.version == 4);
      CHECK_FALSE(recovery.degraded);
      CHECK(recovery.dropped == std::vector<std::uint64_t>{3});
      REQUIRE(recovery.notes.size() == 1);
      CHECK(contains(recovery.notes[0],
                     "version 3 was retained and cannot be loaded: the record of tensor"));
      CHECK(shelf.versions().size() == 1);
    }
  }
}
