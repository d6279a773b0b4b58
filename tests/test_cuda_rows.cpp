// Device memory with gaps, both ways, on a runtime of host memory (fake_cudart.hpp): each byte
// moved once, no memory taken and no kernel launched there, for the runtime has neither.
#include <tensorshelf/cuda.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include <tensorshelf/pipeline.hpp>
#include <tensorshelf/shelf.hpp>

#include "catch.hpp"
#include "fake_cudart.hpp"
#include "feed/device_lines.hpp"
#include "feed/strided.hpp"
#include "media/memory/medium.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

using Bytes = std::vector<std::byte>;

// How a program would index it.
std::vector<std::int64_t> places(std::uint64_t size, const std::vector<DeviceAxis>& axes) {
  std::uint64_t rows = 1;
  for (const DeviceAxis& axis : axes) rows *= axis.count;
  std::vector<std::int64_t> found;
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::int64_t at = 0;
    std::uint64_t rest = row;
    for (std::size_t i = axes.size(); i-- > 0;) {
      at += static_cast<std::int64_t>(rest % axes[i].count) * axes[i].step_bytes;
      rest /= axes[i].count;
    }
    for (std::uint64_t i = 0; i < size / rows; ++i) found.push_back(at++);
  }
  return found;
}

struct Fixture {
  Fixture() {
    auto medium = make_memory_medium(64 * kChunkBytes, 64 * kChunkBytes);
    Shelf::format(*medium);
    shelf.emplace(Shelf::open(std::move(medium)));
    fake::cuda() = {};
    memory.resize(24 * kChunkBytes);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = static_cast<std::byte>(i * 2654435761 >> 9);
    }
    fake::add_memory(memory.data(), memory.size(), 0);
  }

  TensorRef make(std::uint64_t size) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
    return shelf->create("x", DType::uint8, shape);
  }

  Bytes memory;
  std::optional<Shelf> shelf;
};

struct Row {
  const char* what;
  std::uint64_t begin;  // of the memory
  std::uint64_t size;
  std::vector<DeviceAxis> axes;
  int flat;  // calls that copy consecutive bytes
  int rows;  // and rows
};

const std::int64_t kMiB = kChunkBytes;
// Sizes in pieces of 8 MiB.
const Row kRows[] = {
    {"columns, w[:, :10]", 64, 40 * 1000, {{1000, 400}}, 0, 1},
    {"one column", 8, 4 * 777, {{777, 64}}, 0, 1},
    {"rows that are cut by pieces", 0, 10 * 1500000, {{10, 2000000}}, 2, 2},
    {"rows longer than a piece", 5, 2 * 9 * kChunkBytes, {{2, 10 * kMiB}}, 4, 0},
    {"rows that adjoin", 0, 100 * 16, {{100, 16}}, 1, 0},
    {"a part of a part", 16, 6 * 7 * 100, {{6, 10000}, {7, 400}}, 0, 6},
    {"the same transposed", 16, 7 * 6 * 100, {{7, 400}, {6, 10000}}, 0, 7},
    {"one before the other", 5000, 6 * 100, {{6, -1000}}, 6, 0},
    {"one over the other", 100, 50 * 16, {{50, 4}}, 50, 0},
    {"one again and again", 100, 30 * 16, {{30, 0}}, 30, 0},
    {"three axes", 0, 2 * 3 * 4 * 8, {{2, 4096}, {3, 512}, {4, 16}}, 0, 6},
    {"axes of one part", 0, 50 * 8, {{1, 0}, {50, 16}, {1, 0}}, 50, 0},
};

}  // namespace

TEST_CASE_METHOD(Fixture, "what lies with gaps is copied as it lies, each byte once") {
  for (const Row& row : kRows) {
    INFO(row.what);
    fake::cuda().calls.clear();
    fake::cuda().bytes = 0;
    TensorRef tensor = make(row.size);
    const auto first = memory.data() + row.begin;
    write_from_device(tensor, {.data = first, .size_bytes = row.size, .axes = row.axes});
    CHECK(fake::cuda().bytes == row.size);
    CHECK(fake::cuda().calls["cudaMemcpyAsync"] == row.flat);
    CHECK(fake::cuda().calls["cudaMemcpy2DAsync"] == row.rows);
    Bytes expected;
    for (const auto at : places(row.size, row.axes)) expected.push_back(first[at]);
    Bytes found(row.size);
    tensor.read(found);
    CHECK((found == expected));

    // And back, into other memory; what lies between stays.
    Bytes target(memory.size(), std::byte{0xEE});
    Bytes filled = target;
    fake::add_memory(target.data(), target.size(), 1);
    const auto to = target.data() + row.begin;
    read_to_device(tensor, {.data = to, .size_bytes = row.size, .axes = row.axes});
    for (const auto at : places(row.size, row.axes)) filled[row.begin + at] = first[at];
    CHECK((target == filled));
    CHECK(fake::cuda().bytes == 2 * row.size);
    shelf->erase("x");
  }
}

TEST_CASE("any cut of any layout has its bytes in their order") {
  const auto seed = GENERATE(range(1U, 4U));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 300; ++round) {
    std::vector<DeviceAxis> axes(below(4));
    std::uint64_t size = 1 + below(9);
    for (DeviceAxis& axis : axes) {
      axis = {1 + below(5), static_cast<std::int64_t>(below(400)) - 100};
      size *= axis.count;
    }
    const auto all = places(size, axes);
    const std::uint64_t from = below(size);
    const std::uint64_t count = below(size - from + 1);
    std::vector<std::int64_t> found;
    Strided(size, axes).cut(from, count, [&](const Rows& rows, std::uint64_t place) {
      REQUIRE(place == found.size());
      for (std::uint64_t i = 0; i < rows.count; ++i) {
        for (std::uint64_t byte = 0; byte < rows.row_bytes; ++byte) {
          found.push_back(rows.at + static_cast<std::int64_t>(i) * rows.pitch +
                          static_cast<std::int64_t>(byte));
        }
      }
    });
    INFO("round " << round);
    REQUIRE(found == std::vector(all.begin() + static_cast<std::ptrdiff_t>(from),
                                 all.begin() + static_cast<std::ptrdiff_t>(from + count)));
  }
}

// As views of a tensor lie: axes cut, taken in another order, some backwards or of one place.
TEST_CASE_METHOD(Fixture, "any view is saved and loaded as indexing would") {
  const auto seed = GENERATE(range(1U, 25U));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  const std::int64_t widths[] = {1, 2, 4, 8, 16, 1000, 70000};
  const std::int64_t width = widths[below(std::size(widths))];
  const std::int64_t most = width < 1000 ? kMiB / 4 : 10 * kMiB;  // more than a piece
  std::vector<DeviceAxis> axes;
  std::int64_t reach = width;  // of what is within
  std::uint64_t size = width;
  std::int64_t first = 0;
  while (axes.size() < 4) {
    const std::int64_t count = 1 + below(1 + std::min(std::int64_t{300}, most / reach));
    const std::int64_t step = reach + below(2) * below(100);
    if (step * count > most) break;
    const bool backwards = below(5) == 0;
    if (backwards) first += (count - 1) * step;
    axes.push_back({static_cast<std::uint64_t>(count), backwards ? -step : step});
    size *= count;
    reach = step * (count - 1) + reach;
  }
  std::ranges::shuffle(axes, random);
  const std::int64_t offset = below(2) * below(2 * kMiB);  // in the tensor
  CAPTURE(width, axes.size(), size, offset);
  const auto all = places(size, axes);

  TensorRef tensor = make(size + offset);
  std::byte* const data = memory.data() + first;
  CUstream_st stream{.device = 0, .work = {}};
  fake::queue(&stream, [&] { data[all.back()] ^= std::byte{1}; });
  write_from_device(tensor, {.data = data, .size_bytes = size, .stream = &stream, .axes = axes},
                    offset);
  Bytes expected(offset);
  for (const auto at : all) expected.push_back(data[at]);
  Bytes found(size + offset);
  tensor.read(found);
  CHECK((found == expected));
  Bytes host(size);
  copy_from_device(host, {.data = data, .size_bytes = size, .axes = axes});
  CHECK(std::ranges::equal(host, std::span(expected).subspan(offset)));

  // Behind what clears it, and nothing between the parts changes.
  Bytes then = memory;
  fake::queue(&stream, [&] {
    for (const auto at : all) data[at] = std::byte{0xEE};
  });
  read_to_device(tensor, {.data = data, .size_bytes = size, .stream = &stream, .axes = axes},
                 offset);
  CHECK((memory == then));
}

TEST_CASE_METHOD(Fixture, "rows farther apart than CUDA takes are copied one by one") {
  const std::size_t room = (std::size_t{1} << 31) + 4096;
  void* const far = ::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(far != MAP_FAILED);
  fake::add_memory(far, room, 0);
  const std::int64_t farthest = 0x7fffffff;
  for (const std::int64_t step : {farthest, farthest + 1}) {
    CAPTURE(step);
    fake::cuda().calls.clear();
    std::memcpy(far, "near", 4);
    std::memcpy(static_cast<char*>(far) + step, "far.", 4);
    Bytes found(8);
    copy_from_device(found, {.data = far, .size_bytes = 8, .axes = {{2, step}}});
    CHECK(std::memcmp(found.data(), "nearfar.", 8) == 0);
    CHECK(fake::cuda().calls["cudaMemcpy2DAsync"] == (step == farthest ? 1 : 0));
    CHECK(fake::cuda().calls["cudaMemcpyAsync"] == (step == farthest ? 0 : 2));
  }
  ::munmap(far, room);
}

TEST_CASE_METHOD(Fixture,
                 "axes that the bytes do not have are refused before anything is written") {
  TensorRef tensor = make(100);
  for (const std::vector<DeviceAxis>& axes :
       {std::vector<DeviceAxis>{{3, 50}}, {{0, 50}}, {{10, 50}, {20, 1}}, {{200, 1}}}) {
    const DeviceBytes source = {.data = memory.data(), .size_bytes = 100, .axes = axes};
    CHECK(code_of([&] { write_from_device(tensor, source); }) == Errc::bad_argument);
    Bytes host(100);
    CHECK(code_of([&] { copy_from_device(host, source); }) == Errc::bad_argument);
    CHECK(code_of([&] {
            read_to_device(tensor, {.data = memory.data(), .size_bytes = 100, .axes = axes});
          }) == Errc::bad_argument);
    CHECK(code_of([&] { SavePlan({{tensor, source, true}}); }) == Errc::bad_argument);
  }
  CHECK(fake::cuda().calls["cudaMemcpyAsync"] == 0);
  Bytes found(100);
  tensor.read(found);
  CHECK((found == Bytes(100)));
}

TEST_CASE_METHOD(Fixture,
                 "a copy of rows that fails leaves none under way, and the value as it was") {
  const bool parts = GENERATE(false, true);  // several calls for each piece
  CAPTURE(parts);
  const std::uint64_t size = parts ? 4 * 500 * 4000 : 6000 * 4000;
  TensorRef tensor = make(size);
  const std::vector<DeviceAxis> axes = parts ? std::vector<DeviceAxis>{{4, 3000000}, {500, 5000}}
                                             : std::vector<DeviceAxis>{{6000, 4100}};
  for (int at = 1; at <= 3; ++at) {
    fake::cuda().calls.clear();
    fake::cuda().fail = "cudaMemcpy2DAsync";
    fake::cuda().fail_at = at;
    CHECK(code_of([&] {
            write_from_device(tensor, {.data = memory.data(), .size_bytes = size, .axes = axes});
          }) == Errc::io);
    CHECK(fake::cuda().last == cudaSuccess);
    Bytes found(size);
    tensor.read(found);
    CHECK((found == Bytes(size)));
    fake::cuda().calls.clear();
    CHECK(code_of([&] {
            read_to_device(tensor, {.data = memory.data(), .size_bytes = size, .axes = axes});
          }) == Errc::io);
    const Bytes then = memory;
    fake::run_all();
    CHECK((memory == then));
  }
}

TEST_CASE_METHOD(Fixture, "a pipeline saves them, lazy or queued, and compares their chunks") {
  const bool lazy = GENERATE(false, true);
  CAPTURE(lazy);
  const std::vector<DeviceAxis> axes = {{3000, 4096}};
  const std::uint64_t size = lazy ? 3000 * 1000 : 3000 * 100;
  TensorRef tensor = make(size);
  shelf->persist(1);
  CUstream_st stream{.device = 0, .work = {}};
  const DeviceBytes source = {
      .data = memory.data() + 24, .size_bytes = size, .stream = &stream, .axes = axes};
  const auto plan = std::make_shared<const SavePlan>(std::vector<Source>{{tensor, source, lazy}});
  Pipeline pipeline(*shelf, {.check_one_in = 1});
  fake::queue(&stream, [&] { memory[24] = std::byte{77}; });
  pipeline.save(plan, 2).value().wait_durable();
  Bytes expected;
  for (const auto at : places(size, axes)) expected.push_back(memory[24 + at]);
  Bytes found(size);
  tensor.read_committed(found);
  CHECK((found == expected));
  CHECK(found[0] == std::byte{77});
  const std::uint64_t lines = fake::cuda().bytes - (lazy ? 2 * size : size);
  CHECK(lines <= (lazy ? 2 * kLineBytes : 0));  // of one row, before and behind
  CHECK(fake::cuda().disturbed == 0);
}
