// What a version, or the open attempt, says of a tensor's chunks. No I/O.
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "store/store.hpp"

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

const Version& Store::version_of(Of which) const {
  if (which.kind_ == Of::Kind::staged && open_) return *open_->base;
  if (which.kind_ != Of::Kind::version) return *retained_.back();
  for (const auto& version : retained_) {
    if (version->number() == which.number_) return *version;
  }
  const std::uint64_t oldest = retained_.front()->number();
  const std::uint64_t newest = retained_.back()->number();
  throw Error(
      Errc::stale,
      fmt::format(
          "version {} of {} is not retained: there is version {}", which.number_, path_,
          oldest == newest ? std::to_string(newest) : fmt::format("{} to {}", oldest, newest)),
      "Shelf.versions lists those that can be read; keep= says how many are.");
}

// What is said of the chunks of that range; of kind none for the zeros of a tensor that was never
// written. Errc::unknown_name where the tensor is not there.
Records Store::records(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                       Of which) const {
  const bool with_staged = which.kind_ == Of::Kind::staged;
  if (with_staged) tensor.check_there();
  const std::uint64_t first = offset / kChunkBytes;
  const std::uint64_t count = size == 0 ? 0 : (offset + size - 1) / kChunkBytes - first + 1;
  Records records(first);
  if (count > 1) records.more_.resize(count - 1);
  std::lock_guard lock(structure_);
  check_usable();
  const Version& version = version_of(which);
  if (!with_staged && !has(version, tensor)) {
    tensor.check_there();
    throw Error(Errc::unknown_name,
                fmt::format("'{}' has no committed value yet", tensor.layout.name),
                "persist() first.");
  }
  const bool dirty = with_staged && open_ && tensor.attempt == open_->sequence;
  if (dirty) tensor.check_sound(open_->sequence);
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
