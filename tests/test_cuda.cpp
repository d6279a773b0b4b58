// Assigning from CUDA memory: what any machine can show, and what takes a device ("[device]", run
// by the test cuda_device, which is skipped where there is none).
#include <tensorshelf/build.hpp>
#include <tensorshelf/cuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "catch.hpp"
#include "media/block/medium.hpp"
#include "media/pmem/medium.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

#if TENSORSHELF_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

TensorRef make_tensor(Shelf& shelf, std::uint64_t size) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
  return shelf.create("x", DType::uint8, shape);
}

bool build_has(const std::string& name) {
  const auto parts = build_parts();
  const auto found = std::ranges::find(parts, name, &BuildPart::name);
  REQUIRE(found != parts.end());
  return found->there;
}

}  // namespace

TEST_CASE("the build says what it has") {
  const CudaSupport support = cuda_support();
  CHECK(support.built == bool{TENSORSHELF_TEST_CUDA});
  CHECK(support.built == build_has("cuda"));
  CHECK((support.runtime_version > 0) == support.built);
  CHECK((support.devices == 0) == !support.lacks.empty());
  CHECK(build_has("libpmem2") == pmem_supported());
  CHECK(build_has("liburing") == io_uring_supported());
  for (const BuildPart& part : build_parts()) CHECK(part.without.starts_with("no "));
}

TEST_CASE("without a device, or a build for one, an error says so and nothing is written") {
  if (cuda_support().devices > 0) return;  // the other test case's machine
  const scratch::Directory dir;
  Shelf shelf = Shelf::open(dir / "run.shelf");
  TensorRef tensor = make_tensor(shelf, 100);
  std::vector<std::byte> bytes(100, std::byte{3});
  const DeviceBytes source = {.data = bytes.data(), .size_bytes = bytes.size()};
  const DeviceTarget target = {.data = bytes.data(), .size_bytes = bytes.size()};
  for (const auto& use : {std::function<void()>([&] { write_from_device(tensor, source); }),
                          std::function<void()>([&] { copy_from_device(bytes, source); }),
                          std::function<void()>([&] { read_to_device(tensor, target); })}) {
    const auto error = error_of(use);
    REQUIRE(error);
    CHECK(error->code() == Errc::unsupported);
    CHECK(std::string(error->what()) == cuda_support().lacks);
    CHECK(error->remedy().find("host memory") != std::string::npos);
    CHECK((error->remedy().find("TENSORSHELF_CUDA=ON") != std::string::npos) == !build_has("cuda"));
  }
  std::vector<std::byte> found(100);
  tensor.read(found);
  CHECK(found == std::vector<std::byte>(100));
}

TEST_CASE("a device's bytes", "[.device]") {
  if (const CudaSupport support = cuda_support(); support.devices == 0) {
    std::printf("SKIPPED cuda_device: %s\n", support.lacks.c_str());
    std::fflush(stdout);
    std::_Exit(77);
  }
#if TENSORSHELF_TEST_CUDA
  const std::uint64_t size = 64 * kChunkBytes + 12345;
  const scratch::Directory dir;
  Shelf shelf = Shelf::open(dir / "run.shelf");
  TensorRef tensor = make_tensor(shelf, size);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, size) == cudaSuccess);
  std::vector<std::byte> expected(size);
  for (std::uint64_t i = 0; i < size; ++i)
    expected[i] = static_cast<std::byte>(i * 2654435761 >> 7);
  std::vector<std::byte> found(size);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const DeviceBytes source = {.data = memory, .size_bytes = size, .stream = stream};

  SECTION("whole, behind work that its stream is still busy with") {
    for (int i = 0; i < 2000; ++i) REQUIRE(cudaMemsetAsync(memory, i, size, stream) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(memory, expected.data(), size, cudaMemcpyHostToDevice, stream) ==
            cudaSuccess);
    write_from_device(tensor, source);
    REQUIRE(cudaMemset(memory, 0, size) == cudaSuccess);  // the source may change at once
    shelf.persist(1);
    tensor.read(found);
    CHECK(found == expected);
    CHECK(shelf.verify().damage.empty());
  }
  SECTION("in part, at any offset; and to host memory") {
    REQUIRE(cudaMemcpy(memory, expected.data(), size, cudaMemcpyHostToDevice) == cudaSuccess);
    const std::uint64_t offset = 3 * kChunkBytes + 77;
    const std::uint64_t count = 11 * kChunkBytes + 5;
    write_from_device(tensor, {.data = memory, .size_bytes = count, .stream = stream}, offset);
    tensor.read(found);
    CHECK(std::equal(expected.begin(), expected.begin() + count, found.begin() + offset));
    CHECK(found[offset - 1] == std::byte{0});
    CHECK(found[offset + count] == std::byte{0});
    copy_from_device(found, source);
    CHECK(found == expected);
  }
  SECTION("and back, whole and in part") {
    tensor.write(expected);
    shelf.persist(1);
    for (int i = 0; i < 100; ++i) REQUIRE(cudaMemsetAsync(memory, i, size, stream) == cudaSuccess);
    read_to_device(tensor, {.data = memory, .size_bytes = size, .stream = stream});
    REQUIRE(cudaMemcpy(found.data(), memory, size, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(found == expected);
    const std::uint64_t offset = 3 * kChunkBytes + 77;
    read_to_device(tensor, {.data = memory, .size_bytes = size - offset}, offset);
    REQUIRE(cudaMemcpy(found.data(), memory, size, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(std::equal(expected.begin() + offset, expected.end(), found.begin()));
    CHECK(std::equal(expected.end() - offset, expected.end(), found.end() - offset));
  }
  SECTION("host memory is refused") {
    const auto error =
        error_of([&] { write_from_device(tensor, {.data = found.data(), .size_bytes = size}); });
    REQUIRE(error);
    CHECK(error->code() == Errc::bad_argument);
  }
  SECTION("more bytes than there are") {
    const auto error = error_of([&] { write_from_device(tensor, source, 1); });
    REQUIRE(error);
    CHECK(error->code() == Errc::layout);
  }
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
#endif
}
