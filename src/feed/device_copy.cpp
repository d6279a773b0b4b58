#include "feed/device_copy.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {
namespace {

struct Piece {
  std::uint64_t from = 0;
  std::uint64_t size_bytes = 0;
};

// The first piece ends at a chunk of the tensor, so that all behind it are whole chunks.
Piece piece_at(std::uint64_t from, const CopyPlan& plan, std::uint64_t buffer_bytes) {
  const std::uint64_t room = buffer_bytes - (plan.offset + from) % kChunkBytes;
  return {from, std::min(room, plan.size_bytes - from)};
}

template <class Copy>
class Settled {
 public:
  explicit Settled(Copy& copy) : copy_(copy) {}
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;
  ~Settled() { copy_.settle(); }

 private:
  Copy& copy_;
};

// The pieces that the consumer may use, by their buffers.
class GivenPieces {
 public:
  GivenPieces(unsigned buffers, const TakeBack& take_back) : take_back_(take_back) {
    if (take_back) pieces_.resize(buffers);
  }
  GivenPieces(const GivenPieces&) = delete;
  GivenPieces& operator=(const GivenPieces&) = delete;
  ~GivenPieces() {
    for (unsigned buffer = 0; buffer < pieces_.size(); ++buffer) take_back(buffer);
  }

  void give(unsigned buffer, std::span<const std::byte> bytes) {
    if (take_back_) pieces_[buffer] = bytes;
  }
  void take_back(unsigned buffer) {
    if (!take_back_) return;
    const auto bytes = std::exchange(pieces_[buffer], {});
    if (!bytes.empty()) take_back_(bytes);
  }

 private:
  const TakeBack& take_back_;
  std::vector<std::span<const std::byte>> pieces_;
};

}  // namespace

void copy_in_pieces(DeviceCopy& copy, const CopyPlan& plan, const ConsumePiece& consume,
                    const TakeBack& take_back) {
  const PieceRing ring = copy.ring();
  GivenPieces given(ring.pieces, take_back);
  const Settled settled(copy);
  Piece piece = piece_at(0, plan, ring.piece_bytes);
  unsigned buffer = 0;
  if (piece.size_bytes > 0) copy.begin(buffer, plan.from, piece.size_bytes);
  while (piece.size_bytes > 0) {
    const unsigned other = (buffer + 1) % ring.pieces;
    const Piece next = piece_at(piece.from + piece.size_bytes, plan, ring.piece_bytes);
    const auto begin_next = [&] {
      if (next.size_bytes == 0) return;
      given.take_back(other);
      copy.begin(other, plan.from + next.from, next.size_bytes);
    };
    if (other != buffer) begin_next();
    const auto bytes = copy.wait(buffer);
    given.give(buffer, bytes);
    consume(bytes, plan.from + piece.from);
    if (other == buffer) begin_next();
    piece = next;
    buffer = other;
  }
}

void fill_in_pieces(DeviceFill& fill, const CopyPlan& plan, const ProducePiece& produce) {
  const Settled settled(fill);
  unsigned buffer = 0;
  for (Piece piece = piece_at(0, plan, fill.buffer_bytes()); piece.size_bytes > 0;
       piece = piece_at(piece.from + piece.size_bytes, plan, fill.buffer_bytes())) {
    produce(fill.room(buffer, piece.size_bytes), plan.from + piece.from);
    fill.begin(buffer, plan.from + piece.from, piece.size_bytes);
    buffer = (buffer + 1) % kFillBuffers;
  }
  fill.finish();
}

}  // namespace tensorshelf
