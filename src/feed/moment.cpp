#include "feed/moment.hpp"

#include <algorithm>
#include <utility>

#include "base/mixed.hpp"
#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "feed/access.hpp"
#include "feed/cuda/copies.hpp"
#include "store/untrusted.hpp"

namespace tensorshelf {
namespace {

constexpr std::size_t kThreadChunks = 8;  // that pay for starting one

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
bool Moment::has_staged(Store& store, const Source& source, std::uint64_t chunk) const {
  StoredTensor& tensor = *FeedAccess::tensor(source.target);
  const std::uint64_t at = chunk * kChunkBytes;
  const std::uint64_t size = std::min(kChunkBytes, tensor.layout.size_bytes - at);
  if (const auto* bytes = std::get_if<std::span<const std::byte>>(&source.bytes)) {
    return store.has_staged(tensor, chunk, bytes->subspan(at, size));
  }
  const auto& device = std::get<DeviceBytes>(source.bytes);
  const auto copy = make_cuda_copy(device, mark_of(device));
  bool same = true;
  copy_in_pieces(*copy, {.size_bytes = size, .offset = at, .from = at},
                 [&](std::span<const std::byte> piece, std::uint64_t) {
                   same = store.has_staged(tensor, chunk, piece);
                 });
  return same;
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

const Source* Moment::changed(Store& store, std::uint64_t one_in, unsigned threads) const {
  if (const Source* source = changed_line()) return source;
  if (one_in == 0 || planted(Bug::feed_chunks_not_compared)) return nullptr;
  struct Chunk {
    const Source* source;
    std::uint64_t number;
    bool same;
  };
  std::vector<Chunk> chosen;
  std::uint64_t count = round_;
  for (const Source& source : lazy_) {
    const std::uint64_t size = FeedAccess::tensor(source.target)->layout.size_bytes;
    for (std::uint64_t at = 0; at < size; at += kChunkBytes) {
      if (count++ % one_in == 0) chosen.push_back({&source, at / kChunkBytes, false});
    }
  }
  auto compare = [&](std::size_t part) {
    Chunk& chunk = chosen[part];
    chunk.same = has_staged(store, *chunk.source, chunk.number);
  };
  const auto paying = static_cast<unsigned>(1 + chosen.size() / kThreadChunks);
  sharing.share(std::min(threads, paying), chosen.size(), PartJob(compare));
  const auto found = std::ranges::find(chosen, false, &Chunk::same);
  return found == chosen.end() ? nullptr : found->source;
}

}  // namespace tensorshelf
