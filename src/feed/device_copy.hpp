// Bytes of a device to the host in pieces, through a ring of buffers: while one is consumed, the
// copy into the next runs, and others may be on their way to the medium. And the other way, through
// two: while one is filled, the copy out of the other runs. Owns the order of begin and wait; what
// a device is stays behind DeviceCopy and DeviceFill, so that the order is tested without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <tensorshelf/cuda.hpp>
#include <tensorshelf/extent.hpp>

namespace tensorshelf {

// The buffers that a source comes through.
struct PieceRing {
  unsigned pieces = 2;  // 1: each is copied when the one before is done with
  std::uint64_t piece_bytes = 8 * kChunkBytes;  // a multiple of kChunkBytes

  bool operator==(const PieceRing&) const = default;
};
inline constexpr unsigned kFillBuffers = 2;  // that a target is filled through

// What was queued on a stream when it was made. A copy behind it sees all of that, and waits for
// nothing that is queued later.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual bool is_of(const DeviceBytes& source) const = 0;  // of that stream of that device
};

// One source on a device, and the buffers that its pieces go through.
class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;

  virtual PieceRing ring() const = 0;

  // Starts to copy bytes [from, from + size_bytes) of the source into a buffer, whose last bytes
  // nobody uses any more.
  virtual void begin(unsigned buffer, std::uint64_t from, std::uint64_t size_bytes) = 0;

  // The bytes that the last begin() into this buffer asked for, once they are there.
  virtual std::span<const std::byte> wait(unsigned buffer) = 0;

  // Returns when no copy is under way, however those that were have ended.
  virtual void settle() noexcept = 0;
};

// One target on a device, likewise.
class DeviceFill {
 public:
  virtual ~DeviceFill() = default;
  virtual std::uint64_t buffer_bytes() const = 0;

  // Room for so many bytes in a buffer, once the last copy out of it has ended.
  virtual std::span<std::byte> room(unsigned buffer, std::uint64_t size_bytes) = 0;

  // Starts to copy them, as they lie there by now, to byte `to` of the target.
  virtual void begin(unsigned buffer, std::uint64_t to, std::uint64_t size_bytes) = 0;

  // Returns when all copies have arrived.
  virtual void finish() = 0;
  virtual void settle() noexcept = 0;
};

// The copies of some sources, all queued when it was made. Where it was made without a mark, what
// their stream is given later comes behind them, and may change the sources. Destroying it waits
// for them.
class DeviceBatch {
 public:
  virtual ~DeviceBatch() = default;
  virtual std::size_t count() const = 0;
  virtual std::span<const std::byte> wait(std::size_t source) = 0;  // its bytes, once they are here
};

struct CopyPlan {
  std::uint64_t size_bytes = 0;
  std::uint64_t offset = 0;  // of the first byte in the tensor: pieces end where its chunks end
  std::uint64_t from = 0;    // the first byte of the source, or the target
};

// Called with each piece in turn and its place in the source.
using ConsumePiece = std::function<void(std::span<const std::byte> bytes, std::uint64_t from)>;
// Called with a piece that was consumed, or was to be when something was thrown: nobody uses its
// bytes any more when it returns. Throws nothing.
using TakeBack = std::function<void(std::span<const std::byte> bytes)>;

// Copies that much of the source. Whatever is thrown on the way, by the device or by the consumer,
// leaves when no copy is under way any more, and all pieces are back: the source and the buffers
// may be freed. Without `take_back` the bytes of a piece are gone when consume() returns.
void copy_in_pieces(DeviceCopy& copy, const CopyPlan& plan, const ConsumePiece& consume,
                    const TakeBack& take_back = {});

// Called for each piece in turn, with its room and its place in the target.
using ProducePiece = std::function<void(std::span<std::byte> room, std::uint64_t to)>;

// Fills that much of the target, and returns when it has arrived. What is thrown leaves as above.
void fill_in_pieces(DeviceFill& fill, const CopyPlan& plan, const ProducePiece& produce);

}  // namespace tensorshelf
