// What a version, or the open attempt, says of a tensor's chunks. No I/O.
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "store/reader.hpp"

namespace tensorshelf {

using format::ChunkKind;
using format::ChunkRecord;

// (An erased tensor's cells may be another's by now.)
bool has(const Version& version, const StoredTensor& tensor) {
  if (tensor.erased) {
    const auto there = version.names->find(tensor.layout.name);
    if (there == version.names->end() || there->second.tensor.get() != &tensor) return false;
  }
  return format::chunk_kind(version.tree.record(tensor.cell(0))) != ChunkKind::none;
}

std::shared_ptr<Holding> hold(const StoredTensor& tensor) {
  return planted(Bug::read_holds_nothing) ? nullptr : tensor.holding.lock();
}

// What is said of the chunks of that range; of kind none for the zeros of a tensor that was never
// written. Errc::unknown_name where the tensor is not there.
Records Reader::records(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                        Of which) const {
  const bool with_staged = which.kind() == Of::Kind::staged;
  if (with_staged) tensor.check_there();
  const std::uint64_t first = offset / kChunkBytes;
  const std::uint64_t count = size == 0 ? 0 : (offset + size - 1) / kChunkBytes - first + 1;
  Records records(first);
  if (count > 1) records.more_.resize(count - 1);
  std::lock_guard lock(state_.structure);
  state_.health.check_usable();
  const Version& version = state_.version_of(which);
  if (!with_staged && !has(version, tensor)) {
    tensor.check_there();
    throw Error(Errc::unknown_name,
                fmt::format("'{}' has no committed value yet", tensor.layout.name),
                "persist() first.");
  }
  const bool dirty = with_staged && state_.open && tensor.attempt == state_.open->sequence;
  if (dirty) tensor.check_sound(state_.open->sequence);
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool staged = dirty && tensor.written.contains(first + i);
    Record& record = i == 0 ? records.one_ : records.more_[i - 1];
    static_cast<ChunkRecord&>(record) =
        staged ? tensor.staged[first + i] : version.tree.record(tensor.cell(first + i));
    record.seen_in = version.number();
    // One that was created and is gone: it comes to be marked so.
    const bool gone = format::chunk_kind(record) == ChunkKind::none && !dirty;
    if (gone)
      throw Error(Errc::unknown_name, fmt::format("'{}' is not there any more", tensor.layout.name),
                  "Look it up again by its name.");
  }
  return records;
}

}  // namespace tensorshelf
