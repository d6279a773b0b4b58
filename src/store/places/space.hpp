// A set of free ranges: of bytes on the medium, or of cells in the manifest. It is never stored:
// what is free follows from what retained roots name. Where memory runs out (std::bad_alloc) it is
// as it was before the call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {

class Space {
 public:
  // [at, at + size) becomes free; it must not be free already. Of all here, only this and take_at()
  // may need memory: for a range with no free neighbour, and for one cut out of the middle.
  void release(std::uint64_t at, std::uint64_t size);

  // Takes `size` from the smallest range that holds it, at its low end; the lowest such range.
  std::optional<std::uint64_t> take(std::uint64_t size);
  // The same from the lowest range that holds it, and from the highest, at its high end.
  std::optional<std::uint64_t> take_low(std::uint64_t size);
  std::optional<std::uint64_t> take_high(std::uint64_t size);
  // Takes exactly [at, at + size); false where any of it is not free.
  bool take_at(std::uint64_t at, std::uint64_t size);
  // Takes what lies at `at` or behind it of the highest range, and no more than `most`, at its high
  // end. Nothing where there is none. Needs no memory.
  std::optional<Extent> take_from(std::uint64_t at, std::uint64_t most = ~std::uint64_t{0});
  std::uint64_t highest_from(std::uint64_t at) const;  // how much that is, whatever the most
  // Takes the low end of the lowest range, at most so much. There must be one.
  Extent take_lowest(std::uint64_t most);

  std::uint64_t total() const { return total_; }
  std::uint64_t largest() const;
  // Where the range begins that ends there; `end` where none does.
  std::uint64_t free_before(std::uint64_t end) const;

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // start -> size
  void cut(Ranges::iterator range, std::uint64_t at, std::uint64_t size);
  void replace(Ranges::iterator range, std::uint64_t at, std::uint64_t size);

  Ranges ranges_;
  std::uint64_t total_ = 0;
};

}  // namespace tensorshelf
