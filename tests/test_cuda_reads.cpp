// Reading into CUDA memory, on a runtime of host memory (fake_cudart.hpp).
#include <tensorshelf/cuda.hpp>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "catch.hpp"
#include "fake_cudart.hpp"
#include "media/memory/medium.hpp"
#include "store_bench.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 9 * kChunkBytes + 17;  // three pieces
using Bytes = std::vector<std::byte>;

Bytes pattern(std::uint64_t seed) {
  Bytes bytes(kSize);
  for (std::uint64_t i = 0; i < kSize; ++i) {
    bytes[i] = static_cast<std::byte>((i + seed) * 2654435761 >> 11);
  }
  return bytes;
}

// What the n-th read of it gives from now on has a wrong byte.
class Rotting final : public SharedMedium {
 public:
  explicit Rotting(std::shared_ptr<Medium> medium) : SharedMedium(std::move(medium), false) {}
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    SharedMedium::read(at, bytes);
    if (at_read > 0 && --at_read == 0) bytes[0] ^= std::byte{1};
  }
  int at_read = 0;
};

// A shelf whose version 1 has pattern(1) as "x", and memory of device 1.
struct Fixture {
  Fixture() {
    auto medium = std::make_unique<Rotting>(make_memory_medium(64 * kChunkBytes, 64 * kChunkBytes));
    rot = medium.get();
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::move(medium)));
    const std::int64_t shape[] = {static_cast<std::int64_t>(kSize)};
    tensor.emplace(shelf->create("x", DType::uint8, shape));
    tensor->write(pattern(1));
    shelf->persist(1);
    fresh();
  }

  void fresh() {
    const fake::Cuda before = fake::cuda();
    fake::cuda() = {};
    fake::cuda().buffers = before.buffers;  // what is kept for later calls is there still
    fake::cuda().streams = before.streams;
    memory.assign(kSize, std::byte{0xEE});
    fake::add_memory(memory.data(), memory.size(), 1);
  }

  DeviceTarget target(cudaStream_t stream = nullptr) {
    return {.data = memory.data(), .size_bytes = kSize, .stream = stream};
  }

  Bytes memory;
  Rotting* rot = nullptr;
  std::optional<Shelf> shelf;
  std::optional<TensorRef> tensor;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "all bytes are there when the call returns, each copied once") {
  read_to_device(*tensor, target());
  CHECK((memory == pattern(1)));
  CHECK(fake::cuda().bytes == kSize);
  CHECK(fake::cuda().calls["cudaMemcpyAsync"] == 3);
  CHECK(fake::cuda().made_current == std::vector<int>{1, 0});
}

TEST_CASE_METHOD(Fixture, "what the target's stream still has to do comes first") {
  CUstream_st mine{.device = 1, .work = {}};
  Bytes seen;
  fake::queue(&mine, [&] { seen = memory; });
  fake::queue(&mine, [&] { memory.assign(kSize, std::byte{7}); });
  const Bytes before = memory;
  read_to_device(*tensor, target(&mine));
  CHECK((seen == before));
  CHECK((memory == pattern(1)));
  CHECK(mine.work.empty());
}

TEST_CASE_METHOD(Fixture, "the assigned value, the committed one, and that of a version") {
  tensor->write(pattern(2));
  read_to_device(*tensor, target());
  CHECK((memory == pattern(2)));
  read_committed_to_device(*tensor, target());
  CHECK((memory == pattern(1)));
  shelf->persist(2);
  const auto retained = shelf->at(2).find("x");
  REQUIRE(retained);
  tensor->write(pattern(3));
  read_to_device(*retained, target());
  CHECK((memory == pattern(2)));
}

TEST_CASE_METHOD(Fixture, "a part of the tensor, from any byte on") {
  const std::uint64_t offset = 3 * kChunkBytes + 77;
  const std::uint64_t count = 4 * kChunkBytes + 5;
  read_to_device(*tensor, {.data = memory.data() + 1, .size_bytes = count}, offset);
  const Bytes all = pattern(1);
  CHECK(std::equal(all.begin() + offset, all.begin() + offset + count, memory.begin() + 1));
  CHECK(memory[0] == std::byte{0xEE});
  CHECK(memory[count + 1] == std::byte{0xEE});
}

TEST_CASE_METHOD(Fixture, "what is read is of one moment: an assignment waits") {
  CUstream_st mine{.device = 1, .work = {}};
  std::future<void> late;
  fake::queue(&mine, [&] {  // when two pieces have been read
    late = std::async(std::launch::async, [&] { tensor->write(pattern(2)); });
    static_cast<void>(late.wait_for(std::chrono::milliseconds(20)));
  });
  read_to_device(*tensor, target(&mine));
  CHECK((memory == pattern(1)));
  late.get();
  read_to_device(*tensor, target());
  CHECK((memory == pattern(2)));
}

TEST_CASE_METHOD(Fixture, "what cannot be read into is refused, and is as it was") {
  struct Row {
    const char* what;
    std::function<void()> arrange;
    Errc code;
  };
  std::array<std::byte, 16> host = {};
  DeviceTarget to;
  std::uint64_t offset = 0;
  const Row rows[] = {
      {"no device", [] { fake::cuda().devices = 0; }, Errc::unsupported},
      {"host memory", [&] { to = {.data = host.data(), .size_bytes = 16}; }, Errc::bad_argument},
      {"a stream that captures", [] { fake::cuda().capturing = true; }, Errc::unsupported},
      {"no such device", [&] { to.device = 7; }, Errc::io},
      {"past the tensor's end", [&] { offset = 1; }, Errc::layout},
      {"far past it", [&] { offset = ~std::uint64_t{0}; }, Errc::layout},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    fresh();
    to = target();
    offset = 0;
    row.arrange();
    const auto error = error_of([&] { read_to_device(*tensor, to, offset); });
    REQUIRE(error);
    CHECK(error->code() == row.code);
    CHECK_FALSE(error->remedy().empty());
    CHECK((memory == Bytes(kSize, std::byte{0xEE})));
    CHECK(fake::cuda().last == cudaSuccess);
    CHECK(fake::cuda().current == 0);
  }
  CHECK(error_of([&] { read_to_device(*tensor, {.data = host.data(), .size_bytes = 16}); })
            ->remedy()
            .find("read()") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "a failure on the way: told, nothing under way, the next call works") {
  read_to_device(*tensor, target());
  CUstream_st mine{.device = 1, .work = {}};
  for (const char* function :
       {"cudaHostRegister", "cudaStreamCreate", "cudaEventCreate", "cudaStreamWaitEvent",
        "cudaEventRecord", "cudaMemcpyAsync", "cudaEventSynchronize", "cudaStreamSynchronize"}) {
    for (int at = 1; at <= (kSanitized ? 2 : 3); ++at) {
      INFO(function << ", call " << at);
      fake::cuda().calls.clear();
      fake::cuda().fail = function;
      fake::cuda().fail_at = at;
      const auto error = error_of([&] { read_to_device(*tensor, target(&mine)); });
      const bool settled_late = function == std::string("cudaStreamSynchronize") && at > 1;
      REQUIRE(error.has_value() == (fake::cuda().calls[function] >= at && !settled_late));
      if (error) {
        CHECK(error->code() == Errc::io);
        CHECK(fake::cuda().buffers == 0);
      }
      CHECK(fake::cuda().last == cudaSuccess);
      CHECK(fake::cuda().current == 0);
      const Bytes then = memory;  // nothing comes behind the call
      fake::run_all();
      CHECK((memory == then));
      CHECK(fake::cuda().buffers == fake::cuda().streams);
    }
  }
  fake::cuda().fail.clear();
  read_to_device(*tensor, target(&mine));
  CHECK((memory == pattern(1)));
}

TEST_CASE_METHOD(Fixture, "a damaged chunk is an error, behind which no copy is under way") {
  // In a piece that is read while the ones before it may be on their way.
  rot->at_read = GENERATE(1, 2, 3);
  const int read = rot->at_read;
  const auto error = error_of([&] { read_to_device(*tensor, target()); });
  REQUIRE(error);
  CHECK(error->code() == Errc::corrupt);
  CHECK(fake::cuda().calls["cudaMemcpyAsync"] == read - 1);
  const Bytes then = memory;
  fake::run_all();
  CHECK((memory == then));
  CHECK(fake::cuda().last == cudaSuccess);
  read_to_device(*tensor, target());
  CHECK((memory == pattern(1)));
}

TEST_CASE_METHOD(Fixture, "other threads' captures go on, and no bytes need no device") {
  read_to_device(*tensor, target());
  CHECK(fake::cuda().disturbed == 0);
  fake::cuda().devices = 0;
  read_to_device(*tensor, {}, kSize);
  CHECK(error_of([&] { read_to_device(*tensor, {}, kSize + 1); })->code() == Errc::layout);
}
