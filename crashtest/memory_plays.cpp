#include "memory_plays.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "model.hpp"
#include "tests/asleep.hpp"
#include "tests/fading_medium.hpp"

namespace tensorshelf::crash {
namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::array<std::int64_t, 1>;

constexpr std::int64_t kMiB = 1024 * 1024;

Bytes value(std::int64_t size_bytes, std::uint64_t serial) {
  Bytes bytes(static_cast<std::size_t>(size_bytes));
  stamp(bytes, "a", serial, 0);
  return bytes;
}

}  // namespace

// A tensor of thousands of chunks comes too late for its name: the one that was faster has its
// cells behind those, and a manifest that reaches as far.
std::string pages_are_there_for_every_commit() {
  auto medium = std::make_unique<testing::FadingMedium>(1ULL << 36);
  Shelf::format(*medium);
  Shelf shelf =
      Shelf::open(std::move(medium), {.mode = Mode::update, .placement = Placement::by_chunk});
  {
    Assignment late = shelf.create_with("x", DType::uint8, Shape{4000 * kMiB});
    testing::Waiter faster([&] { shelf.create("x", DType::uint8, Shape{10}); });
    if (!faster.waits()) return "a tensor is created beside an assignment";
    try {
      late.done();
      return "two tensors have one name";
    } catch (const Error& error) {
      if (error.code() != Errc::name_taken) throw;
    }
  }
  try {
    shelf.persist(1);
  } catch (const std::bad_alloc&) {
    return "there are no pages left for what was created";
  }
  return "";
}

// Both edges of what is assigned are merged with what was there. The mapping of the second is lost,
// and its bytes are read instead.
std::string lost_view_costs_no_other_chunk() {
  auto countdown = std::make_shared<unsigned>(0);
  auto medium = std::make_unique<testing::FadingMedium>(64 * kMiB, countdown);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium), {.mode = Mode::update});
  TensorRef tensor = shelf.create("a", DType::uint8, Shape{3 * kMiB});
  Bytes expected = value(3 * kMiB, 1);
  tensor.write(expected);
  shelf.persist(1);
  const Bytes part = value(2 * kMiB, 2);
  std::copy(part.begin(), part.end(), expected.begin() + kMiB / 2);
  *countdown = 2;
  tensor.write(part, kMiB / 2);
  if (*countdown != 0) return "no view was lost";
  Bytes shown(expected.size());
  tensor.read(shown);
  return shown == expected ? "" : "a chunk has bytes of another one";
}

}  // namespace tensorshelf::crash
