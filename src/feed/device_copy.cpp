#include "feed/device_copy.hpp"

#include <algorithm>

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

}  // namespace

void copy_in_pieces(DeviceCopy& copy, const CopyPlan& plan, const ConsumePiece& consume) {
  const Settled settled(copy);
  const std::uint64_t room = copy.buffer_bytes();
  Piece piece = piece_at(0, plan, room);
  unsigned buffer = 0;
  if (piece.size_bytes > 0) copy.begin(buffer, plan.from, piece.size_bytes);
  while (piece.size_bytes > 0) {
    const unsigned other = (buffer + 1) % kDeviceBuffers;
    const Piece next = piece_at(piece.from + piece.size_bytes, plan, room);
    if (next.size_bytes > 0) copy.begin(other, plan.from + next.from, next.size_bytes);
    consume(copy.wait(buffer), plan.from + piece.from);
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
    buffer = (buffer + 1) % kDeviceBuffers;
  }
  fill.finish();
}

}  // namespace tensorshelf
