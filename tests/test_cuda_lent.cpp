// What comes from a device to a block medium moves once: the drive writes it from the page-locked
// piece that the device put it in. On a runtime of host memory, and a drive that takes its bytes as
// late as it may, the newest write first or the oldest.
#include <tensorshelf/pipeline.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "block_fixture.hpp"
#include "fake_cudart.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 9 * kChunkBytes + 13;

struct Drive {
  unsigned lent = 0;     // writes of what is page-locked
  unsigned others = 0;   // of a whole chunk or more
  unsigned changed = 0;  // whose bytes changed while they were on their way
  unsigned under_way = 0;
  unsigned fail_at = 0;  // the n-th write that ends, from 1
  unsigned ended = 0;
  bool oldest_first = false;
};

class LateBackend final : public ForwardingBackend {
 public:
  LateBackend(std::unique_ptr<BlockBackend> inner, Drive& drive)
      : ForwardingBackend(std::move(inner)), drive_(drive) {}

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    const std::lock_guard lock(mutex_);
    for (const DeviceWrite& write : writes) {
      begun_.push_back({write, {write.bytes.begin(), write.bytes.end()}});
      ++drive_.under_way;
      if (fake::is_page_locked(write.bytes.data())) {
        ++drive_.lent;
      } else if (write.bytes.size() >= kChunkBytes) {
        ++drive_.others;
      }
    }
    return {writes.size(), 0};
  }
  std::optional<DeviceCompletion> complete(bool block) override {
    if (!block) return {};
    const std::lock_guard lock(mutex_);
    const auto next = drive_.oldest_first ? begun_.begin() : std::prev(begun_.end());
    const Begun ending = std::move(*next);
    begun_.erase(next);
    --drive_.under_way;
    if (!same(ending.write.bytes, ending.bytes)) ++drive_.changed;
    if (++drive_.ended == drive_.fail_at) return DeviceCompletion{ending.write.buffer, -EIO};
    return DeviceCompletion{ending.write.buffer, write_now(ending.write.at, ending.write.bytes)};
  }

 private:
  struct Begun {
    DeviceWrite write;
    Bytes bytes;
  };
  Drive& drive_;
  std::mutex mutex_;
  std::vector<Begun> begun_;
};

// Two tensors, and memory of a device for each.
struct OnDrive {
  Folder folder;
  Drive drive;
  std::array<Bytes, 2> memory = {pattern(kSize, 1), pattern(kSize, 2)};
  CUstream_st stream{.device = 0, .work = {}};
  std::optional<Shelf> shelf;
  std::array<std::optional<TensorRef>, 2> tensors;

  explicit OnDrive(const OpenOptions& options = {}) {
    fake::cuda() = {};
    fake::cuda().early = GENERATE(false, true);
    CAPTURE(fake::cuda().early);
    BlockSeam seam;
    seam.wrap = [this](std::unique_ptr<BlockBackend> inner) -> std::unique_ptr<BlockBackend> {
      return std::make_unique<LateBackend>(std::move(inner), drive);
    };
    OpenOptions with = options;
    with.mode = Mode::update;
    with.block.io_uring = false;
    auto medium = make_block_medium(folder.create(), with, seam);
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::move(medium), with));
    for (int i = 0; i < 2; ++i) {
      fake::add_memory(memory[i].data(), kSize, 0);
      const std::array shape = {static_cast<std::int64_t>(kSize)};
      tensors[i] = shelf->create(i == 0 ? "one" : "two", DType::uint8, shape);
    }
    shelf->persist(1);
    drive = {};
  }

  DeviceBytes source(int i) { return {memory[i].data(), kSize, &stream}; }
  std::shared_ptr<const SavePlan> plan() {
    return std::make_shared<const SavePlan>(
        std::vector<Source>{{*tensors[0], source(0), true}, {*tensors[1], source(1), true}});
  }
  bool has(int i, const Bytes& bytes) {
    Bytes found(bytes.size());
    tensors[i]->read_committed(found);
    return same(found, bytes);
  }
};

}  // namespace

TEST_CASE("from a device a drive writes what the device put there, piece by piece") {
  const unsigned pieces = GENERATE(0U, 1U, 2U, 3U);
  const std::uint64_t piece_bytes = GENERATE(std::uint64_t{0}, kChunkBytes);
  const bool oldest_first = GENERATE(false, true);
  CAPTURE(pieces, piece_bytes, oldest_first);
  OnDrive on;
  {
    Pipeline pipeline(*on.shelf, {.workers = 2,
                                  .check_one_in = 1,
                                  .device_pieces = pieces,
                                  .device_piece_bytes = piece_bytes});
    const auto plan = on.plan();
    for (int step = 2; step < 4; ++step) {
      for (int i = 0; i < 2; ++i)
        std::memcpy(on.memory[i].data(), pattern(kSize, 10 * step + i).data(), kSize);
      on.drive = {.oldest_first = oldest_first};
      pipeline.save(plan, step).value().wait_durable();
      CHECK(on.drive.lent == 18);  // all but the last 13 bytes of each
      CHECK(on.drive.others == 0);
      CHECK(on.drive.changed == 0);
      CHECK(on.drive.under_way == 0);
      for (int i = 0; i < 2; ++i) CHECK(on.has(i, pattern(kSize, 10 * step + i)));
    }
  }
  CHECK(on.shelf->verify().damage.empty());
}

TEST_CASE("a device's copies are as large as was asked for") {
  OnDrive on;
  const int pieces = GENERATE(1, 2, 9);  // of the nine chunks, and the 13 bytes behind them
  Pipeline pipeline(*on.shelf, {.check_one_in = 0,
                                .device_piece_bytes = (9 + pieces - 1) / pieces * kChunkBytes});
  pipeline.save(on.plan(), 2).value().wait_durable();
  const int lines = 2;  // of each source, at the save and behind its copy
  CHECK(fake::cuda().calls["cudaMemcpyAsync"] == 2 * (pieces + (pieces != 2) + lines));
}

TEST_CASE("what lies in no whole pages, or is as it was, is not lent") {
  const bool unchanged = GENERATE(false, true);
  OpenOptions options;
  options.keep_unchanged = unchanged;
  OnDrive on(options);
  write_from_device(*on.tensors[0], on.source(0));
  on.shelf->persist(2);
  CHECK(on.drive.lent == 9);
  CHECK(on.has(0, pattern(kSize, 1)));
  on.drive = {};
  if (unchanged) {
    write_from_device(*on.tensors[0], on.source(0));
  } else {  // in the first piece each chunk begins at an odd byte
    const DeviceBytes part{on.memory[1].data(), kSize - 5, &on.stream};
    write_from_device(*on.tensors[0], part, 5);
  }
  on.shelf->persist(3);
  CHECK(on.drive.lent == (unchanged ? 0 : 1));
  CHECK(on.drive.under_way == 0);
  Bytes expected = pattern(kSize, 1);
  const Bytes other = pattern(kSize, 2);
  if (!unchanged) std::copy(other.begin(), other.end() - 5, expected.begin() + 5);
  CHECK(on.has(0, expected));
}

TEST_CASE("what is lent to a tensor that is made just now is awaited as well") {
  OnDrive on;
  on.drive.oldest_first = GENERATE(false, true);
  const std::array shape = {static_cast<std::int64_t>(kSize)};
  Assignment made = on.shelf->create_with("new", DType::uint8, shape);
  const PageMemory piece(kChunkBytes);
  for (std::uint64_t chunk = 0; chunk < 9; ++chunk) {
    std::ranges::fill(piece.bytes(), static_cast<std::byte>(chunk + 1));
    made.write_lent(piece.bytes(), chunk * kChunkBytes);
    made.await_lent(piece.bytes());
  }
  CHECK(on.drive.under_way == 0);
  CHECK(on.drive.changed == 0);
}

TEST_CASE("whatever fails, no piece is on its way to the drive any more") {
  const bool of_drive = GENERATE(false, true);
  OnDrive on;
  on.drive.oldest_first = GENERATE(false, true);
  Pipeline pipeline(*on.shelf, {.device_pieces = 3, .device_piece_bytes = kChunkBytes});
  const auto plan = on.plan();
  if (of_drive) {
    on.drive.fail_at = 4;
  } else {
    fake::cuda().fail = "cudaEventSynchronize";
    fake::cuda().fail_at = 5;
  }
  const auto ticket = pipeline.save(plan, 2).value();
  const auto error = error_of([&] { ticket.wait_durable(); });
  REQUIRE(error);
  CHECK((error->code() == Errc::io || error->code() == Errc::failed));
  CHECK(on.drive.lent > 0);
  CHECK(on.drive.under_way == 0);
  CHECK(on.drive.changed == 0);
  fake::cuda().fail.clear();
  CHECK(on.has(0, Bytes(kSize)));  // the version before
  if (of_drive) return;
  fake::cuda().calls.clear();
  pipeline.save(plan, 3).value().wait_durable();
  for (int i = 0; i < 2; ++i) CHECK(on.has(i, pattern(kSize, i + 1)));
  CHECK(on.drive.changed == 0);
}

TEST_CASE("pieces that no ring can have are refused") {
  OnDrive on;
  for (const PipelineOptions& options :
       {PipelineOptions{.device_pieces = 65}, PipelineOptions{.device_piece_bytes = 1000},
        PipelineOptions{.device_piece_bytes = kPageBytes},
        PipelineOptions{.device_piece_bytes = kChunkBytes + kPageBytes},
        PipelineOptions{.device_piece_bytes = std::uint64_t{2} << 30}}) {
    const auto error = error_of([&] { const Pipeline pipeline(*on.shelf, options); });
    REQUIRE(error);
    CHECK(error->code() == Errc::bad_argument);
    CHECK(std::string(error->what()).find("device_piece") != std::string::npos);
    CHECK_FALSE(error->remedy().empty());
  }
}
