// Explores one workload: at every crash point the images (all where they are few, else a sample
// that holds every single loss) are opened by the real recovery and held against the model. In
// samples, further:
//   - a crash in recovery itself, at each of its own writes (I6: idempotent, regresses nothing)
//   - work after the recovery: random operations, persist, reopen, and crashes in those, which
//     would show leftovers of the abandoned attempt becoming valid (I5)
//   - opening for reading, which must find the same and write nothing
//   - the death of the process alone, after which another one sees what was handed on, settled or
//     not, and of the rest a part; of what a failed flush lost, this or that at each read: work in
//     it, and crashes in that, which would show what was believed and never settled
//   - damage to settled bytes (faults.hpp)
//   - a call of the medium that fails, at each of its events, and a crash after that (I8), or
//     another process
//   - readers that open the shelf while its writer goes on (beside.hpp)
// A run is determined by the settings; the first violation ends it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "disk.hpp"
#include "recording_medium.hpp"
#include "runner.hpp"
#include "walk.hpp"
#include "workload.hpp"

namespace tensorshelf::crash {

// What the store must never do, with the trace that led to it.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Settings {
  Personality personality = Personality::pmem;
  bool trash = false;
  MediumBugs bugs = {};
  std::uint64_t granule_bytes = kPageBytes;  // in which the medium gives room
  std::uint64_t seed = 1;
  std::size_t cap = 48;                    // images per crash point of the workload
  std::size_t deep_cap = 8;                // the same in recovery, and in work after it
  std::uint64_t recovery_one_in = 8;       // images whose recovery is crashed too; 0: none
  std::uint64_t work_one_in = 24;          // images that are worked on
  std::uint64_t reader_one_in = 8;         // images opened for reading first
  std::uint64_t fault_one_in = 64;         // images whose settled bytes are damaged,
  std::uint64_t settled_fault_one_in = 2;  // and of those where nothing was unsettled
  std::uint64_t death_one_in = 6;          // events after which the process dies; all words
  std::uint64_t failure_one_in = 4;        // writes and waits that fail; all else does each
  std::uint64_t readers = 36;              // opened beside the writer
};

inline constexpr std::uint64_t kDiskBytes = 16 * 1024 * 1024;
inline constexpr std::uint64_t kSecondBytes = 12 * 1024 * 1024;  // more, where there are two media
inline constexpr std::uint64_t kMirrorBytes = kDiskBytes + 1024 * 1024;  // where one mirrors all

class Explorer {
 public:
  // The disk is put back as it was (empty) after every workload.
  Explorer(Disk& disk, const Settings& settings) : disk_(disk), settings_(settings) {}

  void explore(std::string_view program);  // throws Violation
  const Counts& counts() const { return counts_; }

 private:
  struct Found {
    Model model;
    std::uint64_t incarnation;
    std::optional<std::size_t> prepared;  // index in Recording::prepared
    Log log;                              // of the recovery
  };
  void walk(const Recording& recording, std::size_t depth, std::size_t first_event);
  void die_after_each(const Recording& recording, std::size_t first_event);
  void live_on(const Recording& recording, std::size_t event);
  void run_out_once(const std::vector<Op>& ops, std::size_t event);
  void fail_each(const std::vector<Op>& ops, const Recording& clean, std::size_t first_event);
  struct Scene {  // of one image
    const Recording& recording;
    const Expected& expected;
    std::size_t depth;
    std::size_t event;
    bool settled;  // nothing was unsettled
  };
  void open_image(const Scene& scene, ReadSet& reads);
  Found recover(const Recording& recording, const Expected& expected, ReadSet& reads,
                const Behaviour& medium);
  // What was known before the crash that is recovered from.
  struct Before {
    const Recording& recording;
    const Expected& expected;
  };
  void read_mirror(const Recording& recording, const Expected& expected, const Model* known);
  void read_only(const Recording& recording, const Found& found);
  void crash_in_recovery(const Recording& recording, Found found, const Expected& expected,
                         std::size_t depth);
  void work_on(const Recording& recording, const Found& found, const Expected& expected,
               std::size_t depth);

  void walk_behind(const Before& before, const Recording& after, std::size_t depth,
                   std::size_t first_event);

  Behaviour behaviour() const;

  Disk& disk_;
  Settings settings_;
  Shape shape_;
  const Before* before_ = nullptr;
  Rng rng_{0};
  Counts counts_;
};

}  // namespace tensorshelf::crash
