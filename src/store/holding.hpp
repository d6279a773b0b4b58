// What one tensor owns: its slots on the heap and its cells in the manifest. Held by every version
// that has the tensor, by the attempt under way, by each lease and for as long as it is read; when
// the last of them goes, all is given back (I3).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/format.hpp"
#include "store/heap.hpp"

namespace tensorshelf {

struct StoredTensor;

class Holding {
 public:
  explicit Holding(const format::TensorLayout& layout)
      : size_bytes_(layout.size_bytes),
        slot_at_(layout.slot_at),
        cells_{layout.first_cell, layout.cell_count()} {}
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { give_back(); }

  // To whom it goes back. Until then, and where nothing is ever written, it is nobody's.
  void adopt(std::shared_ptr<Heap> heap) { heap_ = std::move(heap); }

  void give_back() noexcept {
    const auto heap = std::exchange(heap_, nullptr);
    if (!heap) return;
    for (const std::uint64_t at : slot_at_) heap->release(Extent{at, size_bytes_});
    heap->release(cells_);
  }

  std::vector<Extent> slots() const {
    std::vector<Extent> extents;
    for (const std::uint64_t at : slot_at_) extents.push_back({at, size_bytes_});
    return size_bytes_ == 0 ? std::vector<Extent>() : extents;
  }
  const CellRun& cells() const { return cells_; }

 private:
  std::uint64_t size_bytes_;
  std::vector<std::uint64_t> slot_at_;
  CellRun cells_;
  std::shared_ptr<Heap> heap_;
};

// The tensors of one version.
struct Named {
  std::shared_ptr<StoredTensor> tensor;
  std::shared_ptr<Holding> holding;
};
// One that is part of no attempt yet: nobody finds it, and no commit has it.
struct NewTensor {
  Named named;
  bool replaces = false;  // a tensor of its name
  std::uint64_t staged_bytes = 0;
};

using Names = std::map<std::string, Named, std::less<>>;

}  // namespace tensorshelf
