// What two retained versions have otherwise. A version names for each chunk who wrote it, and its
// checksum: where both are the same, so are the bytes, wherever they lie.
#include <algorithm>

#include "store/reading/catalog.hpp"

namespace tensorshelf {
namespace {

using format::ChunkRecord;

constexpr unsigned kLookedAtOnce = 1024;  // chunks; commits go on in between

bool same_value(const ChunkRecord& a, const ChunkRecord& b) {
  return a.checksum == b.checksum && format::chunk_version(a) == format::chunk_version(b) &&
         format::chunk_kind(a) == format::chunk_kind(b);
}

}  // namespace

// Holds the names of both, and not the versions, whose pages would stay with them.
VersionDiff Catalog::diff(std::uint64_t from, std::uint64_t to) const {
  auto lock = state_.lock_usable();
  const auto before = state_.version_of(Of::version(from)).names;
  const auto after = state_.version_of(Of::version(to)).names;
  unsigned looked = 0;
  const auto pause = [&] {  // what is retained may change; it is looked up again
    if (++looked % kLookedAtOnce != 0) return;
    lock.unlock();
    lock.lock();
    state_.health.check_usable();
  };
  const auto changed_chunks = [&](const StoredTensor& tensor) {
    std::vector<std::uint64_t> chunks;
    for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
      pause();
      const ChunkRecord old = state_.version_of(Of::version(from)).tree.record(tensor.cell(i));
      const ChunkRecord now = state_.version_of(Of::version(to)).tree.record(tensor.cell(i));
      if (!same_value(old, now) && tensor.layout.size_bytes > 0) chunks.push_back(i);
    }
    return chunks;
  };
  VersionDiff diff;
  auto old = before->begin();
  auto now = after->begin();
  while (old != before->end() || now != after->end()) {
    pause();
    const bool gone = now == after->end() || (old != before->end() && old->first < now->first);
    const bool made = old == before->end() || (now != after->end() && now->first < old->first);
    const bool replaced = !gone && !made && old->second.tensor != now->second.tensor;
    if (gone || replaced) diff.erased.emplace_back(old->first);
    if (made || replaced) diff.created.emplace_back(now->first);
    if (!gone && !made && !replaced) {
      auto chunks = changed_chunks(*old->second.tensor);
      if (!chunks.empty()) diff.changed.push_back({std::string(old->first), std::move(chunks)});
    }
    if (!made) ++old;
    if (!gone) ++now;
  }
  return diff;
}

}  // namespace tensorshelf
