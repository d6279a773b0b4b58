// Tensors whose value of the same attempt was overwritten by an assignment that was not done (I13).
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "assigned_shelf.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

// The tensor has a value of the attempt, and an assignment over it was let go.
struct Spoiled : Rig {
  TensorRef other = make(shelf, "other", 100);

  Spoiled() {
    other.write(pattern(100, 1));
    const bool whole_before = GENERATE(true, false);
    if (whole_before) w.write(pattern(kKeptBytes, 2));
    if (!whole_before) w.write(pattern(30, 2), 2 * kMiB - 10);
    assign_and_let_go(w, pattern(40, 3), 2 * kMiB - 5);
  }
  void spoil_again() {
    w.write(pattern(kMiB, 4));  // not all of it
    assign_and_let_go(w, pattern(kKeptBytes, 4));
  }
  void check_committed(const std::vector<std::byte>& last) {
    CHECK((value(w) == last));
    shelf.persist(2);
    check_reopened(last);
  }
};

bool refused(const std::function<void()>& call) {
  const auto error = error_of(call);
  return error && error->code() == Errc::spoiled && contains(error->what(), "'w'") &&
         contains(error->remedy(), "discard()");
}

}  // namespace

TEST_CASE("a tensor whose value of the same attempt was overwritten is spoiled") {
  Spoiled rig;
  CHECK(code_name(Errc::spoiled) == "tensor_spoiled");
  CHECK(refused([&] { rig.shelf.persist(2); }));
  CHECK(refused([&] { rig.shelf.persist_async(2); }));
  CHECK(refused([&] { value(rig.w); }));
  CHECK(refused([&] { rig.w.lease(); }));
  CHECK((value(rig.w, true) == rig.first));
  CHECK((value(rig.other) == pattern(100, 1)));
  rig.spoil_again();
  CHECK(refused([&] { rig.shelf.persist(2); }));
  CHECK(rig.shelf.version() == 1);
}

TEST_CASE("a tensor is spoiled until it is assigned whole") {
  Spoiled rig;
  rig.spoil_again();
  const auto last = pattern(kKeptBytes, 5);
  rig.w.write(last);
  CHECK((value(rig.w) == last));
  rig.shelf.persist(2);
  CHECK((value(rig.other, true) == pattern(100, 1)));
  rig.check_reopened(last);
}

TEST_CASE("a tensor is spoiled until it is assigned whole, in pieces of any order") {
  Spoiled rig;
  rig.spoil_again();
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
  rig.check_committed(last);
}

TEST_CASE("a tensor is spoiled until it is assigned whole, in pieces that touch, the last first") {
  Spoiled rig;
  rig.spoil_again();
  const auto last = pattern(kKeptBytes, 5);
  const std::size_t middle = 2 * kMiB + 7;
  {
    Assignment assignment = rig.w.assign();
    assignment.write(std::span(last).subspan(middle), middle);
    assignment.write(std::span(last).first(middle));
    assignment.done();
  }
  rig.check_committed(last);
}

TEST_CASE("a tensor is spoiled as long as a byte of it is not assigned anew") {
  Spoiled rig;
  rig.spoil_again();
  const auto last = pattern(kKeptBytes, 5);
  {
    Assignment assignment = rig.w.assign();
    assignment.write(std::span(last).first(kMiB));
    assignment.write(std::span(last).subspan(kMiB + 1), kMiB + 1);
    assignment.done();
  }
  CHECK(refused([&] { rig.shelf.persist(2); }));
}

TEST_CASE("a tensor is spoiled until what was written is discarded") {
  Spoiled rig;
  rig.spoil_again();
  rig.shelf.discard();
  CHECK((value(rig.w) == rig.first));
  const auto part = pattern(40, 6);
  rig.w.write(part, 2 * kMiB - 5);
  rig.shelf.persist(2);
  put(rig.first, part, 2 * kMiB - 5);
  rig.check_reopened(rig.first);
}

TEST_CASE("a spoiled tensor keeps no version back once it is erased") {
  Spoiled rig;
  rig.spoil_again();
  rig.shelf.erase("w");
  rig.shelf.persist(2);
  CHECK(rig.shelf.names() == std::vector<std::string>{"other"});
}

TEST_CASE("a spoiled tensor keeps no version back once it is replaced") {
  Spoiled rig;
  rig.spoil_again();
  TensorRef made = rig.shelf.replace("w", DType::uint8, std::vector<std::int64_t>{10});
  CHECK((value(made) == std::vector<std::byte>(10)));
  rig.shelf.persist(2);
}

TEST_CASE("an assignment let go over a value of its attempt and beyond it spoils the tensor") {
  const bool upwards = GENERATE(true, false);
  CAPTURE(upwards);
  Rig rig;
  rig.w.write(pattern(kMiB, 2), upwards ? 0 : kMiB);
  {
    Assignment assignment = rig.w.assign();
    assignment.write(pattern(kMiB, 3), upwards ? 0 : kMiB);
    assignment.write(pattern(kMiB, 4), upwards ? kMiB : 0);
  }
  CHECK(code_of([&] { value(rig.w); }) == Errc::spoiled);
  CHECK(code_of([&] { rig.shelf.persist(2); }) == Errc::spoiled);
  CHECK((value(rig.w, true) == rig.first));
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

namespace {

// A medium of which a write fails, by default for a damaged source.
class TornSource final : public ForwardingMedium {
 public:
  TornSource(std::shared_ptr<Medium> medium, std::shared_ptr<int> left, Errc code = Errc::corrupt)
      : ForwardingMedium(std::make_shared<SharedMedium>(std::move(medium), false)),
        left_(std::move(left)),
        code_(code) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    if (*left_ > 0 && --*left_ == 0)
      throw Error(code_, "the write stopped half-way", "Give another source, or another medium.");
    return ForwardingMedium::write(at, bytes, seed);
  }

 private:
  std::shared_ptr<int> left_;
  Errc code_;
};

}  // namespace

TEST_CASE("of a write whose source is damaged half-way nothing is counted") {
  const Bench bench;
  const auto left = std::make_shared<int>(0);
  Shelf shelf = Shelf::open(std::make_unique<TornSource>(bench.medium, left));
  TensorRef w = make(shelf, "w", 3 * kMiB);
  shelf.persist(1);
  *left = 2;
  CHECK(code_of([&] { w.write(pattern(3 * kMiB, 1)); }) == Errc::corrupt);
  w.write(pattern(100, 2));
  const Commit commit = shelf.persist(2);
  CHECK(commit.data_bytes == 100);
  CHECK(shelf.versions().back().data_bytes == 100);
  auto expected = std::vector<std::byte>(3 * kMiB);
  const auto part = pattern(100, 2);
  std::copy(part.begin(), part.end(), expected.begin());
  CHECK((value(w) == expected));
}

// To assign it whole, or to discard it, as a spoiled tensor's remedy says, would be of no use.
TEST_CASE(
    "where the medium failed over a value of the attempt, the failure is told and no spoiling") {
  const Bench bench;
  const auto left = std::make_shared<int>(0);
  Shelf shelf = Shelf::open(std::make_unique<TornSource>(bench.medium, left, Errc::io));
  TensorRef w = make(shelf, "w", 3 * kMiB);
  w.write(pattern(3 * kMiB, 1));
  shelf.persist(1);
  w.write(pattern(3 * kMiB, 2));
  *left = 2;
  CHECK(code_of([&] { w.write(pattern(3 * kMiB, 3)); }) == Errc::io);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto error = error_of([&] { shelf.persist(2); });
    REQUIRE(error);
    CHECK(error->code() == Errc::failed);
    CHECK(contains(error->what(), "the write stopped half-way"));
    CHECK_FALSE(contains(error->remedy(), "discard()"));
  }
  CHECK((value(w, true) == pattern(3 * kMiB, 1)));
  shelf.close();
  CHECK((value(bench.open().find("w").value()) == pattern(3 * kMiB, 1)));
}
