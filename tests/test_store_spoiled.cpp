// Tensors whose value of the same attempt was overwritten by an assignment that was not done (I13).
#include <functional>

#include "assigned_shelf.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a tensor whose value of the same attempt was overwritten is spoiled") {
  Rig rig;
  TensorRef other = make(rig.shelf, "other", 100);
  other.write(pattern(100, 1));
  const bool whole_before = GENERATE(true, false);
  if (whole_before) rig.w.write(pattern(kKeptBytes, 2));
  if (!whole_before) rig.w.write(pattern(30, 2), 2 * kMiB - 10);
  assign_and_let_go(rig.w, pattern(40, 3), 2 * kMiB - 5);

  const auto refused = [&](const std::function<void()>& call) {
    const auto error = error_of(call);
    return error && error->code() == Errc::spoiled && contains(error->what(), "'w'") &&
           contains(error->remedy(), "discard()");
  };
  CHECK(code_name(Errc::spoiled) == "tensor_spoiled");
  CHECK(refused([&] { rig.shelf.persist(2); }));
  CHECK(refused([&] { rig.shelf.persist_async(2); }));
  CHECK(refused([&] { value(rig.w); }));
  CHECK(refused([&] { rig.w.lease(); }));
  CHECK((value(rig.w, true) == rig.first));
  CHECK((value(other) == pattern(100, 1)));
  rig.w.write(pattern(kMiB, 4));  // not all of it
  assign_and_let_go(rig.w, pattern(kKeptBytes, 4));
  CHECK(refused([&] { rig.shelf.persist(2); }));
  CHECK(rig.shelf.version() == 1);

  SECTION("until it is assigned whole") {
    const auto last = pattern(kKeptBytes, 5);
    rig.w.write(last);
    CHECK((value(rig.w) == last));
    rig.shelf.persist(2);
    CHECK((value(other, true) == pattern(100, 1)));
    rig.check_reopened(last);
  }
  SECTION("until it is assigned whole, in pieces of any order") {
    const auto last = pattern(kKeptBytes, 5);
    {
      Assignment assignment = rig.w.assign();
      const std::span all(last);
      assignment.write(all.subspan(kMiB + 3), kMiB + 3);
      assignment.write(all.first(1000));
      assignment.write(all.subspan(900, kMiB), 900);
      CHECK(refused([&] { value(rig.w); }));
      assignment.done();
    }
    CHECK((value(rig.w) == last));
    rig.shelf.persist(2);
    rig.check_reopened(last);
  }
  SECTION("unless a byte is missing") {
    const auto last = pattern(kKeptBytes, 5);
    {
      Assignment assignment = rig.w.assign();
      assignment.write(std::span(last).first(kMiB));
      assignment.write(std::span(last).subspan(kMiB + 1), kMiB + 1);
      assignment.done();
    }
    CHECK(refused([&] { rig.shelf.persist(2); }));
  }
  SECTION("until it is discarded") {
    rig.shelf.discard();
    CHECK((value(rig.w) == rig.first));
    const auto part = pattern(40, 6);
    rig.w.write(part, 2 * kMiB - 5);
    rig.shelf.persist(2);
    put(rig.first, part, 2 * kMiB - 5);
    rig.check_reopened(rig.first);
  }
  SECTION("until it is erased") {
    rig.shelf.erase("w");
    rig.shelf.persist(2);
    CHECK(rig.shelf.names() == std::vector<std::string>{"other"});
  }
  SECTION("until it is replaced") {
    TensorRef made = rig.shelf.replace("w", DType::uint8, std::vector<std::int64_t>{10});
    CHECK((value(made) == std::vector<std::byte>(10)));
    rig.shelf.persist(2);
  }
}

TEST_CASE("a transaction over a spoiled tensor can be committed when it is assigned whole") {
  Rig rig;
  Transaction transaction = rig.shelf.transaction();
  rig.w.write(pattern(kKeptBytes, 2));
  assign_and_let_go(rig.w, pattern(10, 3));
  CHECK(code_of([&] { transaction.commit(2); }) == Errc::spoiled);
  const auto last = pattern(kKeptBytes, 4);
  rig.w.write(last);
  CHECK(transaction.commit(2).version == 2);
  CHECK((value(rig.w, true) == last));
}
