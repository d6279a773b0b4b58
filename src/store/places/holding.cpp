#include "store/places/holding.hpp"

namespace tensorshelf {

Holding::Piece::~Piece() {
  if (!heap) return;
  if (size_bytes > 0) heap->release(Extent{at, size_bytes});
  if (cells.count > 0) heap->release(cells);
}

void Holding::share() {
  if (shared_ != nullptr) return;
  auto shared = std::make_unique<Shared>();
  shared->kin = std::make_shared<Kin>();
  auto& pieces = shared->pieces;
  pieces.resize(slot_at_.size() + 1);
  for (auto& piece : pieces) piece = std::make_shared<Piece>();
  for (std::size_t i = 0; i < slot_at_.size(); ++i) (*shared->kin)[slot_at_[i]] = pieces[i];
  for (std::size_t i = 0; i < slot_at_.size(); ++i) {  // from here on nothing throws
    pieces[i]->at = slot_at_[i];
    pieces[i]->size_bytes = extent_bytes_;
    pieces[i]->heap = heap_;
  }
  pieces.back()->cells = cells_;
  pieces.back()->heap = std::exchange(heap_, nullptr);
  shared_ = std::move(shared);
}

Holding::Holding(Holding& other, std::span<const std::uint64_t> slot_at)
    : extent_bytes_(other.extent_bytes_),
      slot_at_(other.slot_at_.size()),
      cells_(other.cells_),
      shared_(std::make_unique<Shared>()) {
  other.share();
  std::copy_n(slot_at.begin(), slot_at_.size(), slot_at_.begin());
  shared_->kin = other.shared_->kin;
  Kin& kin = *shared_->kin;
  std::erase_if(kin, [](const auto& each) { return each.second.expired(); });
  for (const std::uint64_t at : slot_at_) {
    std::weak_ptr<Piece>& known = kin[at];
    std::shared_ptr<Piece> piece = known.lock();
    if (!piece) {
      piece = std::make_shared<Piece>();
      piece->at = at;
      piece->size_bytes = extent_bytes_;
      known = piece;
    }
    shared_->pieces.push_back(std::move(piece));
  }
  shared_->pieces.push_back(other.shared_->pieces.back());
}

void Holding::adopt(const std::shared_ptr<Heap>& heap) {
  if (shared_ == nullptr) {
    heap_ = heap;
    return;
  }
  for (const auto& piece : shared_->pieces) {
    if (!piece->heap) piece->heap = heap;
  }
}

void Holding::give_back() noexcept {
  shared_.reset();
  const auto heap = std::exchange(heap_, nullptr);
  if (!heap) return;
  for (const std::uint64_t at : slot_at_) heap->release(Extent{at, extent_bytes_});
  heap->release(cells_);
}

}  // namespace tensorshelf
