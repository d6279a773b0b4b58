#include "feed/moment.hpp"

#include <algorithm>

#include "base/planted.hpp"
#include "feed/access.hpp"
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
}

std::uint64_t Moment::probe(std::size_t source) const {
  const auto* bytes = std::get_if<std::span<const std::byte>>(&lazy_[source].bytes);
  if (bytes == nullptr || bytes->empty()) return 0;
  const std::uint64_t lines = (bytes->size() + kLineBytes - 1) / kLineBytes;
  const std::uint64_t begin = mixed(round_ + source) % lines * kLineBytes;
  const std::uint64_t size = std::min(kLineBytes, bytes->size() - begin);
  return UntrustedBytes(bytes->subspan(begin, size)).hash(source).value_or(0);
}

const Source* Moment::changed(Store& store, std::uint64_t one_in) const {
  std::uint64_t count = round_;
  for (std::size_t i = 0; i < lazy_.size(); ++i) {
    const Source& source = lazy_[i];
    if (!planted(Bug::feed_probe_left_out) && probe(i) != probes_[i]) return &source;
    const auto* bytes = std::get_if<std::span<const std::byte>>(&source.bytes);
    if (bytes == nullptr || one_in == 0 || planted(Bug::feed_chunks_not_compared)) continue;
    for (std::uint64_t at = 0; at < bytes->size(); at += kChunkBytes) {
      if (count++ % one_in != 0) continue;
      const auto chunk = bytes->subspan(at, std::min(kChunkBytes, bytes->size() - at));
      if (!store.has_staged(*FeedAccess::tensor(source.target), at / kChunkBytes, chunk)) {
        return &source;
      }
    }
  }
  return nullptr;
}

}  // namespace tensorshelf
