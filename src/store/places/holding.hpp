// What one tensor owns: its slots on the heap and its cells in the manifest. Held by every version
// that has the tensor, by the attempt under way, by each lease and for as long as it is read; when
// the last of them goes, all is given back (I3).
//
// Where a slot of it was moved (moves.cpp), versions have several holdings of one tensor, which
// share what they have in common: a place is given back when the last version that names it goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/small_array.hpp"
#include "format/format.hpp"
#include "store/places/heap.hpp"

namespace tensorshelf {

class Holding {
 public:
  explicit Holding(const format::TensorLayout& layout)
      : extent_bytes_(layout.extent_bytes()),
        slot_at_(layout.size_bytes == 0 ? 0 : layout.slot_at.size()),
        cells_{layout.first_cell, layout.cell_count()} {
    std::copy_n(layout.slot_at.begin(), slot_at_.size(), slot_at_.begin());
  }
  // The same tensor's, where some of its slots lie elsewhere. One thread at a time does this to
  // holdings of one tensor. Where memory runs out, `other` is as it was.
  Holding(Holding& other, std::span<const std::uint64_t> slot_at);
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { give_back(); }

  // To whom it goes back. Until then, and where nothing is ever written, it is nobody's.
  void adopt(const std::shared_ptr<Heap>& heap);

  void give_back() noexcept;

  bool lies_at(std::span<const std::uint64_t> slot_at) const {
    return slot_at_.size() == 0 || std::equal(slot_at_.begin(), slot_at_.end(), slot_at.begin());
  }
  std::span<const std::uint64_t> slot_at() const { return {slot_at_.begin(), slot_at_.size()}; }

  // Those of its slots, of which a striped one has several; none where it has no bytes.
  std::optional<Extent> place(unsigned index) const {
    if (index >= slot_at_.size()) return std::nullopt;
    return Extent{slot_at_[index], extent_bytes_};
  }
  const CellRun& cells() const { return cells_; }

  bool shares() const { return shared_ != nullptr; }
  // What tells who owns a place, and the cells: what two holdings share has one owner.
  const void* owner(unsigned index) const {
    return shared_ == nullptr ? static_cast<const void*>(this) : shared_->pieces[index].get();
  }
  const void* cells_owner() const {
    return shared_ == nullptr ? static_cast<const void*>(this) : shared_->pieces.back().get();
  }

 private:
  struct Piece {  // a place, or the cells
    std::uint64_t at = 0;
    std::uint64_t size_bytes = 0;
    CellRun cells = {};
    std::shared_ptr<Heap> heap = {};

    Piece() = default;
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    ~Piece();
  };
  // What the holdings of one tensor own, by where it lies.
  using Kin = std::map<std::uint64_t, std::weak_ptr<Piece>>;
  struct Shared {
    std::vector<std::shared_ptr<Piece>> pieces = {};  // the places, in their order, and the cells
    std::shared_ptr<Kin> kin = {};
  };
  void share();

  std::uint64_t extent_bytes_;
  SmallArray<std::uint64_t, 4> slot_at_;
  CellRun cells_;
  std::shared_ptr<Heap> heap_;  // where it shares nothing
  std::unique_ptr<Shared> shared_;
};

}  // namespace tensorshelf
