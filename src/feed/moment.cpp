#include "feed/moment.hpp"

#include <algorithm>

#include "base/planted.hpp"
#include "feed/access.hpp"
#include "feed/cuda/copies.hpp"
#include "store/untrusted.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kLineBytes = 64;

// Spreads what counts one by one (the finalizer of SplitMix64, Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Moment::Moment(std::span<const Source> lazy, std::uint64_t round) : lazy_(lazy), round_(round) {
  probes_.reserve(lazy.size());
  for (std::size_t i = 0; i < lazy.size(); ++i) probes_.push_back(probe(i));
  for (const Source& source : lazy) {
    const auto* device = std::get_if<DeviceBytes>(&source.bytes);
    if (device == nullptr || device->size_bytes == 0 || mark_of(*device) != nullptr) continue;
    marks_.push_back(make_cuda_mark(*device));
  }
}

const DeviceMark* Moment::mark_of(const DeviceBytes& source) const {
  const auto found =
      std::ranges::find_if(marks_, [&](const auto& mark) { return mark->is_of(source); });
  return found == marks_.end() ? nullptr : found->get();
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

const Source* Moment::changed(Store& store, std::uint64_t one_in) const {
  std::uint64_t count = round_;
  for (std::size_t i = 0; i < lazy_.size(); ++i) {
    const Source& source = lazy_[i];
    if (!planted(Bug::feed_probe_left_out) && probe(i) != probes_[i]) return &source;
    if (one_in == 0 || planted(Bug::feed_chunks_not_compared)) continue;
    const std::uint64_t size = FeedAccess::tensor(source.target)->layout.size_bytes;
    for (std::uint64_t at = 0; at < size; at += kChunkBytes) {
      if (count++ % one_in == 0 && !has_staged(store, source, at / kChunkBytes)) return &source;
    }
  }
  return nullptr;
}

}  // namespace tensorshelf
