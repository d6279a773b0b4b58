// Whether lazy sources are, when they have been copied, as they were when the save began (I9). A
// hash of one cache line of each is taken at the begin: what changes all of a source before a byte
// of it is copied shows there. What changes later shows where a chunk is hashed once more, and
// compared with the hash that was made as it was copied. Each save takes another line, drawn by its
// number, and chunks take turns.
// On a device lines are taken of some sources alone (device_lines.hpp), and the moment is up to
// where each stream had got.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "feed/device_lines.hpp"
#include "store/store.hpp"

namespace tensorshelf {

class Moment {
 public:
  // `round` counts saves. The sources must outlive it.
  Moment(std::span<const Source> lazy, std::uint64_t round);

  // Behind which a lazy source is copied.
  const DeviceMark* mark_of(const DeviceBytes& source) const;

  // Gives the lines' buffers back. first_changed() may not be called afterwards.
  void let_go() noexcept { lines_.clear(); }
  void take_lines();  // once, before first_changed(): waits for what a device is to copy for that

  // The first that has changed, when all are copied. One of so many chunks is compared; 0: none.
  // By as many threads as pay, of so many.
  const Source* first_changed(Store& store, std::uint64_t one_in, unsigned threads) const;

 private:
  std::uint64_t probe(std::size_t source) const;
  const Source* changed_line() const;
  struct Chunk {
    const Source* source;
    std::uint64_t number;
    bool same;
  };
  std::vector<Chunk> chosen(std::uint64_t one_in) const;
  void compare(Store& store, std::span<Chunk> chunks) const;
  bool is_as_copied(Store& store, const Chunk& chunk) const;
  // As many of the first chunks as a device copies together; nullptr where the first is not one
  // that it can.
  std::unique_ptr<DeviceBatch> copied_together(std::span<const Chunk> chunks) const;

  std::span<const Source> lazy_;
  std::uint64_t round_;
  std::vector<std::uint64_t> probes_;
  std::vector<DeviceLines> lines_;  // one for each stream
};

}  // namespace tensorshelf
