// The storage seam: where bytes live and what the place promises. Fourteen methods, and none
// hands out a writable pointer. Everything above it (format, store) is the same on every medium,
// and the crash simulator is one more medium that breaks all that is not promised.
//
// Three moments, never confused: write() returns and the source may change (staged), wait() returns
// and the next barrier covers the bytes, barrier() returns and they are durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {

enum class Survives { nothing, process_crash, power_loss };

// What a medium guarantees, as a value, found by probing and not by belief.
struct Promises {
  std::string medium;                     // its name, as "pmem"
  std::string detail;                     // "FS-DAX file, MAP_SYNC", "file, O_DIRECT, io_uring"
  Survives survives = Survives::nothing;  // what an acknowledged version outlives
  bool mapped = false;                    // view() gives bytes in place
  bool needs_flush = false;               // stores rest in the CPU cache until flushed (ADR)
  bool volatile_cache = false;            // the device may hold writes until a barrier
  bool one_machine = false;               // none but this one reaches it: the lock is sure
  std::uint64_t atomic_bytes = 8;         // the most that lands all or nothing at power loss
  std::vector<std::string> notes;         // each fallback taken, and what to change for more
  std::vector<std::string> remarks = {};  // on the hardware: no fallback, and nothing to warn of
};

// One write under way. `sequence` never falls from one write to the next, so waiting for a ticket
// waits for all earlier ones too, of every thread.
struct Ticket {
  std::uint64_t sequence = 0;
  std::uint64_t checksum = 0;  // XXH3-64 of the bytes as they were copied, with the caller's seed
};

class PinTable;  // of the media that come with the library (src/media/pins.hpp)

// Thread-safety: write, write_lent, wait, read, look and view may run in many threads at once, on
// bytes that do not overlap. barrier and store_word come one at a time; of several media a
// barrier may come from a thread that helps the committing one. size, reserve and shrink exclude
// all of these but read, look and view, which go on beside them on what was there before and, of
// shrink, stays.
// Another process may read what this one writes at that moment. It gets old and new bytes, mixed at
// any multiple of 8, and checks what came.
//
// Errors: Errc::io, with the errno; of a read also Errc::truncated, where somebody else has made
// the file shorter. After an error of a write, wait, barrier, store_word or reserve the medium has
// failed, and its guard refuses every later one with Errc::failed (I8). Reads go on. Two errors are
// no such failure: of a reserve Errc::full, and of a write Errc::corrupt, where `bytes` lie in a
// damaged part of the medium itself. Nor is any error of a shrink.
//
// What a read gives afterwards, of
//
//                           now   it was destroyed,   a wait or   a write, word    the power
//                                 or its process      barrier     or reserve       was lost
//                                 died                failed      failed
//   a write, not waited for  new   old or new          unsure      unsure, later    old or new
//                                                                  old or new
//   a write, waited for      new   new                 unsure      unsure, later    old or new
//                                                                  new
//   a word                   new   old or new          unsure      unsure, later    old or new
//                                                                  old or new
//   these behind a barrier   new   new                 new         new              new
//
//   later        For whoever opens the medium once this one is gone. A barrier of theirs covers it,
//                but on mapped media: see ~Medium().
//   old or new   For good. Destroyed: page by page and word by word, on mapped media all new. Power
//                lost: by units of Promises::atomic_bytes.
//   unsure       Old or new, by the same units, and the next read may say otherwise; on mapped
//                media all new. Where a wait or barrier failed, it is so for whoever opens the
//                medium later, too, and no barrier covers it until it is written anew.
class Medium {
 public:
  // Makes nothing durable, and waits for nothing. On mapped media no later barrier covers what this
  // one had written, unless that is written anew (I12).
  virtual ~Medium() = default;

  // Copies `bytes` (at most kChunkBytes) towards `at` (a multiple of kPageBytes) and hashes them in
  // the same pass; when it returns the source may change. What follows them up to the next page
  // boundary is undefined. Later writes to the same place land later. On mapped media the calling
  // thread's stores are drained before it returns, because no other thread's fence would drain them
  // (I7).
  virtual Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) = 0;

  // The same of bytes that are lent: until await_lent() of them has returned, nobody changes or
  // frees them. A drive takes them from where they lie, and nothing is copied, if they are whole
  // pages at a multiple of kPageBytes. Else, and on other media, they are copied as above.
  virtual Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                            std::uint64_t seed) {
    return write(at, bytes, seed);
  }

  // Returns when no byte of these is lent any more; in a forked child, at once. Any thread may call
  // it at any time. Throws nothing: of a write that failed the next write or wait tells. A write
  // whose end can no longer be learned, of a medium that has failed, it does not wait for.
  virtual void await_lent(std::span<const std::byte> bytes) noexcept { static_cast<void>(bytes); }

  // Returns when the next barrier() covers the ticket's write and all earlier ones: they have
  // reached the device, or the kernel's cache of it. NOT durable.
  virtual void wait(const Ticket& ticket) = 0;

  // Every write that was waited for, and every word stored before, is durable when this returns.
  virtual void barrier() = 0;

  // Replaces the 8 bytes at `at` (a multiple of 8), all or nothing across a power loss; durable
  // after the next barrier(). The other bytes of the page keep their values.
  virtual void store_word(std::uint64_t at, std::uint64_t word) = 0;

  // Fills `bytes` from `at`, any alignment. Sees every write that returned before, as long as the
  // medium has not failed.
  virtual void read(std::uint64_t at, std::span<std::byte> bytes) = 0;

  // The same for bytes that only another writer could have changed: a cache may answer, which costs
  // less, and hides that the device has lost them. A read tells what the device has.
  virtual void look(std::uint64_t at, std::span<std::byte> bytes) { read(at, bytes); }

  // The bytes in place, or empty where the medium is not mapped or cannot show these in place (then
  // read() tells more). Valid while the medium lives, also across reserve(): a medium that grows
  // keeps its addresses.
  virtual std::span<const std::byte> view(const Extent& extent) = 0;

  // How far there are bytes to read; a reader sees its writer's file grow and shrink. Not all of a
  // file that was found need be room to write to: only what was reserved is.
  virtual std::uint64_t size() = 0;

  // Makes room for at least `size_bytes`, which is not 0, and returns how far there is room now.
  // New room reads as zero, and its blocks are allocated, so that later writes convert no extent.
  // It is durable after the next barrier() at the latest, and then room for whoever opens the
  // medium later, too. Makes nothing shorter, and changes nothing below size(): what a file was
  // found with may be other than zero.
  // Errc::full where the cap, the device or the file system ends: the medium goes on as before.
  // Errc::full, a failure, or a power loss before the barrier leaves as much room as there was; the
  // file may be longer than that by then.
  virtual std::uint64_t reserve(std::uint64_t size_bytes) = 0;

  // Gives back what lies beyond `size_bytes`, a multiple of kPageBytes, above 0 and at most size(),
  // where the medium can be made shorter. Returns how far there is room now:
  // size_bytes, or as much as before where the size is fixed (a device, a pool). Nothing below
  // changes. Nobody may be using what lies beyond: views of it are invalid from now on, and writes
  // to it that nobody waited for go with it. After a power loss it may be there again, as it was,
  // whatever barriers came. Room that is reserved there anew reads as zero, and once that room is
  // durable, what lay there is gone for good. A reader beside its writer gets an error of the read
  // beyond the new end, and no signal. Errc::io where the system refuses: all is as it was, and the
  // medium goes on.
  virtual std::uint64_t shrink(std::uint64_t size_bytes) {
    static_cast<void>(size_bytes);
    return size();
  }

  virtual Promises promises() const = 0;

  // Where readers tell which versions they hold, of this opening; null where they cannot, as on a
  // medium of your own. Lives as long as the medium.
  virtual PinTable* pins() { return nullptr; }
};

// One that is to mirror the medium of that number (ShelfInfo::media).
struct MirrorMedium {
  unsigned of = 0;
  std::unique_ptr<Medium> medium;
};

}  // namespace tensorshelf
