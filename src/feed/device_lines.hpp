// A cache line of each of some lazy sources on a device, as they were when a save began (I9): what
// changes all of them before a byte of them is copied shows there. The copies are queued on the
// trainer's thread, and what its stream is given later comes behind them; nobody waits for them
// there. So there are only a few: an optimizer's step changes all that it steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "feed/device_copy.hpp"

namespace tensorshelf {

inline constexpr std::uint64_t kLineBytes = 64;

// The lines of sources of one stream of one device, which has a mark.
class DeviceLines {
 public:
  // Queues the copies of lines of at most 16 of the sources, as far apart in their order as can be,
  // and of others in the next round. The sources must outlive it.
  DeviceLines(std::span<const Source* const> sources, std::shared_ptr<const DeviceMark> mark,
              std::uint64_t round);

  const DeviceMark& mark() const { return *mark_; }

  void take();  // waits for the copies, and gives their buffer back
  // Behind take(): the first of them whose line is another now.
  const Source* changed() const;

 private:
  using Line = std::array<std::byte, kLineBytes>;

  std::shared_ptr<const DeviceMark> mark_;
  std::vector<const Source*> sources_;
  std::vector<DeviceBytes> places_;
  std::unique_ptr<DeviceBatch> queued_;
  std::vector<Line> lines_;  // of all in sources_, once they are taken
};

}  // namespace tensorshelf
