// What src/feed/cuda asks of CUDA, on a runtime of host memory (fake_cudart.hpp): order
// after the caller's stream, devices, buffers that are kept, and every failure.
#include <tensorshelf/cuda.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "catch.hpp"
#include "denied_memory.hpp"
#include "fake_cudart.hpp"
#include "feed/cuda/lanes.hpp"
#include "media/memory/medium.hpp"

using namespace tensorshelf;

namespace {

constexpr std::uint64_t kSize = 17 * kChunkBytes + 17;  // three pieces

std::uint64_t mapped_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::getpagesize());
}

struct Fixture {
  Fixture() {
    auto medium = make_memory_medium(64 * kChunkBytes, 64 * kChunkBytes);
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::move(medium)));
    const std::int64_t shape[] = {static_cast<std::int64_t>(kSize)};
    tensor.emplace(shelf->create("x", DType::uint8, shape));
    fake::cuda() = {};
    memory.assign(kSize, std::byte{1});
    fake::add_memory(memory.data(), memory.size(), 1);
  }

  DeviceBytes source(cudaStream_t stream = nullptr) const {
    return {.data = memory.data(), .size_bytes = kSize, .stream = stream};
  }

  std::vector<std::byte> value() const {
    std::vector<std::byte> bytes(kSize);
    tensor->read(bytes);
    return bytes;
  }

  std::optional<Error> error_of(const std::function<void()>& body) const {
    try {
      body();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

  std::vector<std::byte> memory;
  std::optional<Shelf> shelf;
  std::optional<TensorRef> tensor;
};

}  // namespace

// First, and in children, for a process that has kept buffers once has room for them from then on.
TEST_CASE_METHOD(Fixture, "memory that runs out in a copy never ends the program") {
  constexpr int kAll = 3;
  int ended = 0;
  for (std::int64_t nth = 0; ended != kAll; ++nth) {
    CAPTURE(nth);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::signal(SIGABRT, SIG_DFL);
      ::alarm(60);
      std::vector<std::byte> host(kSize);
      const bool met =
          testing::denying(nth, testing::Denial::once, [&] { copy_from_device(host, source()); });
      ::_exit(met ? 0 : kAll);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    ended = WEXITSTATUS(status);
    REQUIRE((ended == 0 || (ended == kAll && nth > 1)));
  }
}

TEST_CASE_METHOD(Fixture, "what the caller's stream still has to do is seen") {
  CUstream_st mine{.device = 1, .work = {}};
  for (cudaStream_t stream : {cudaStream_t{nullptr}, &mine}) {
    for (const std::byte value : {std::byte{7}, std::byte{8}}) {
      fake::queue(stream, [&] { std::fill(memory.begin(), memory.end(), value); });
      write_from_device(*tensor, source(stream));
      CHECK(this->value() == memory);
      CHECK(memory.back() == value);
    }
  }
  std::vector<std::byte> host(kSize);
  fake::queue(&mine, [&] { memory.back() = std::byte{9}; });
  copy_from_device(host, source(&mine));
  CHECK((host == memory));
  CHECK(host.back() == std::byte{9});
}

TEST_CASE_METHOD(Fixture, "buffers, stream and events are kept for the next call") {
  write_from_device(*tensor, source());
  const auto first = fake::cuda().calls;
  for (int i = 0; i < 5; ++i) write_from_device(*tensor, source());
  for (const char* function : {"cudaHostRegister", "cudaStreamCreate", "cudaEventCreate"}) {
    const auto made = first.find(function);
    CHECK(fake::cuda().calls[function] == (made == first.end() ? 0 : made->second));
  }
}

TEST_CASE_METHOD(Fixture, "512 MiB of idle buffers are kept, and no more, of the kind used last") {
  cuda::LanePool pool;
  const PieceRing other = {.pieces = 4, .piece_bytes = 32 * kChunkBytes};  // 128 MiB
  const auto give_all = [&](auto& lanes, const PieceRing& ring) {
    for (auto& lane : lanes) lane = pool.take(0, ring);
    for (auto& lane : lanes) pool.give(std::move(lane));
  };
  std::array<std::unique_ptr<cuda::CopyLane>, 34> lanes;
  give_all(lanes, {});
  CHECK(fake::cuda().buffers == 32);  // of 16 MiB each
  std::array<std::unique_ptr<cuda::CopyLane>, 3> large;
  give_all(large, other);
  CHECK(fake::cuda().buffers == 3 + 8);
  give_all(large, other);
  CHECK(fake::cuda().calls["cudaHostRegister"] == 34 + 3);
  pool.give(pool.take(0, {.pieces = 5, .piece_bytes = 128 * kChunkBytes}));  // more than all
  CHECK(fake::cuda().buffers == 3 + 8);
  CHECK(pool.take(1, {})->device == 1);  // those that are idle are of another
  CHECK(pool.take(0, {})->ring == PieceRing{});
  CHECK(pool.take(0, other)->ring == other);
}

TEST_CASE_METHOD(Fixture, "lanes are kept without memory for that, however many are idle") {
  cuda::LanePool pool;
  std::vector<std::unique_ptr<cuda::CopyLane>> lanes;
  for (int i = 0; i < 40; ++i) lanes.push_back(pool.take(0, {.pieces = 1, .piece_bytes = 4096}));
  CHECK_FALSE(testing::denying(0, testing::Denial::from_then_on, [&] {
    for (auto& lane : lanes) pool.give(std::move(lane));
  }));
  CHECK(fake::cuda().buffers == 40);
}

TEST_CASE_METHOD(Fixture, "where a driver locks no memory of ours, it allocates some") {
  // Whatever is kept from other tests is in use meanwhile.
  std::vector<std::unique_ptr<cuda::CopyLane>> kept(33);
  for (auto& lane : kept) lane = cuda::pool().take(1, {});
  const int before = fake::cuda().buffers;
  fake::cuda().fail = "cudaHostRegister";
  fake::cuda().error = GENERATE(cudaErrorNotSupported, cudaErrorMemoryAllocation);
  const bool allocates = fake::cuda().error == cudaErrorNotSupported;
  const auto error = error_of([&] { write_from_device(*tensor, source()); });
  CHECK(error.has_value() != allocates);
  CHECK(fake::cuda().calls["cudaHostAlloc"] == (allocates ? 1 : 0));
  CHECK(fake::cuda().buffers == before + (allocates ? 1 : 0));
  CHECK(fake::cuda().last == cudaSuccess);
  if (error) CHECK(error->remedy().find("ulimit -l") != std::string::npos);
  if (allocates) CHECK((value() == memory));
}

TEST_CASE_METHOD(Fixture, "what a driver allocated is given back to the driver") {
  fake::cuda().fail = "cudaHostRegister";
  fake::cuda().error = cudaErrorNotSupported;
  std::optional<cuda::PageLocked> theirs;
  theirs.emplace(std::uint64_t{16} << 20, 0);
  CHECK(fake::cuda().calls["cudaHostAlloc"] == 1);
  CHECK(fake::cuda().buffers == 1);
  theirs.reset();
  CHECK(fake::cuda().buffers == 0);
}

TEST_CASE_METHOD(Fixture, "page-locked memory is given back whole, also where it was not locked") {
  constexpr std::uint64_t kLocked = std::uint64_t{16} << 20;
  auto locked = std::make_unique<cuda::PageLocked>(kLocked, 0);
  std::byte* const data = locked->data();
  locked.reset();
  unsigned char there = 0;
  for (const std::uint64_t at : {std::uint64_t{0}, kLocked / 2, kLocked - 4096})
    CHECK((::mincore(data + at, 1, &there) != 0 && errno == ENOMEM));

  fake::cuda().fail = "cudaHostRegister";
  fake::cuda().error = cudaErrorMemoryAllocation;
  const std::uint64_t before = mapped_bytes();
  for (int i = 0; i < 8; ++i) {
    fake::cuda().calls.clear();
    CHECK_THROWS_AS(cuda::PageLocked(kLocked, 0), Error);
  }
  CHECK(mapped_bytes() < before + 2 * kLocked);
}

TEST_CASE_METHOD(Fixture, "of page-locked memory nothing is mapped before it or behind it") {
  constexpr std::uint64_t kLocked = std::uint64_t{2} << 20;
  std::vector<std::unique_ptr<cuda::PageLocked>> all;
  all.reserve(16);
  const std::uint64_t before = mapped_bytes();
  for (int i = 0; i < 16; ++i) all.push_back(std::make_unique<cuda::PageLocked>(kLocked, 0));
  CHECK(mapped_bytes() < before + 16 * kLocked + 2 * kLocked);
}

TEST_CASE_METHOD(Fixture, "a child gives back nothing that its parent had page-locked") {
  auto locked = std::make_unique<cuda::PageLocked>(std::uint64_t{2} << 20, 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    void* const own = ::mmap(locked->data(), 4096, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own != locked->data()) ::_exit(2);
    locked.reset();
    unsigned char there = 0;
    ::_exit(::mincore(own, 1, &there) == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE_METHOD(Fixture, "a lane for whose error there is no memory leaves nothing") {
  const int streams = fake::cuda().streams;
  const int events = fake::cuda().events;
  fake::cuda().fail = "cudaEventCreate";
  fake::cuda().fail_at = 3;
  for (std::int64_t nth = 0; nth < 40; ++nth) {
    fake::cuda().calls.clear();
    try {
      testing::denying(nth, testing::Denial::once, [] { cuda::CopyLane lane(0, {}); });
    } catch (const Error&) {
    } catch (const std::bad_alloc&) {
    }
    CHECK(fake::cuda().streams == streams);
    CHECK(fake::cuda().events == events);
  }
}

TEST_CASE_METHOD(Fixture, "the memory that a device writes to is no child's, and in place") {
  const cuda::PageLocked locked(16 << 20, 0);
  CHECK(reinterpret_cast<std::uintptr_t>(locked.data()) % (2 << 20) == 0);
  locked.data()[(16 << 20) - 1] = std::byte{1};
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // a page that is there would be copied, for one of the two
    unsigned char there = 0;
    ::_exit(::mincore(locked.data(), 1, &there) == 0 || errno != ENOMEM ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE_METHOD(Fixture, "the thread's current device stays, and no device is taken into use") {
  SECTION("a device in use is current again") {
    write_from_device(*tensor, source());
    CHECK(fake::cuda().made_current == std::vector<int>{1, 0});
  }
  SECTION("one that was never used is left alone") {
    fake::cuda().in_use.clear();
    write_from_device(*tensor, source());
    CHECK(fake::cuda().in_use == std::set<int>{1});
  }
  SECTION("a device that is named needs no question to another") {
    DeviceBytes named = source();
    named.device = 1;
    write_from_device(*tensor, named);
    CHECK(fake::cuda().made_current.front() == 1);
  }
  SECTION("also after a failure") {
    fake::cuda().fail = "cudaMemcpyAsync";
    CHECK_THROWS_AS(write_from_device(*tensor, source()), Error);
    CHECK(fake::cuda().current == 0);
  }
}

TEST_CASE_METHOD(Fixture, "what cannot be read is refused before anything is written") {
  struct Row {
    const char* what;
    std::function<void()> arrange;
    Errc code;
  };
  std::array<std::byte, 16> host = {};
  DeviceBytes from = source();
  std::uint64_t offset = 0;
  const Row rows[] = {
      {"no device", [] { fake::cuda().devices = 0; }, Errc::unsupported},
      {"no driver",
       [] {
         fake::cuda().fail = "cudaGetDeviceCount";
         fake::cuda().error = cudaErrorInsufficientDriver;
       },
       Errc::unsupported},
      {"host memory", [&] { from = {.data = host.data(), .size_bytes = 16}; }, Errc::bad_argument},
      {"a stream that captures", [] { fake::cuda().capturing = true; }, Errc::unsupported},
      {"no such device", [&] { from.device = 7; }, Errc::io},
      {"past the tensor's end", [&] { offset = 1; }, Errc::layout},
      {"far past it", [&] { offset = ~std::uint64_t{0}; }, Errc::layout},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    fake::cuda() = {};
    fake::add_memory(memory.data(), memory.size(), 1);
    from = source();
    offset = 0;
    row.arrange();
    const auto error = error_of([&] { write_from_device(*tensor, from, offset); });
    REQUIRE(error);
    CHECK(error->code() == row.code);
    CHECK_FALSE(error->remedy().empty());
    CHECK((value() == std::vector<std::byte>(kSize)));
    CHECK(fake::cuda().last == cudaSuccess);  // nothing is left for the caller's next call
  }
  CHECK(shelf->persist().version == 1);
}

TEST_CASE_METHOD(Fixture, "a failure in the middle: told, nothing leaks, the next call works") {
  write_from_device(*tensor, source());
  shelf->persist(1);
  const auto committed = value();
  std::fill(memory.begin(), memory.end(), std::byte{2});
  for (const char* function :
       {"cudaHostRegister", "cudaStreamCreate", "cudaEventCreate", "cudaStreamWaitEvent",
        "cudaEventRecord", "cudaMemcpyAsync", "cudaEventSynchronize"}) {
    for (int at = 1; at <= 3; ++at) {
      INFO(function << ", call " << at);
      const int buffers = fake::cuda().buffers;
      fake::cuda().calls.clear();
      fake::cuda().fail = function;
      fake::cuda().fail_at = at;
      const auto error = error_of([&] { write_from_device(*tensor, source()); });
      // Where the staging was kept nothing is allocated; where it was dropped each is once or more.
      const bool reached = fake::cuda().calls[function] >= at;
      REQUIRE(error.has_value() == reached);
      if (error) {
        CHECK(error->code() == Errc::io);
        CHECK(fake::cuda().last == cudaSuccess);
        CHECK(fake::cuda().buffers == 0);  // what a copy may still be under way to is not kept
      }
      CHECK(fake::cuda().buffers <= std::max(buffers, 1));
      CHECK(fake::cuda().buffers == fake::cuda().streams);
      if (error) CHECK((value() == committed));  // and a piece that had been written is undone
      if (!error) shelf->discard();
      std::vector<std::byte> durable(kSize);
      tensor->read_committed(durable);
      CHECK(durable == committed);
    }
  }
  fake::cuda().fail.clear();
  write_from_device(*tensor, source());
  CHECK((value() == memory));
  CHECK(shelf->persist(2).version == 2);
}

TEST_CASE_METHOD(Fixture, "a lane that cannot be waited for is not kept") {
  const bool copy_fails = GENERATE(false, true);
  CAPTURE(copy_fails);
  write_from_device(*tensor, source());
  fake::cuda().fail = "cudaStreamSynchronize";
  if (copy_fails) fake::cuda().fail = "cudaEventSynchronize";
  fake::cuda().calls.clear();
  const int buffers = fake::cuda().buffers;
  const int streams = fake::cuda().streams;
  const auto error = error_of([&] { write_from_device(*tensor, source()); });
  CHECK(error.has_value() == copy_fails);
  CHECK(fake::cuda().buffers == buffers - 1);
  CHECK(fake::cuda().streams == streams - 1);
  CHECK(fake::cuda().last == cudaSuccess);
}

TEST_CASE_METHOD(Fixture, "the thread's mode of capturing is what it was") {
  const auto mode_now = [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    cudaStreamCaptureMode back = mode;
    REQUIRE(cudaThreadExchangeStreamCaptureMode(&back) == cudaSuccess);
    return mode;
  };
  cudaStreamCaptureMode mine = cudaStreamCaptureModeThreadLocal;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mine) == cudaSuccess);
  write_from_device(*tensor, source());
  CHECK(mode_now() == cudaStreamCaptureModeThreadLocal);
  fake::cuda().fail = "cudaMemcpyAsync";
  CHECK(error_of([&] { write_from_device(*tensor, source()); }));
  CHECK(mode_now() == cudaStreamCaptureModeThreadLocal);
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mine) == cudaSuccess);
}

TEST_CASE_METHOD(Fixture, "a target of another size is refused, and is as it was") {
  for (const std::uint64_t size : {kSize - 1, kSize + 1}) {
    std::vector<std::byte> target(size, std::byte{5});
    CHECK(error_of([&] { copy_from_device(target, source()); })->code() == Errc::layout);
    CHECK((target == std::vector<std::byte>(size, std::byte{5})));
  }
}

TEST_CASE_METHOD(Fixture, "nothing of nothing needs no device") {
  fake::cuda().devices = 0;
  write_from_device(*tensor, {}, kSize);
  copy_from_device({}, {});
  CHECK(error_of([&] { copy_from_device({}, source()); })->code() == Errc::layout);
}
