// What there is: tensors by name, verify(), info(), stats(). Nothing here changes anything.
#include <fmt/format.h>

#include <mutex>

#include "base/planted.hpp"
#include "store/chunk_io.hpp"
#include "store/store.hpp"

namespace tensorshelf {

// Chunk by chunk: commits go on in between, and a tensor that they flip is from there on looked at
// as it is then. The callback is called with nothing held: it may use the shelf, or close it.
VerifyReport Store::verify(const Progress& progress) {
  VerifyReport report;
  std::shared_ptr<const Names> names;  // and not their version: see in_flight_
  std::uint64_t total = 0;
  {
    const Use use(*this);
    std::lock_guard lock(structure_);
    check_usable();
    names = retained_.back()->names;
    total = retained_.back()->tensor_bytes;
    report.version = version_;
  }
  std::uint64_t done = 0;
  for (const auto& [name, named] : *names) {
    StoredTensor& tensor = *named.tensor;
    const std::uint64_t chunks = tensor.layout.chunk_count();
    for (std::uint64_t chunk = 0; chunk == 0 || chunk < chunks; ++chunk) {
      if (!verify_chunk(tensor, chunk, report)) break;
      if (chunks == 0) break;
      done += tensor.chunk_bytes(chunk);
      std::optional<QueueScope> held;
      if (planted(Bug::callback_while_locked)) held.emplace(turns_, *room_, Patience());
      if (progress) progress(done, total);
    }
  }
  if (!report.damage.empty()) {
    const Use use(*this);
    throw_if_overtaken(report.version);
  }
  return report;
}

// False where nothing of the tensor is committed (any more). Chunk 0 counts the tensor, also where
// it has no bytes.
bool Store::verify_chunk(StoredTensor& tensor, std::uint64_t chunk, VerifyReport& report) {
  const Use use(*this);
  std::lock_guard lock(tensor.mutex);
  format::ChunkRecord record;
  {
    std::lock_guard structure(structure_);
    const Version& newest = *retained_.back();
    if (!has(newest, tensor)) return false;
    record = newest.tree.record(tensor.cell(chunk));
  }
  report.tensors += chunk == 0;
  if (chunk >= tensor.layout.chunk_count()) return true;
  const unsigned slot = format::chunk_slot(record);
  const std::uint64_t size = tensor.chunk_bytes(chunk);
  ++report.chunks;
  ++counters_.verified;
  report.bytes += size;
  if (chunk_intact(*medium_, seeds_, tensor, record, chunk)) return true;
  tensor.clear_verified(slot, chunk);
  report.damage.push_back({tensor.layout.name,
                           format::chunk_version(record),
                           slot,
                           chunk,
                           {tensor.chunk_at(slot, chunk), size}});
  return true;
}

ShelfInfo Store::info() const {
  const auto lock = lock_usable();
  ShelfInfo info;
  info.path = path_;
  for (std::uint8_t byte : opened_.shelf_id) {
    constexpr std::string_view digits = "0123456789abcdef";
    info.shelf_id += {digits[byte >> 4], digits[byte & 15]};
  }
  const format::Root& root = retained_.back()->root;
  info.version = retained_.back()->number();
  info.step = format::stated_step(root);
  info.incarnation = opened_.incarnation;
  info.tensors = names_now().size();
  info.tensor_bytes = open_ ? open_->tensor_bytes : retained_.back()->tensor_bytes;
  info.capacity_bytes = heap_ ? heap_->capacity_bytes() : root.capacity_bytes;
  info.free_bytes = heap_ ? heap_->free_bytes() : 0;
  info.keep = keep_;
  info.in_flight = in_flight_limit_;
  info.placement = placement_;
  info.writable = writable_;
  info.promises = medium_->promises();  // some fallbacks show with the first write only
  info.recovery = opened_.report;
  return info;
}

std::uint64_t Store::version() const {
  check_usable();
  return version_;
}

std::optional<std::uint64_t> Store::step() const {
  const auto lock = lock_usable();
  return format::stated_step(retained_.back()->root);
}

std::uint64_t Store::free_bytes() const {
  const auto lock = lock_usable();
  return heap_ ? heap_->free_bytes() : 0;
}

Stats Store::stats() const {
  const auto lock = lock_usable();
  const MediumCounters medium = medium_->counters();
  Stats stats;
  stats.commits = counters_.commits;
  stats.bytes_staged = counters_.staged;
  stats.bytes_copied_forward = counters_.forward;
  stats.metadata_bytes = counters_.metadata;
  stats.bytes_read = counters_.read;
  stats.chunks_verified = counters_.verified;
  stats.medium_writes = medium.writes;
  stats.medium_bytes = medium.bytes_written;
  stats.barriers = medium.barriers;
  stats.commit_seconds = static_cast<double>(counters_.nanoseconds) * 1e-9;
  return stats;
}

std::shared_ptr<StoredTensor> Store::find(std::string_view name) const {
  const auto lock = lock_usable();
  const auto there = names_now().find(name);
  return there == names_now().end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Store::names() const {
  const auto lock = lock_usable();
  std::vector<std::string> names;
  names.reserve(names_now().size());
  for (const auto& [name, tensor] : names_now()) names.emplace_back(name);
  return names;
}

namespace {

// The version that wrote its newest chunk, as that one has it; 0 where it has none.
std::uint64_t written_in(const Version& version, const StoredTensor& tensor) {
  std::uint64_t newest = 0;
  if (!has(version, tensor)) return newest;
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    newest = std::max(newest, format::chunk_version(version.tree.record(tensor.cell(i))));
  }
  return newest;
}

}  // namespace

TensorInfo Store::info(const StoredTensor& tensor, Of which) const {
  check_usable();
  std::lock_guard lock(tensor.mutex);
  const auto structure = lock_usable();
  TensorInfo info;
  info.name = tensor.layout.name;
  info.dtype = tensor.layout.dtype;
  info.shape = tensor.layout.shape;
  info.size_bytes = tensor.layout.size_bytes;
  info.version = written_in(version_of(which), tensor);
  if (which.kind_ == Of::Kind::version || !open_) return info;
  const std::uint64_t last = written_in(*open_->base, tensor);
  if (last > retained_.back()->number()) info.pending = last;
  info.dirty = tensor.attempt == open_->sequence;
  info.spoiled = tensor.spoiled == open_->sequence;
  return info;
}

}  // namespace tensorshelf
