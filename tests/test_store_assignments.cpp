// Assignments of several writes: in a version whole or not at all (I13), whoever commits, and
// undone where they are not done.
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "asleep.hpp"
#include "assigned_shelf.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// In pieces that end where no chunk does.
void write_in_pieces(Assignment& assignment, const std::vector<std::byte>& bytes) {
  constexpr std::size_t kPiece = 700'001;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    assignment.write(std::span(bytes).subspan(at, std::min(kPiece, bytes.size() - at)), at);
  }
}

}  // namespace

TEST_CASE("several writes are one assignment") {
  Rig rig;
  const auto second = pattern(kKeptBytes, 2);
  {
    Assignment assignment = rig.w.assign();
    write_in_pieces(assignment, second);
    assignment.done();
    CHECK(code_of([&] { assignment.write(second); }) == Errc::unsupported);
    CHECK(code_of([&] { assignment.done(); }) == Errc::unsupported);
  }
  CHECK((value(rig.w) == second));
  CHECK(rig.shelf.persist(2).data_bytes == kKeptBytes);
  rig.check_reopened(second);
}

// Calls it in another thread when the assignment is half written.
void call_within(TensorRef& tensor, const std::vector<std::byte>& bytes, bool done,
                 const std::function<void()>& call) {
  constexpr std::size_t kHalf = kMiB + 5;
  std::optional<Waiter> other;
  bool waits = false;
  {
    Assignment assignment = tensor.assign();
    assignment.write(std::span(bytes).first(kHalf));
    other.emplace(call);
    waits = other->waits();
    assignment.write(std::span(bytes).subspan(kHalf), kHalf);
    if (done) assignment.done();
  }
  other->join();
  CHECK(waits);
}

TEST_CASE("whatever ends an attempt waits for the end of an assignment") {
  Rig rig;
  const auto second = pattern(kKeptBytes, 2);
  const bool done = GENERATE(true, false);
  const auto& assigned = done ? second : rig.first;
  SECTION("persist") {
    call_within(rig.w, second, done, [&] { rig.shelf.persist(2); });
    CHECK((value(rig.w, true) == assigned));
  }
  SECTION("persist_async") {
    call_within(rig.w, second, done, [&] { rig.shelf.persist_async(2); });
    rig.shelf.close();
    rig.check_reopened(assigned);
  }
  SECTION("discard") {
    call_within(rig.w, second, done, [&] { rig.shelf.discard(); });
    CHECK((value(rig.w) == rig.first));
  }
  SECTION("erase") {
    call_within(rig.w, second, done, [&] { rig.shelf.erase("w"); });
    CHECK(rig.shelf.names().empty());
  }
  SECTION("create") {
    call_within(rig.w, second, done, [&] { make(rig.shelf, "other", 100); });
    CHECK((value(rig.w) == assigned));
  }
  SECTION("close") {
    call_within(rig.w, second, done, [&] { rig.shelf.close(); });
    rig.check_reopened(rig.first);
  }
  SECTION("rollback") {
    call_within(rig.w, second, false, [&] { rig.shelf.rollback(1); });
    CHECK((value(rig.w, true) == rig.first));
    CHECK(rig.shelf.version() == 2);
  }
  SECTION("another assignment") {
    const auto third = pattern(kKeptBytes, 3);
    call_within(rig.w, second, done, [&] {
      Assignment assignment = rig.w.assign();
      write_in_pieces(assignment, third);
      assignment.done();
    });
    rig.shelf.persist(2);
    rig.check_reopened(third);
  }
}

TEST_CASE("what is read within an assignment is what is written so far, and waits for nothing") {
  Rig rig;
  const auto part = pattern(5000, 2);
  auto expected = rig.first;
  put(expected, part, kMiB - 100);
  Assignment assignment = rig.w.assign();
  assignment.write(part, kMiB - 100);
  CHECK((value(rig.w) == expected));
  bool same = false;
  std::thread([&] { same = value(rig.w) == expected && value(rig.w, true) == rig.first; }).join();
  CHECK(same);
  CHECK(rig.shelf.verify().damage.empty());
}

TEST_CASE("assignments of several threads to one tensor do not mix") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  const TensorRef w = make(shelf, "w", 5000);
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([thread, tensor = w]() mutable {
      for (unsigned round = 0; round < 200; ++round) {
        const std::vector<std::byte> bytes(50, std::byte(thread * 60 + round % 60 + 1));
        Assignment assignment = tensor.assign();
        for (std::size_t at = 0; at < 5000; at += 50) assignment.write(bytes, at);
        if (round % 3 != 1) assignment.done();
      }
    });
  }
  std::size_t mixed = 0;
  for (unsigned version = 1; version <= 40; ++version) {
    try {
      shelf.persist(version);
    } catch (const Error& error) {
      if (error.code() != Errc::spoiled) throw;
      continue;
    }
    const auto bytes = value(w, true);
    mixed += bytes != std::vector<std::byte>(5000, bytes[0]);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(mixed == 0);
}

// ---- undone -------------------------------------------------------------------------------------

TEST_CASE("an assignment that is let go leaves the tensor as it was") {
  Rig rig;
  const bool from = GENERATE(0, 1) != 0;  // that something of the attempt is there before
  auto expected = rig.first;
  if (from) {
    const auto part = pattern(300, 5);
    rig.w.write(part, 17);
    put(expected, part, 17);
  }
  const auto [offset, size] = GENERATE(table<std::uint64_t, std::size_t>(
      {{kMiB, kMiB}, {kMiB + 100, 50}, {kMiB, kMiB + 1000}, {2 * kMiB - 10, 20}}));
  for (unsigned round = 0; round < (kSanitized ? 1 : 3); ++round) {
    assign_and_let_go(rig.w, pattern(size, 7 + round), offset);
    CHECK(rig.w.info().dirty == from);
    CHECK((value(rig.w) == expected));
    CHECK((value(rig.w, true) == rig.first));
  }
  const bool assigned_again = GENERATE(true, false);
  if (assigned_again) {
    const auto part = pattern(70, 6);
    rig.w.write(part, 2 * kMiB - 30);
    put(expected, part, 2 * kMiB - 30);
  }
  const Commit commit = rig.shelf.persist(2);
  CHECK(commit.data_bytes == 300U * from + 70U * assigned_again);
  CHECK((value(rig.w, true) == expected));
  rig.check_reopened(expected);
}

// Chunks that it wrote, with others between them that it did not.
TEST_CASE("an assignment that is let go takes nothing that lies between what it wrote") {
  Rig rig;
  auto expected = rig.first;
  const auto between = pattern(kMiB, 5);
  rig.w.write(between, kMiB);
  put(expected, between, kMiB);
  {
    Assignment assignment = rig.w.assign();
    assignment.write(pattern(1000, 6), 2 * kMiB);
    assignment.write(pattern(kMiB, 7));
  }
  CHECK((value(rig.w) == expected));
  CHECK(rig.shelf.persist(2).data_bytes == kMiB);
  CHECK((value(rig.w, true) == expected));
  rig.check_reopened(expected);
}

TEST_CASE("where nothing else was changed, nothing is changed") {
  Rig rig;
  assign_and_let_go(rig.w, rig.first);
  rig.shelf.transaction().discard();
  assign_and_let_go(rig.w, {});
  CHECK_FALSE(rig.w.info().dirty);
  rig.shelf.transaction().discard();
  CHECK(rig.shelf.rollback(1).version == 2);
  CHECK((value(rig.w, true) == rig.first));
}

TEST_CASE("a new tensor whose assignment is let go is of zeros") {
  Rig rig;
  TensorRef made = make(rig.shelf, "made", kKeptBytes);
  const std::vector<std::byte> zeros(kKeptBytes);
  assign_and_let_go(made, pattern(kKeptBytes, 2));
  CHECK((value(made) == zeros));
  rig.shelf.persist(2);
  CHECK((value(made, true) == zeros));
  rig.check_reopened(rig.first);
}

TEST_CASE("an exception within an assignment undoes it, and so does a write that throws") {
  Rig rig;
  const auto fails = [&] {
    Assignment assignment = rig.w.assign();
    assignment.write(pattern(kMiB, 2));
    CHECK(code_of([&] { assignment.write(pattern(10, 3), kKeptBytes); }) == Errc::layout);
    CHECK(code_of([&] { assignment.write(pattern(10, 3)); }) == Errc::unsupported);
    assignment.done();
  };
  CHECK(code_of(fails) == Errc::unsupported);
  CHECK_FALSE(rig.w.info().dirty);
  CHECK((value(rig.w) == rig.first));
  rig.shelf.persist(2);
  rig.check_reopened(rig.first);
}

TEST_CASE("what was let go is not taken for a later value of its slot") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  w.write(pattern(kKeptBytes, 1));
  shelf.persist(1);
  std::optional<Lease> lease;
  {
    Assignment assignment = w.assign();
    assignment.write(pattern(kKeptBytes, 2));
    lease = w.lease();  // so that version 2 takes another slot
    CHECK(lease->in_place());
  }
  auto expected = pattern(kKeptBytes, 3);
  w.write(expected);
  shelf.persist(2);
  CHECK((std::equal(lease->bytes().begin(), lease->bytes().end(), pattern(kKeptBytes, 2).begin())));
  lease.reset();
  for (unsigned version = 3; version <= 6; ++version) {
    const auto part = pattern(10, version);
    w.write(part, version);
    put(expected, part, version);
    shelf.persist(version);
    CHECK((value(w, true) == expected));
  }
}

TEST_CASE("a lease of what was let go is not written over by a commit") {
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  std::optional<Lease> lease;
  {
    Assignment assignment = w.assign();
    assignment.write(pattern(kKeptBytes, 2));
    lease = w.lease();
  }
  CHECK(code_of([&] { shelf.persist(1); }) == Errc::leased);
  CHECK((std::equal(lease->bytes().begin(), lease->bytes().end(), pattern(kKeptBytes, 2).begin())));
  lease.reset();
  shelf.persist(1);
  CHECK((value(w, true) == std::vector<std::byte>(kKeptBytes)));
}

// ---- refused ------------------------------------------------------------------------------------

TEST_CASE("what would wait for an assignment of its own thread is refused") {
  Rig rig;
  TensorRef other = make(rig.shelf, "other", 100);
  rig.shelf.persist(2);
  std::optional<Transaction> transaction;
  if (GENERATE(true, false)) transaction.emplace(rig.shelf.transaction());
  const auto second = pattern(kKeptBytes, 2);
  {
    Assignment assignment = rig.w.assign();
    assignment.write(second);
    const std::function<void()> calls[] = {
        [&] { rig.shelf.persist(3); },
        [&] { rig.shelf.persist_async(3); },
        [&] { rig.shelf.prepare(3); },
        [&] { rig.shelf.resolve(Decision::commit); },
        [&] { rig.shelf.resolve(Decision::abandon); },
        [&] { rig.shelf.discard(); },
        [&] { rig.shelf.rollback(1); },
        [&] { return rig.shelf.transaction(); },
        [&] { make(rig.shelf, "made", 100); },
        [&] { rig.shelf.replace("other", DType::uint8, std::vector<std::int64_t>{10}); },
        [&] { rig.shelf.erase("other"); },
        [&] { rig.shelf.close(); },
        [&] { rig.w.write(second); },
        [&] { other.write(pattern(100, 2)); },
        [&] { static_cast<void>(other.assign()); },
    };
    for (const auto& call : calls) {
      const auto error = error_of(call);
      REQUIRE(error);
      CHECK(error->code() == Errc::unsupported);
      CHECK(contains(error->what(), "from inside an assignment to 'w' of the same thread"));
    }
    if (transaction) {
      CHECK(code_of([&] { transaction->commit(3); }) == Errc::unsupported);
      CHECK(code_of([&] { transaction->discard(); }) == Errc::unsupported);
    }
    Rig elsewhere({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
    assign_and_let_go(elsewhere.w, pattern(100, 2));  // another shelf is none of its concern
    elsewhere.shelf.persist(3);
    assignment.done();
  }
  CHECK((transaction ? transaction->commit(3) : rig.shelf.persist(3)).version == 3);
  CHECK((value(rig.w, true) == second));
}

TEST_CASE("a transaction that goes within an assignment takes the shelf's commits with it") {
  Rig rig;
  std::optional<Transaction> transaction(rig.shelf.transaction());
  {
    Assignment assignment = rig.w.assign();
    assignment.write(pattern(kKeptBytes, 2));
    transaction.reset();
  }
  CHECK(code_of([&] { rig.shelf.persist(2); }) == Errc::failed);
  rig.check_reopened(rig.first);
}

TEST_CASE("has_uncommitted() tells what closing would drop, and nothing else") {
  Rig rig;
  const auto second = pattern(kKeptBytes, 2);
  CHECK_FALSE(rig.shelf.has_uncommitted());
  {
    Assignment undone = rig.w.assign();
    undone.write(second);
    CHECK(code_of([&] { static_cast<void>(rig.shelf.has_uncommitted()); }) == Errc::unsupported);
  }
  CHECK_FALSE(rig.shelf.has_uncommitted());
  for (const bool discards : {true, false}) {
    for (const auto& change : std::vector<std::function<void()>>{
             [&] { rig.w.write(second); }, [&] { make(rig.shelf, "new", 5); },
             [&] { rig.shelf.erase(discards ? "w" : "new"); }}) {
      change();
      CHECK(rig.shelf.has_uncommitted());
      discards ? rig.shelf.discard() : static_cast<void>(rig.shelf.persist_async());
      CHECK_FALSE(rig.shelf.has_uncommitted());
    }
  }
}
