// Going back to a version that is kept: a commit of its own, which copies nothing.
#include <functional>

#include "kept_versions.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a rollback is a version of its own, and copies nothing") {
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  const Kept kept({.keep = 3, .in_flight = 1, .mapped = true, .placement = placement});
  Shelf shelf = kept.open();
  TensorRef w = make(shelf, "w", kKeptBytes);
  TensorRef gone = make(shelf, "gone", 5000);
  w.write(pattern(kKeptBytes, 1));
  gone.write(pattern(5000, 1));
  shelf.persist(1);
  w.write(pattern(kKeptBytes, 2));
  shelf.erase("gone");
  TensorRef late = make(shelf, "late", 3000);
  late.write(pattern(3000, 2));
  make(shelf, "later", 7000);  // so that the versions differ in how much they have
  shelf.persist(2);
  w.write(pattern(10, 3), kMiB);
  CHECK(code_of([&] { shelf.rollback(1); }) == Errc::uncommitted);
  shelf.discard();
  const std::uint64_t before = shelf.stats().medium_bytes;
  const Commit back = shelf.rollback(1);
  CHECK(back.version == 3);
  CHECK(back.step == 1U);
  CHECK(shelf.stats().medium_bytes - before == 2 * kPageBytes);  // both copies of the root
  for (const bool reopened : {false, true}) {
    CAPTURE(reopened);
    if (reopened) shelf = kept.open();
    CHECK(shelf.names() == std::vector<std::string>{"gone", "w"});
    CHECK(shelf.info().tensor_bytes == kKeptBytes + 5000);
    CHECK((value(shelf.find("w").value()) == pattern(kKeptBytes, 1)));
    CHECK((value(shelf.find("gone").value()) == pattern(5000, 1)));
    CHECK((value_at(shelf, 2, "w") == pattern(kKeptBytes, 2)));
    CHECK((value_at(shelf, 2, "late") == pattern(3000, 2)));
  }
  w = shelf.find("w").value();
  shelf.rollback(2);  // and forth
  CHECK(shelf.version() == 4);
  CHECK(shelf.names() == std::vector<std::string>{"late", "later", "w"});
  CHECK(shelf.info().tensor_bytes == kKeptBytes + 3000 + 7000);
  CHECK((value(w) == pattern(kKeptBytes, 2)));
  make(shelf, "gone", 100);  // a new one of an old name, while a version has the old one
  w.write(pattern(kKeptBytes, 5));
  shelf.persist(5);
  CHECK((value_at(shelf, 3, "gone") == pattern(5000, 1)));
  CHECK((value_at(shelf, 4, "w") == pattern(kKeptBytes, 2)));
  CHECK((value(w) == pattern(kKeptBytes, 5)));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("a rollback is refused over what is only created, only erased, or on its way") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  make(shelf, "w", 5000).write(pattern(5000, 1));
  shelf.persist(1);
  shelf.persist(2);
  const auto refused = [&](const char* why, const char* remedy) {
    for (const auto& call : {std::function<void()>([&] { shelf.rollback(1); }),
                             std::function<void()>([&] { shelf.rollback(9); })}) {
      const auto error = error_of(call);
      REQUIRE(error);
      CHECK(error->code() == Errc::uncommitted);
      CHECK(contains(error->what(), why));
      CHECK(contains(error->remedy(), remedy));
    }
  };
  make(shelf, "created", 0);
  refused("there are changes that are not committed", "persist() or discard()");
  CHECK(code_of([&] { return shelf.transaction(); }) == Errc::uncommitted);
  shelf.discard();
  shelf.erase("w");
  refused("there are changes that are not committed", "persist() or discard()");
  CHECK(code_of([&] { return shelf.transaction(); }) == Errc::uncommitted);
  shelf.discard();
  kept.doors->barrier.shut();
  const auto later = shelf.persist_async(3);
  kept.doors->barrier.await_someone();
  refused("a version is on its way", "Wait for what persist(wait=False) returned");
  kept.doors->barrier.open();
  CHECK(later.get().version == 3);
  CHECK(shelf.rollback(2).version == 4);
  CHECK((value(shelf.find("w").value()) == pattern(5000, 1)));
}

TEST_CASE("handles follow their tensors through a rollback") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf shelf = kept.open();
  TensorRef a = make(shelf, "a", 100);
  a.write(pattern(100, 1));
  shelf.persist(1);
  shelf.erase("a");
  TensorRef b = make(shelf, "b", 100);
  shelf.persist(2);
  CHECK(code_of([&] { a.write(pattern(100, 2)); }) == Errc::unknown_name);
  shelf.rollback(1);
  CHECK(code_of([&] { b.write(pattern(100, 2)); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(b); }) == Errc::unknown_name);
  a.write(pattern(100, 3));
  CHECK((value(a, true) == pattern(100, 1)));
  shelf.persist(3);
  CHECK((value(a, true) == pattern(100, 3)));
}

TEST_CASE("a tensor that a rollback takes away is never read as zeros") {
  const bool mapped = GENERATE(true, false);
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = mapped, .placement = Placement::whole});
  Shelf shelf = kept.open();
  shelf.persist(1);
  TensorRef a = make(shelf, "a", 5000);
  TensorRef b = make(shelf, "b", 5000);
  a.write(pattern(5000, 1));
  b.write(pattern(5000, 2));
  shelf.persist(2);
  kept.doors->read.shut();
  Waiter reader([&] { CHECK((value(a) == pattern(5000, 1))); });
  kept.doors->read.await_someone();
  Waiter back([&] { shelf.rollback(1); });  // holds until `a` has been read, and `b` is next
  CHECK(back.waits());
  const auto error = error_of([&] { value(b); });
  kept.doors->read.open();
  reader.join();
  back.join();
  REQUIRE(error);
  CHECK(error->code() == Errc::unknown_name);
  CHECK(shelf.names().empty());
}

TEST_CASE("after a rollback to a smaller version there are pages for the larger one that is kept") {
  const Kept kept({.keep = 2, .in_flight = 1, .mapped = false, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  make(shelf, "w", 100).write(pattern(100, 1));
  shelf.persist(1);
  for (int i = 0; i < 600; ++i) make(shelf, std::to_string(i), 8).write(pattern(8, 1));
  shelf.persist(2);
  shelf.rollback(1);
  shelf.close();
  shelf = kept.open();
  shelf.find("w")->write(pattern(100, 2));
  CHECK_NOTHROW(shelf.persist(4));
  shelf.rollback(2);
  for (int i = 0; i < 600; ++i) shelf.find(std::to_string(i))->write(pattern(8, 2));
  CHECK_NOTHROW(shelf.persist(6));
}
