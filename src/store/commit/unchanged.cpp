// Chunks that are assigned the bytes which they have, or had when they were copied.
#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "store/commit/stager.hpp"
#include "store/io/untrusted.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

// Whether each chunk that is assigned has those bytes already (OpenOptions::keep_unchanged), sound,
// in a slot that the version under the attempt names. Empty where that is not asked for.
std::vector<char> Stager::find_unchanged(const StoredTensor& tensor,
                                         std::span<const std::byte> bytes,
                                         std::uint64_t offset) const {
  if (!state_.asked.keep_unchanged || bytes.empty()) return {};
  const std::uint64_t first = offset / kChunkBytes;
  std::vector<char> unchanged((offset + bytes.size() - 1) / kChunkBytes - first + 1);
  auto compare = [&](std::size_t part) {
    const std::uint64_t chunk = first + part;
    const std::uint64_t begin = chunk * kChunkBytes;
    const std::uint64_t size = tensor.chunk_bytes(chunk);
    if (begin < offset || begin + size > offset + bytes.size()) return;  // in part
    const ChunkRecord now = state_.open->base->tree.record(tensor.cell(chunk));
    if (format::chunk_kind(now) != ChunkKind::stored) return;
    const bool sound = tensor.verified(format::chunk_slot(now), chunk);
    if (!sound && !planted(Bug::unchanged_unverified)) return;
    const std::uint64_t seed = tensor.chunk_seed(state_.seeds, chunk);
    // The caller's memory may be a view of a file that was cut short: copying it then says so.
    const auto hash = UntrustedBytes(bytes.subspan(begin - offset, size)).hash(seed);
    unchanged[part] = hash == now.checksum ? 1 : 0;
  };
  sharing.share(threads_for(state_, bytes.size()), unchanged.size(), PartJob(compare));
  return unchanged;
}

bool Stager::has(StoredTensor& tensor, std::uint64_t chunk,
                 std::span<const std::byte> bytes) const {
  ChunkRecord now;
  {
    const std::lock_guard lock(tensor.mutex);
    tensor.check_there();
    now = present_record(tensor, chunk);
  }
  const std::uint64_t seed = tensor.chunk_seed(state_.seeds, chunk);
  return format::chunk_kind(now) == ChunkKind::stored &&
         UntrustedBytes(bytes).hash(seed) == now.checksum;
}

}  // namespace tensorshelf
