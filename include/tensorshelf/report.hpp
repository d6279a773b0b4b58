// What a shelf tells of itself, as values: what a commit made, what opening found, what there is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tensorshelf/extent.hpp>
#include <tensorshelf/medium.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf {

// An attempt that is durable, and neither committed nor abandoned yet.
struct Prepared {
  std::uint64_t version = 0;  // that it becomes
  std::optional<std::uint64_t> step;
  std::string id;                // what prepare() was given; any bytes
  std::uint64_t data_bytes = 0;  // tensor bytes staged for it
  bool found = false;            // by opening the shelf: then every change waits for the decision
};

// What opening found. Nothing here is an error: a shelf that cannot be opened whole throws.
struct Recovery {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  bool interrupted = false;         // an attempt beyond this version was left incomplete; not told
                                    // where the shelf was opened for reading
  bool degraded = false;            // the newest version was damaged; this older one was verified
  bool salvaged = false;            // degraded, and not verified: chunks may be damaged
  std::vector<std::uint64_t> lost;  // newer versions, which may have been acknowledged
  std::vector<std::uint64_t> dropped;  // older ones that were retained, and cannot be loaded
  std::optional<Prepared> prepared;    // an attempt beyond this version waits for resolve()
  std::uint64_t repaired_copies = 0;   // second copies of metadata written anew
  std::vector<std::string> notes;      // a sentence each, for a log
};

// When a commit came to each of its stages, by std::chrono::steady_clock; the epoch for one that it
// did not pass. A failed commit has no times: it throws.
struct CommitTimes {
  using Time = std::chrono::steady_clock::time_point;
  Time sealing = {};  // its turn came, behind the versions before it
  Time written = {};  // the medium has all its bytes, and may still hold them in a volatile cache
  Time ordered = {};  // they are durable (I1)
  Time flipped = {};  // the version word is stored
  Time durable = {};  // and durable (I2)
};

// What compact() did.
struct CompactReport {
  std::uint64_t version = 0;       // the newest by then
  std::uint64_t bytes_before = 0;  // how much of its media was the shelf's
  std::uint64_t bytes_after = 0;
  std::uint64_t bytes_moved = 0;   // of slots, which lie elsewhere now
  std::uint64_t bytes_copied = 0;  // of values that nobody assigned: read, checked and written anew
  std::vector<std::string> damaged;  // tensors that stay where they are: verify() tells of what
  // False: somebody held a version that reaches further, or a mirror could not be made shorter. The
  // room is free, and those files keep their length until compact() is called again. (A mirror's
  // file is cut by that call only in this same opening, or when there is more to cut.)
  bool files_cut = true;
};

struct Commit {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::uint64_t data_bytes = 0;      // tensor bytes staged for this version
  std::uint64_t metadata_bytes = 0;  // manifest pages and roots
  double seconds = 0;  // of persist(), without the staging before it; of any other commit, from
                       // times.sealing to times.durable
  CommitTimes times = {};
};

// What became of a prepared attempt.
struct Resolved {
  bool found = false;                 // it was found by opening the shelf: Prepared::found
  std::optional<Commit> commit = {};  // none where it was abandoned
};

struct Damage {
  std::string tensor;
  std::uint64_t version = 0;  // that last wrote it
  unsigned slot = 0;
  std::uint64_t chunk = 0;
  Extent extent;
  // What still holds: the older retained versions, rising, whose own value of this chunk is sound,
  // whether it is the same or another.
  std::vector<std::uint64_t> intact_in = {};
  // Another slot, or the mirror of its medium, has the very bytes: Shelf::heal() can restore them.
  bool healable = false;
  bool healed = false;     // Shelf::heal() restored it
  bool in_mirror = false;  // the chunk is sound; damaged is what its mirror has there
};

// Called with each damaged chunk as it is found, from the thread that called into the shelf.
using OnDamage = std::function<void(const Damage&)>;

struct VerifyReport {
  std::uint64_t version = 0;
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  std::vector<Damage> damage;  // empty: every byte of the committed version is as it was written
  std::optional<std::uint64_t> healed_as = {};  // the version that heal() made, if it healed any
};

// What one version has otherwise than another; all three are sorted by name. A tensor that was
// replaced, resized or moved is in `created` and in `erased`; one that was renamed is in `created`
// by its new name, and in `erased` by its old one.
struct VersionDiff {
  struct Changed {
    std::string tensor;
    std::vector<std::uint64_t> chunks;  // by index, rising; those of another version or checksum
  };
  std::vector<std::string> created;
  std::vector<std::string> erased;
  std::vector<Changed> changed;
};

// One of the media that a shelf lies on.
struct MediumInfo {
  unsigned number = 0;  // as tensors are placed by; 0: the shelf's own
  std::string path;
  std::string medium_id;             // 32 hexadecimal digits
  std::uint64_t capacity_bytes = 0;  // how much of it is the shelf's
  std::uint64_t free_bytes = 0;      // 0 where nothing may be written
  bool retired = false;              // it was removed, and older versions may have tensors there
  bool absent = false;  // it is missing, and the other of a medium and its mirror serves
  std::optional<unsigned> mirrors = {};  // the number of the medium that it mirrors
  Promises promises = {};
};

struct ShelfInfo {
  std::string path;
  std::string shelf_id;  // 32 hexadecimal digits
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::uint64_t incarnation = 0;
  std::uint64_t tensors = 0;                  // with what was created and erased since that version
  std::uint64_t tensor_bytes = 0;             // of these
  std::uint64_t capacity_bytes = 0;           // of all media together
  std::uint64_t free_bytes = 0;               // 0 where nothing may be written
  unsigned keep = 0;                          // versions that stay readable beside the newest
  unsigned in_flight = 1;                     // attempts that may be on their way at once
  Placement placement = Placement::by_chunk;  // of tensors that are made from now on
  bool writable = false;
  bool created = false;           // this opening made it: there was none, or it was replaced
  Promises promises;              // of the first medium; `survives` what the weakest of all does
  std::vector<MediumInfo> media;  // by number
  Recovery recovery;
};

struct Stats {
  std::uint64_t commits = 0;
  std::uint64_t bytes_staged = 0;          // copied from callers
  std::uint64_t bytes_unchanged = 0;       // assigned and not written: OpenOptions::keep_unchanged
  std::uint64_t bytes_copied_forward = 0;  // from the committed slot, for partial writes
  std::uint64_t metadata_bytes = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t chunks_verified = 0;
  std::uint64_t chunks_healed = 0;  // read from a mirror, or another slot: OpenOptions::heal
  std::uint64_t medium_writes = 0;
  std::uint64_t medium_bytes = 0;
  std::uint64_t barriers = 0;
  double commit_seconds = 0;  // of all, each from its times.sealing to times.durable
};

// A version that can be read.
struct VersionInfo {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::uint64_t time_ns = 0;     // since 1970, of the writer's clock; information only
  std::uint64_t data_bytes = 0;  // tensor bytes that were staged for it
};

// What repair() did (repair.hpp).
struct RepairReport {
  bool repaired = false;      // false: the shelf opens as it is, and nothing was written
  std::uint64_t version = 0;  // the newest now
  std::optional<std::uint64_t> step;
  std::vector<std::uint64_t> lost;  // versions given up, which may have been acknowledged
  std::vector<Damage> damage;       // chunks that fail: assigning the whole tensor heals them,
                                    // and Shelf::heal() those that are healable
  std::vector<std::string> notes;   // a sentence each: what kept it from opening, what was done
};

}  // namespace tensorshelf
