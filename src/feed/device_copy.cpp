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

class Settled {
 public:
  explicit Settled(DeviceCopy& copy) : copy_(copy) {}
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;
  ~Settled() { copy_.settle(); }

 private:
  DeviceCopy& copy_;
};

}  // namespace

void copy_in_pieces(DeviceCopy& copy, const CopyPlan& plan, const ConsumePiece& consume) {
  const Settled settled(copy);
  const std::uint64_t room = copy.buffer_bytes();
  Piece piece = piece_at(0, plan, room);
  unsigned buffer = 0;
  if (piece.size_bytes > 0) copy.begin(buffer, piece.from, piece.size_bytes);
  while (piece.size_bytes > 0) {
    const unsigned other = (buffer + 1) % kDeviceBuffers;
    const Piece next = piece_at(piece.from + piece.size_bytes, plan, room);
    if (next.size_bytes > 0) copy.begin(other, next.from, next.size_bytes);
    consume(copy.wait(buffer), piece.from);
    piece = next;
    buffer = other;
  }
}

}  // namespace tensorshelf
