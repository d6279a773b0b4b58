// Mapped bytes that are gone when they are touched: what the medium still has of them is read all
// the same, what it has not is damage of that chunk, and no copy within the shelf hides it.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/fault_guard.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 3 * kMiB + 100;

// Memory of which the mapping may lose a range, and the medium itself a part of that.
struct Loss {
  Extent gone = {};
  bool unreadable = false;
  bool refuses_writes = false;
};

class LossyMedium final : public ForwardingMedium {
 public:
  LossyMedium(std::shared_ptr<Medium> medium, std::shared_ptr<const Loss> loss)
      : ForwardingMedium(std::move(medium)), loss_(std::move(loss)) {
    arm_fault_guard();
    const int file = ::memfd_create("empty", 0);
    void* const at = ::mmap(nullptr, kHoleBytes, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    REQUIRE(at != MAP_FAILED);
    hole_ = {static_cast<const std::byte*>(at), kHoleBytes};  // whoever touches it gets SIGBUS
  }
  ~LossyMedium() override { ::munmap(const_cast<std::byte*>(hole_.data()), hole_.size()); }
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    if (loss_->refuses_writes) throw Error(Errc::io, "the write failed", "Use another.", EIO);
    if (bytes.data() >= hole_.data() && bytes.data() < hole_.data() + hole_.size()) {
      throw Error(Errc::corrupt, "the source is gone", "Use another.");
    }
    return ForwardingMedium::write(at, bytes, seed);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (is_gone({at, bytes.size()}) && loss_->unreadable) {
      throw Error(Errc::io, "the line is poisoned", "Use another.", EIO);
    }
    ForwardingMedium::read(at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    return is_gone(extent) ? hole_.first(extent.size_bytes) : ForwardingMedium::view(extent);
  }

 private:
  static constexpr std::uint64_t kHoleBytes = 4 * kMiB;
  bool is_gone(const Extent& extent) const {
    const Extent& gone = loss_->gone;
    return gone.at < extent.at + extent.size_bytes && extent.at < gone.at + gone.size_bytes;
  }

  std::shared_ptr<const Loss> loss_;
  std::span<const std::byte> hole_;
};

// A shelf at version 1 whose tensor loses a page of its second chunk.
struct Lost {
  Bench bench;
  std::shared_ptr<Loss> loss = std::make_shared<Loss>();
  std::vector<std::byte> first = pattern(kSize, 1);
  std::optional<Shelf> shelf;

  Lost() {
    Shelf writer = bench.open();
    make(writer, "w", kSize).write(first);
    writer.persist(1);
    const Lease lease = writer.find("w")->lease();
    const auto all = bench.medium->view({0, bench.medium->size()});
    place_ = static_cast<std::uint64_t>(lease.bytes().data() - all.data()) + kMiB + kPageBytes;
  }
  TensorRef open() {
    shelf.emplace(Shelf::open(std::make_unique<LossyMedium>(bench.medium, loss)));
    return shelf->find("w").value();
  }
  void lose(bool unreadable) {
    loss->gone = {place_, kPageBytes};
    loss->unreadable = unreadable;
  }

 private:
  std::uint64_t place_ = 0;
};

struct Range {
  std::uint64_t offset, size_bytes;
};
constexpr Range kOverTheLoss[] = {
    {0, kSize}, {kMiB, kMiB}, {kMiB + 10, 100}, {kMiB - 10, 20}, {2 * kMiB - 10, 20}};

}  // namespace

TEST_CASE("bytes that a mapping lost are asked of the medium") {
  Lost lost;
  TensorRef w = lost.open();
  const bool verified_before = GENERATE(true, false);
  CAPTURE(verified_before);
  if (verified_before) CHECK((value(w) == lost.first));
  lost.lose(false);
  for (const Range& range : kOverTheLoss) {
    for (const bool committed : {true, false}) {
      CAPTURE(range.offset, range.size_bytes, committed);
      std::vector<std::byte> bytes(range.size_bytes);
      committed ? w.read_committed(bytes, range.offset) : w.read(bytes, range.offset);
      CHECK(std::equal(bytes.begin(), bytes.end(),
                       lost.first.begin() + static_cast<std::ptrdiff_t>(range.offset)));
    }
  }
  auto expected = lost.first;
  const auto part = pattern(100, 2);
  w.write(part, kMiB + 50);  // merged with them
  std::copy(part.begin(), part.end(), expected.begin() + kMiB + 50);
  CHECK((value(w) == expected));
  CHECK(lost.shelf->persist(2).version == 2);
  CHECK((value(w, true) == expected));
  CHECK(lost.shelf->verify().damage.empty());
}

TEST_CASE("bytes that the medium lost too are damage of their chunk, and of no other") {
  Lost lost;
  TensorRef w = lost.open();
  const bool verified_before = GENERATE(true, false);
  CAPTURE(verified_before);
  if (verified_before) CHECK((value(w) == lost.first));
  lost.lose(true);
  const auto check = [](const std::function<void()>& call) {
    const auto error = error_of(call);
    REQUIRE(error);
    CHECK(error->code() == Errc::corrupt);
    CHECK(error->os_error() == EIO);
    CHECK(contains(error->what(), "'w' v1 slot A: chunk 1 cannot be read (the line is poisoned)"));
    CHECK(contains(error->remedy(), "assigning the whole tensor heals it"));
  };
  for (const Range& range : kOverTheLoss) {
    CAPTURE(range.offset, range.size_bytes);
    std::vector<std::byte> bytes(range.size_bytes);
    check([&] { w.read(bytes, range.offset); });
    check([&] { w.read_committed(bytes, range.offset); });
  }
  check([&] { w.write(pattern(100, 2), kMiB + 50); });
  std::vector<std::byte> beside(kMiB);
  w.read(beside, 2 * kMiB);
  CHECK(std::equal(beside.begin(), beside.end(), lost.first.begin() + 2 * kMiB));
  w.write(pattern(kSize, 3));
  CHECK(lost.shelf->persist(2).version == 2);
  CHECK((value(w, true) == pattern(kSize, 3)));
}

TEST_CASE("a copy forward whose source is gone is damage, and one whose write fails a failure") {
  Lost lost;
  TensorRef w = lost.open();
  w.write(pattern(kMiB, 2));  // the others are for persist() to copy
  SECTION("gone") {
    lost.lose(false);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto error = error_of([&] { lost.shelf->persist(2); });
      REQUIRE(error);
      CHECK(error->code() == Errc::corrupt);
      CHECK(contains(error->what(), "'w' v1 slot A: chunk 1 cannot be read (the source is gone)"));
    }
    CHECK(w.info().dirty);
    w.write(pattern(kMiB, 3), kMiB);
    CHECK(lost.shelf->persist(2).version == 2);
    auto expected = lost.first;
    const auto begin = pattern(kMiB, 2);
    const auto healed = pattern(kMiB, 3);
    std::copy(begin.begin(), begin.end(), expected.begin());
    std::copy(healed.begin(), healed.end(), expected.begin() + kMiB);
    CHECK((value(w, true) == expected));
  }
  SECTION("failed") {
    lost.loss->refuses_writes = true;
    const auto error = error_of([&] { lost.shelf->persist(2); });
    REQUIRE(error);
    CHECK(error->code() == Errc::io);
    CHECK(error->os_error() == EIO);
    CHECK_FALSE(contains(error->what(), "chunk"));
    lost.loss->refuses_writes = false;
    CHECK(code_of([&] { lost.shelf->persist(2); }) == Errc::failed);  // I8
    CHECK((value(w, true) == lost.first));
    lost.shelf.reset();
    CHECK((value(lost.open()) == lost.first));
  }
}
