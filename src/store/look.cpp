// What a shelf tells about itself: verify(), info(), stats(). Nothing here changes anything.
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
  Tensors committed;
  {
    const Use use(*this);
    std::lock_guard lock(structure_);
    committed = dropped_;
    for (const auto& [name, tensor] : tensors_) committed.push_back(tensor);
    report.version = version_;
  }
  std::uint64_t total = 0;
  for (const auto& tensor : committed) total += tensor->layout.size_bytes;
  std::uint64_t done = 0;
  for (const auto& tensor : committed) {
    const std::uint64_t chunks = tensor->layout.chunk_count();
    for (std::uint64_t chunk = 0; chunk == 0 || chunk < chunks; ++chunk) {
      if (!verify_chunk(*tensor, chunk, report)) break;
      if (chunks == 0) break;
      done += tensor->chunk_bytes(chunk);
      std::unique_lock names(structure_, std::defer_lock);
      if (planted(Bug::callback_while_locked)) names.lock();
      if (progress) progress(done, total);
    }
  }
  if (!report.damage.empty()) {
    const Use use(*this);
    throw_if_overtaken();
  }
  return report;
}

// False where nothing of the tensor is committed (any more). Chunk 0 counts the tensor, also where
// it has no bytes.
bool Store::verify_chunk(StoredTensor& tensor, std::uint64_t chunk, VerifyReport& report) {
  const Use use(*this);
  std::lock_guard lock(tensor.mutex);
  if (!tensor.committed) return false;
  report.tensors += chunk == 0;
  if (chunk >= tensor.layout.chunk_count()) return true;
  const unsigned slot = *tensor.committed;
  const std::uint64_t size = tensor.chunk_bytes(chunk);
  ++report.chunks;
  ++counters_.verified;
  report.bytes += size;
  if (chunk_intact(*medium_, seeds_, tensor, slot, chunk)) return true;
  tensor.verified[slot].erase(chunk);
  report.damage.push_back(
      {tensor.layout.name, tensor.version, slot, chunk, {tensor.chunk_at(slot, chunk), size}});
  return true;
}

ShelfInfo Store::info() const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  ShelfInfo info;
  info.path = path_;
  for (std::uint8_t byte : opened_.shelf_id) {
    constexpr std::string_view digits = "0123456789abcdef";
    info.shelf_id += {digits[byte >> 4], digits[byte & 15]};
  }
  info.version = format::word_version(root_.word);
  if (root_.step != format::kNoStep) info.step = root_.step;
  info.incarnation = opened_.incarnation;
  info.tensors = tensors_.size();
  info.tensor_bytes = tensor_bytes_;
  info.capacity_bytes = capacity_bytes_;
  info.free_bytes = free_bytes_;
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
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  if (root_.step == format::kNoStep) return std::nullopt;
  return root_.step;
}

std::uint64_t Store::free_bytes() const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  return free_bytes_;
}

Stats Store::stats() const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
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

}  // namespace tensorshelf
