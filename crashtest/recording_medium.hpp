// The recording medium: a Medium over a Disk that logs all that the store asks of it, with enough
// content to build every image that a power loss could have left. It promises what the contract in
// tensorshelf/medium.hpp promises and breaks all the rest.
//
// The fault model (what may be on the medium after a power loss):
//
//   personality  smallest unit   settled, that is surely there, once
//   pmem         8-byte word     its thread drained it, and what is said of block
//   block        512-byte sector it was waited for, and then a barrier() returned
//
// - What is not settled landed or did not, each unit by itself, in any order: any subset. Two
//   unsettled writes to one unit leave the older bytes, the first or the second; once settled, the
//   second: overlapping writes take effect in the order in which they were issued.
// - store_word() is one unit on pmem (8 bytes). On block it rewrites its 4 KiB page as the store
//   sees it; sectors land by themselves, and the one that holds the word is old or new.
// - Trash (block, a mode of its own): an unsettled sector may also hold garbage, except sectors of
//   a store_word(), for the design counts on rewriting bytes with themselves being harmless.
// - Bytes between the end of a write() and the next page boundary are undefined, on pmem too: they
//   are filled with garbage.
// - reserve() is settled by the next barrier(); until then the size is the old or the new one, or
//   one in between. A length is not room: after a power loss only what was settled is room, however
//   long the disk is found to be. A write beyond the room is an assert, and reserving below the
//   size may fail as any growth may.
// - reserve() may give more than was asked: whole granules, as a file system has its own.
// - shrink() takes effect at once. No barrier settles it but one that settles a later growth: until
//   then a power loss leaves what lay beyond, with its length, or nothing of it, and of what came
//   later nothing beyond without it. It is room no more either way. To read, view or write beyond
//   the new end is an assert; of a reader, whose log is empty, an error. A shrink fails where a
//   growth would be full, and all is as it was.
// - pmem is stricter than the hardware: a drained store is durable under ADR at once, while here
//   only wait() and a barrier() make it so. That is the contract, and it is what msync-backed media
//   need.
// - Visible is not settled. Calls fail where they are told to. Of a write on block that may be told
//   by the next write, wait, barrier, word or growth alone. Of a call that fails a part may have
//   happened, and nothing settles that: of a write or a word some bytes, of a growth a longer disk,
//   which is no room; the last may be behind Errc::full too. After a wait or barrier that fails,
//   all unsettled bytes are orphans: the medium may have them or not, and no later barrier covers
//   them, only writing them anew does. (So a kernel marks the pages clean that it could not write.)
// - On pmem every process sees orphans. On block a read gives an orphaned sector as it was before,
//   or as it was written, the next read maybe the other, and so in every process (unsure.hpp). In
//   the one whose call failed, whatever the call, that is so of all that is unsettled.
// - On block, whole pages that are lent are taken from where they lie as late as may be: when they
//   are awaited, or their write is waited for. Changed before, they are what lands.
// - A medium that is destroyed, or whose process dies, takes along on block what it held: of writes
//   that nobody waited for any pages, and any words behind no barrier (held_pages.hpp). The rest
//   stays visible, and the next process's barrier covers it, for it lies in the kernel. On pmem all
//   stays visible, in the caches of processors that nobody tells to flush it, so there it is
//   orphaned. Growth is never orphaned: file systems journal it.
// - On block a look() is answered by a cache, which has what was visible last also where the page
//   cannot be read any more, and heals nothing by it. On pmem there is none: it is a read.
// - Not in this model: settled bytes that change. Damage of that kind is in faults.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "disk.hpp"
#include "held_pages.hpp"
#include "log.hpp"
#include "personality.hpp"
#include "read_set.hpp"
#include "unsure.hpp"

namespace tensorshelf::crash {

// Bugs that live below the seam, where only a medium can have them.
struct MediumBugs {
  bool worker_without_drain = false;  // threads other than the committer never fence (breaks I7)
  bool torn_word = false;             // store_word() lands in halves of 4 bytes (breaks I4)
  bool growth_not_settled = false;    // no barrier makes the new size durable (breaks I1)
};

// Pages that cannot be read: an error in place of bytes, and no view of them. A write over them
// heals them; of a word on pmem, which is less than the line that is bad, that is not expected.
struct ReadFaults {
  std::vector<std::uint64_t> pages;  // places
  bool once = false;                 // each fails one read and is good from then on

  bool meet(std::uint64_t at, std::uint64_t size_bytes) const;
  void heal(std::uint64_t at, std::uint64_t size_bytes);
};

struct Behaviour {
  Personality personality = Personality::pmem;
  std::uint64_t max_size_bytes = 0;  // reserve() beyond it is Errc::full
  MediumBugs bugs = {};
  std::uint64_t granule_bytes = kPageBytes;    // reserve() gives whole ones, while they fit
  std::uint64_t fails_at = ~std::uint64_t{0};  // the call that would be this event of the log fails
  bool tells_late = false;  // on block, where that call is a write: by a later call
  // The growth that would be it is Errc::full, the shrink Errc::io, once.
  std::uint64_t full_at = ~std::uint64_t{0};
  ReadFaults* faults = nullptr;    // used under the medium's lock; outlives it
  Unsure* unsure = nullptr;        // on block, what a process before left so; likewise
  std::uint64_t second_bytes = 0;  // Log::second_bytes: then it is used through recorded()
  bool mirrored = false;           // the second medium mirrors the first
  std::uint64_t seed = 0;  // chooses what is lost when the medium ends, and seen where it failed
};

// Thread-safe. The disk, the log and the read set (which may be null) must outlive it.
class RecordingMedium final : public Medium {
 public:
  RecordingMedium(Disk& disk, Log& log, const Behaviour& behaviour, ReadSet* reads = nullptr);
  ~RecordingMedium() override;  // waits for nothing: on block a part of what is held is gone

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override;
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override;
  void await_lent(std::span<const std::byte> bytes) noexcept override;
  void wait(const Ticket& ticket) override { wait_for(ticket, Part::all); }
  void barrier() override { settle(Part::all); }
  void wait_for(const Ticket& ticket, Part part);
  void settle(Part part);
  void store_word(std::uint64_t at, std::uint64_t word) override;
  void read(std::uint64_t at, std::span<std::byte> bytes) override;
  void look(std::uint64_t at, std::span<std::byte> bytes) override;
  std::span<const std::byte> view(const Extent& extent) override;
  std::uint64_t size() override;
  std::uint64_t reserve(std::uint64_t size_bytes) override;
  std::uint64_t shrink(std::uint64_t size_bytes) override;
  Promises promises() const override;

 private:
  // What a write has not taken yet: where it lies, and where it was noted.
  struct Lent {
    std::span<const std::byte> bytes;
    Stretch stored;
  };

  void copy_out(std::uint64_t at, std::span<std::byte> bytes) const;  // what is visible
  void show(std::uint64_t at, std::span<std::byte> bytes);            // what a read gives
  void become_unsure();
  void tell_late();
  void written_anew(std::uint64_t at, std::uint64_t size_bytes);
  void fail_if_told(const char* call, bool loses_all, Part part,
                    const std::function<void()>& in_part = {});
  void assert_room(std::uint64_t at, std::uint64_t size_bytes) const;
  bool is_there(std::uint64_t at, std::uint64_t size_bytes) const;
  void require_there(std::uint64_t at, std::uint64_t size_bytes) const;
  void refuse_growth(std::uint64_t size_bytes);
  void grow_in_part(std::uint64_t size_bytes, std::uint64_t way);
  void write_in_part(std::uint64_t at, std::span<const std::byte> bytes);
  Stretch keep(std::uint64_t at, std::span<const std::byte> content);
  Stretch keep_page(std::uint64_t at, std::span<const std::byte> content);
  void happens(Event event);  // before it does, to the disk
  void take_lent(std::span<const std::byte> bytes);
  unsigned this_thread();

  std::mutex mutex_;
  Disk& disk_;
  Log& log_;
  Behaviour behaviour_;
  ReadSet* reads_;
  std::uint64_t sequence_ = 0;  // of the last write; unique within the log, whatever medium wrote
  HeldPages held_;
  std::vector<Lent> lent_;
  Unsure unsure_;           // once a call has failed
  bool untold_ = false;     // a write has failed, and nobody was told
  bool unsettled_ = false;  // something was written or stored since the last barrier
  std::map<std::thread::id, unsigned> threads_;
};

// The medium of a shelf, or its two media: one fails without the other, and each has barriers of
// its own.
struct Recorded {
  std::unique_ptr<Medium> first;
  std::vector<std::unique_ptr<Medium>> also = {};
  std::vector<MirrorMedium> mirrors = {};
};
Recorded recorded(Disk& disk, Log& log, const Behaviour& behaviour, ReadSet* reads = nullptr);
// Where tensors lie then: by their names on either, and large ones on both.
PlaceTensor place_on_both(const Behaviour& behaviour);

}  // namespace tensorshelf::crash
