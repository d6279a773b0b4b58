#include "feed/moment.hpp"

#include <algorithm>
#include <utility>

#include "base/mixed.hpp"
#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "feed/access.hpp"
#include "feed/cuda/copies.hpp"
#include "store/io/untrusted.hpp"

namespace tensorshelf {
namespace {

// Chunks in each part of the comparison: enough to pay for a thread's start. A device copies them
// into one buffer of 8 MiB.
constexpr std::size_t kTogether = 8;

struct ChunkBytes {
  std::uint64_t at;
  std::uint64_t size;
};

StoredTensor& tensor_of(const Source& source) { return *FeedAccess::tensor(source.target); }

ChunkBytes bytes_of(const Source& source, std::uint64_t chunk) {
  return {chunk * kChunkBytes, tensor_of(source).chunk_bytes(chunk)};
}

}  // namespace

Moment::Moment(std::span<const Source> lazy, std::uint64_t round) : lazy_(lazy), round_(round) {
  probes_.reserve(lazy.size());
  for (std::size_t i = 0; i < lazy.size(); ++i) probes_.push_back(probe(i));
  std::vector<std::pair<std::shared_ptr<const DeviceMark>, std::vector<const Source*>>> streams;
  for (const Source& source : lazy) {
    const auto* device = std::get_if<DeviceBytes>(&source.bytes);
    if (device == nullptr || device->size_bytes == 0) continue;
    auto found = std::ranges::find_if(
        streams, [&](const auto& stream) { return stream.first->is_of(*device); });
    if (found == streams.end()) {
      found = streams.insert(streams.end(), {make_cuda_mark(*device), {}});
    }
    found->second.push_back(&source);
  }
  for (const auto& [mark, sources] : streams) lines_.emplace_back(sources, mark, round);
}

const DeviceMark* Moment::mark_of(const DeviceBytes& source) const {
  const auto found = std::ranges::find_if(
      lines_, [&](const DeviceLines& lines) { return lines.mark().is_of(source); });
  return found == lines_.end() ? nullptr : &found->mark();
}

void Moment::take_lines() {
  for (DeviceLines& lines : lines_) lines.take();
}

std::uint64_t Moment::probe(std::size_t source) const {
  const auto* bytes = std::get_if<std::span<const std::byte>>(&lazy_[source].bytes);
  if (bytes == nullptr || bytes->empty()) return 0;
  const std::uint64_t lines = (bytes->size() + kLineBytes - 1) / kLineBytes;
  const std::uint64_t begin = mixed(round_ + source) % lines * kLineBytes;
  const std::uint64_t size = std::min(kLineBytes, bytes->size() - begin);
  return UntrustedBytes(bytes->subspan(begin, size)).hash(source).value_or(0);
}

// Whether the chunk that was copied is as it is where it came from.
bool Moment::is_as_copied(Store& store, const Chunk& chunk) const {
  const Source& source = *chunk.source;
  StoredTensor& tensor = tensor_of(source);
  const ChunkBytes part = bytes_of(source, chunk.number);
  if (const auto* bytes = std::get_if<std::span<const std::byte>>(&source.bytes)) {
    return store.has_staged(tensor, chunk.number, bytes->subspan(part.at, part.size));
  }
  const auto& device = std::get<DeviceBytes>(source.bytes);
  const auto copy = make_cuda_copy(device, mark_of(device));
  bool same = true;
  copy_in_pieces(*copy, {.size_bytes = part.size, .offset = part.at, .from = part.at},
                 [&](std::span<const std::byte> piece, std::uint64_t) {
                   same = store.has_staged(tensor, chunk.number, piece);
                 });
  return same;
}

std::unique_ptr<DeviceBatch> Moment::copied_together(std::span<const Chunk> chunks) const {
  std::vector<DeviceBytes> places;
  for (const Chunk& chunk : chunks) {
    const auto* device = std::get_if<DeviceBytes>(&chunk.source->bytes);
    if (device == nullptr || !device->axes.empty()) break;
    const ChunkBytes part = bytes_of(*chunk.source, chunk.number);
    places.push_back({.data = static_cast<const std::byte*>(device->data) + part.at,
                      .size_bytes = part.size,
                      .stream = device->stream,
                      .device = device->device});
  }
  if (places.empty()) return nullptr;
  return make_cuda_batch(places, mark_of(std::get<DeviceBytes>(chunks.front().source->bytes)));
}

void Moment::compare(Store& store, std::span<Chunk> chunks) const {
  while (!chunks.empty()) {
    const auto batch = copied_together(chunks);
    if (batch == nullptr) chunks.front().same = is_as_copied(store, chunks.front());
    const std::size_t count = batch ? batch->count() : 0;
    for (std::size_t i = 0; i < count; ++i) {
      Chunk& chunk = chunks[i];
      chunk.same = store.has_staged(tensor_of(*chunk.source), chunk.number, batch->wait(i));
    }
    chunks = chunks.subspan(std::max<std::size_t>(count, 1));
  }
}

const Source* Moment::changed_line() const {
  if (planted(Bug::feed_probe_left_out)) return nullptr;
  for (std::size_t i = 0; i < lazy_.size(); ++i) {
    if (probe(i) != probes_[i]) return &lazy_[i];
  }
  for (const DeviceLines& lines : lines_) {
    if (const Source* source = lines.changed()) return source;
  }
  return nullptr;
}

std::vector<Moment::Chunk> Moment::chosen(std::uint64_t one_in) const {
  std::vector<Chunk> chosen;
  std::uint64_t count = round_;
  for (const Source& source : lazy_) {
    const std::uint64_t size = tensor_of(source).layout.size_bytes;
    for (std::uint64_t at = 0; at < size; at += kChunkBytes) {
      if (count++ % one_in == 0) chosen.push_back({&source, at / kChunkBytes, false});
    }
  }
  return chosen;
}

const Source* Moment::first_changed(Store& store, std::uint64_t one_in, unsigned threads) const {
  if (const Source* source = changed_line()) return source;
  if (one_in == 0 || planted(Bug::feed_chunks_not_compared)) return nullptr;
  std::vector<Chunk> chunks = chosen(one_in);
  auto some = [&](std::size_t part) {
    const std::size_t begin = part * kTogether;
    const std::size_t size = std::min(kTogether, chunks.size() - begin);
    compare(store, std::span(chunks).subspan(begin, size));
  };
  const std::size_t parts = (chunks.size() + kTogether - 1) / kTogether;
  sharing.share(threads, parts, PartJob(some));
  const auto found = std::ranges::find(chunks, false, &Chunk::same);
  return found == chunks.end() ? nullptr : found->source;
}

}  // namespace tensorshelf
