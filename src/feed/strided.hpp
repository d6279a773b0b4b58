// Bytes with gaps between them, cut into what one copy of rows at equal distances brings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tensorshelf/cuda.hpp>

namespace tensorshelf {

struct Rows {
  std::int64_t at = 0;  // of the first, from the first byte of all
  std::uint64_t row_bytes = 0;
  std::uint64_t count = 1;
  std::int64_t pitch = 0;  // from one to the next

  bool adjoin() const { return count == 1 || pitch == static_cast<std::int64_t>(row_bytes); }
};

class Strided {
 public:
  // Errc::bad_argument where the counts of the axes do not divide the bytes.
  Strided(std::uint64_t size_bytes, std::vector<DeviceAxis> axes);

  // Calls visit(rows, place) for bytes [from, from + size_bytes) in their order; `place` is 0 at
  // `from`.
  template <class Visit>
  void cut(std::uint64_t from, std::uint64_t size_bytes, Visit visit) const {
    for (std::uint64_t done = 0; done < size_bytes;) {
      const Rows rows = next(from + done, size_bytes - done);
      visit(rows, done);
      done += rows.count * rows.row_bytes;
    }
  }

 private:
  Rows next(std::uint64_t from, std::uint64_t most_bytes) const;

  std::uint64_t row_bytes_;  // of each, of the innermost axis
  std::vector<DeviceAxis> axes_;
};

}  // namespace tensorshelf
