// Which places a recovery has looked at. Bytes that no recovery reads cannot change what it finds,
// so only unsettled writes that meet this set are worth branching on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tensorshelf::crash {

class ReadSet {
 public:
  void add(std::uint64_t at, std::uint64_t size_bytes) {
    if (size_bytes == 0) return;
    const std::uint64_t last = (at + size_bytes - 1) / kGrain;
    if (last >= grains_.size()) grains_.resize(last + 1);
    for (std::uint64_t grain = at / kGrain; grain <= last; ++grain) {
      count_ += !grains_[grain];
      grains_[grain] = true;
    }
  }

  bool meets(std::uint64_t at, std::uint64_t size_bytes) const {
    const std::uint64_t last =
        std::min<std::uint64_t>((at + size_bytes + kGrain - 1) / kGrain, grains_.size());
    for (std::uint64_t grain = at / kGrain; grain < last; ++grain) {
      if (grains_[grain]) return true;
    }
    return false;
  }

  std::uint64_t count() const { return count_; }  // grows when something new was read

 private:
  static constexpr std::uint64_t kGrain = 64;
  std::vector<bool> grains_;
  std::uint64_t count_ = 0;
};

}  // namespace tensorshelf::crash
