// Copies from a device (cuda.hpp), by whichever DeviceCopy this build has: into a tensor or an
// assignment, and into host memory.
#include <fmt/format.h>

#include <cstring>

#include <tensorshelf/cuda.hpp>
#include <tensorshelf/error.hpp>

#include "feed/cuda/copies.hpp"
#include "feed/device_source.hpp"

namespace tensorshelf {
namespace {

constexpr unsigned kLentPieces = 4;

}  // namespace

PieceRing ring_for(bool takes_lent, unsigned pieces, std::uint64_t piece_bytes) {
  PieceRing ring;
  if (takes_lent) ring.pieces = kLentPieces;
  if (pieces != 0) ring.pieces = pieces;
  if (piece_bytes != 0) ring.piece_bytes = piece_bytes;
  return ring;
}

void assign_in_pieces(Assignment& assignment, DeviceCopy& copy, std::uint64_t size_bytes,
                      std::uint64_t offset, const std::function<void(std::uint64_t)>& copied) {
  copy_in_pieces(
      copy, {size_bytes, offset},
      [&](std::span<const std::byte> bytes, std::uint64_t from) {
        assignment.write_lent(bytes, offset + from);
        if (copied) copied(bytes.size());
      },
      [&](std::span<const std::byte> bytes) { assignment.await_lent(bytes); });
}

void write_from_device(TensorRef& tensor, const DeviceBytes& source, std::uint64_t offset) {
  // All of the range before any of it is written.
  const TensorInfo info = tensor.info();
  if (offset > info.size_bytes || source.size_bytes > info.size_bytes - offset) {
    throw Error(Errc::layout,
                fmt::format("{} bytes of device memory at byte {} of '{}', which has {}",
                            source.size_bytes, offset, info.name, info.size_bytes),
                "Stay within the tensor, or replace() it with a larger one.");
  }
  if (source.size_bytes == 0) return tensor.write({}, offset);
  Assignment assignment = tensor.assign();
  write_from_device(assignment, source, offset);
  assignment.done();
}

void write_from_device(Assignment& assignment, const DeviceBytes& source, std::uint64_t offset) {
  if (source.size_bytes == 0) return assignment.write({}, offset);
  const auto copy = make_cuda_copy(source, nullptr, ring_for(assignment.takes_lent()));
  assign_in_pieces(assignment, *copy, source.size_bytes, offset);
}

void copy_from_device(std::span<std::byte> target, const DeviceBytes& source) {
  if (target.size() != source.size_bytes) {
    throw Error(Errc::layout,
                fmt::format("{} bytes of device memory into {} of host memory", source.size_bytes,
                            target.size()),
                "Give a target of the same size.");
  }
  if (target.empty()) return;
  const auto copy = make_cuda_copy(source);
  copy_in_pieces(*copy, {source.size_bytes, 0},
                 [&](std::span<const std::byte> bytes, std::uint64_t from) {
                   std::memcpy(target.data() + from, bytes.data(), bytes.size());
                 });
}

}  // namespace tensorshelf
