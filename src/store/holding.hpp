// What one tensor owns: its slots on the heap and its cells in the manifest. Held by every version
// that has the tensor, by the attempt under way, by each lease and for as long as it is read; when
// the last of them goes, all is given back (I3).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/small_array.hpp"
#include "format/format.hpp"
#include "store/heap.hpp"

namespace tensorshelf {

struct StoredTensor;

class Holding {
 public:
  explicit Holding(const format::TensorLayout& layout)
      : extent_bytes_(layout.extent_bytes()),
        slot_at_(layout.size_bytes == 0 ? 0 : layout.slot_at.size()),
        cells_{layout.first_cell, layout.cell_count()} {
    std::copy_n(layout.slot_at.begin(), slot_at_.size(), slot_at_.begin());
  }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { give_back(); }

  // To whom it goes back. Until then, and where nothing is ever written, it is nobody's.
  void adopt(std::shared_ptr<Heap> heap) { heap_ = std::move(heap); }

  void give_back() noexcept {
    const auto heap = std::exchange(heap_, nullptr);
    if (!heap) return;
    for (const std::uint64_t at : slot_at_) heap->release(Extent{at, extent_bytes_});
    heap->release(cells_);
  }

  // Those of its slots, of which a striped one has several; none where it has no bytes.
  std::optional<Extent> place(unsigned index) const {
    if (index >= slot_at_.size()) return std::nullopt;
    return Extent{slot_at_[index], extent_bytes_};
  }
  const CellRun& cells() const { return cells_; }

 private:
  std::uint64_t extent_bytes_;
  SmallArray<std::uint64_t, 4> slot_at_;
  CellRun cells_;
  std::shared_ptr<Heap> heap_;
};

// A tensor of one version.
struct Named {
  std::shared_ptr<StoredTensor> tensor;
  std::shared_ptr<Holding> holding;
  std::uint32_t records_leaf = 0;  // the leaf of the version's manifest that holds its record
};
// One that is part of no attempt yet: nobody finds it, and no commit has it.
struct NewTensor {
  Named named;
  bool replaces = false;  // a tensor of its name
  std::uint64_t staged_bytes = 0;
};

// By their names in that version, which lie in the tensors themselves (tensor_names.hpp).
using Names = std::map<std::string_view, Named>;

}  // namespace tensorshelf
