// A set of free ranges: of bytes on the medium, or of cells in the manifest. It is never stored:
// what is free follows from what retained roots name. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tensorshelf {

class Space {
 public:
  // [at, at + size) becomes free; it must not be free already.
  void release(std::uint64_t at, std::uint64_t size);

  // Takes `size` from the smallest range that holds it, at its low end; the lowest such range.
  std::optional<std::uint64_t> take(std::uint64_t size);
  // The same from the highest range that holds it, at its high end.
  std::optional<std::uint64_t> take_high(std::uint64_t size);
  // Takes exactly [at, at + size); false where any of it is not free.
  bool take_at(std::uint64_t at, std::uint64_t size);

  std::uint64_t total() const { return total_; }
  std::uint64_t largest() const;

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // start -> size
  void cut(Ranges::iterator range, std::uint64_t at, std::uint64_t size);

  Ranges ranges_;
  std::uint64_t total_ = 0;
};

}  // namespace tensorshelf
