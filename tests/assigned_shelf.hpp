// A shelf at version 1, with a tensor to be assigned in several ways.
#pragma once

#include <algorithm>
#include <vector>

#include "kept_versions.hpp"

namespace tensorshelf::testing {

inline Shape some_shape() {
  const bool mapped = GENERATE(true, false);
  const auto placement = GENERATE(Placement::whole, Placement::by_chunk);
  return {.keep = 0, .in_flight = 1, .mapped = mapped, .placement = placement};
}

// A shelf at version 1 with a tensor of pattern 1.
struct Rig {
  Kept kept;
  Shelf shelf;
  TensorRef w;
  std::vector<std::byte> first = pattern(kKeptBytes, 1);

  explicit Rig(const Shape& shape = some_shape())
      : kept(shape), shelf(kept.open()), w(make(shelf, "w", kKeptBytes)) {
    w.write(first);
    shelf.persist(1);
  }
  void check_reopened(const std::vector<std::byte>& expected) {
    shelf.close();
    const Shelf again = kept.open({.mode = Mode::read, .verify = Verify::on_open});
    CHECK((value(again.find("w").value()) == expected));
  }
};

inline void assign_and_let_go(TensorRef& tensor, const std::vector<std::byte>& bytes,
                              std::uint64_t offset = 0) {
  Assignment assignment = tensor.assign();
  assignment.write(bytes, offset);
}

inline void put(std::vector<std::byte>& target, const std::vector<std::byte>& bytes,
                std::size_t at) {
  std::copy(bytes.begin(), bytes.end(), target.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace tensorshelf::testing
