// How a shelf is opened, and what may be chosen then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf {

enum class Mode {
  read,     // "r":  must exist; nothing is written, no lock is taken but by Shelf::pin() (a pool
            //       is open once at a time, in this mode too)
  update,   // "r+": must exist
  append,   // "a":  opened, or created where there is none, or a file of 0 bytes
  replace,  // "w":  a new shelf, in place of any there was
  create,   // "x":  a new shelf; it is an error if there is one
};

// What OpenOptions::tier may be: "auto", and the name of each medium that can be asked for.
std::vector<std::string> tiers();

// When chunk checksums are checked. never: not at all. on_load: when a chunk is read (the default;
// on a mapped medium that is open for writing, when it is first read). on_open: all of them, by
// open(). Metadata is always checked.
enum class Verify { never, on_load, on_open };

// What a writer does where it needs a slot of a version that a reader elsewhere holds (Shelf::pin()
// of a shelf that is open with Mode::read): waits for that reader, or goes on without it, which
// then gets Errc::stale.
enum class OnPin { wait, outrun };

// Called with work done and work in all, in bytes, from the thread that called into the shelf.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct BlockTuning {
  std::uint64_t buffer_bytes = 2 * 1024 * 1024;  // of one registered buffer; a multiple of 1 MiB
  unsigned queue_depth = 16;                     // buffers, and writes in flight at most
  bool io_uring = true;                          // false: pwrite, as if io_uring were refused
  bool direct = true;                            // false: buffered, as if O_DIRECT were refused
  // New room is written with zeros (zero_room) where no more than this comes at a time: zeros in
  // more cost a first save more than they spare the second. In C++ alone, as zero_room is.
  std::uint64_t zeroed_bytes = 1024 * 1024;
};

// Which media a new tensor of that name and size is to lie on, by their numbers in
// ShelfInfo::media: 0 is the shelf's own. Several: its chunks go round them. None: the
// default (OpenOptions::place).
using PlaceTensor =
    std::function<std::vector<unsigned>(std::string_view name, std::uint64_t size_bytes)>;

// What is to mirror a medium: a file or device, and the number of the medium (ShelfInfo::media).
struct Mirror {
  std::string path;
  unsigned of = 0;
};

struct OpenOptions {
  Mode mode = Mode::append;
  // "auto": the medium that suits the path. One of the other tiers(): that medium, or an error.
  std::string tier = "auto";
  std::uint64_t max_size_bytes = 0;  // cap on a file's growth; 0: none. A device decides itself.
  // Whether new room of a file is touched ahead of its use. On block media a little of it is
  // written with zeros then (BlockTuning::zeroed_bytes), so that no later flush converts an extent.
  // In more room, and with false, blocks are only allocated, and a flush after the first write to
  // some of them costs a journal commit more. On tmpfs with false all writes go by way of the file,
  // not the mapping.
  bool zero_room = true;
  Verify verify = Verify::on_load;
  BlockTuning block = {};
  Progress progress = {};
  // Versions that stay readable beside the newest, and attempts that may be on their way at once.
  // Every tensor has 1 + keep + in_flight slots, 2 to 16, for good.
  // - Where nothing is given, a new shelf has keep = 0 and in_flight = 1, and an existing one has
  //   what it had.
  // - An existing shelf may divide the same sum anew, which holds from the next commit on. Another
  //   sum is refused (Errc::bad_argument).
  std::optional<unsigned> keep = {};
  std::optional<unsigned> in_flight = {};
  std::optional<Placement> placement = {};  // of tensors that are made from now on
  // Media beside the one at the path: files or devices, eight media in all at most.
  // - Each that the shelf has is found here, beside the shelf, or else where it was last; one that
  //   is missing, another shelf's, or an older copy is refused by name (Errc::medium_missing).
  // - One that does not exist, or is empty, is made and added, with the next version. Mode::replace
  //   takes the media of the shelf that it replaces, too. One with anything else on it is refused
  //   (Errc::not_a_shelf).
  // - All but values lies on the first. tier, max_size_bytes and block hold for each medium: with
  //   another tier than "auto" all media are of that one.
  std::vector<std::string> also = {};
  // Mirrors of media: each of one medium, which has no other mirror and is no mirror itself.
  // - Made, added, found and refused as those of `also`, and counted with them. What the medium has
  //   is copied to a new mirror within open().
  // - Whatever is written on the medium is on its mirror as well, byte for byte, and durable there
  //   before a version counts as committed. A mirror that fails is a medium that fails.
  // - Mode::read needs one of the two. Where the shelf's own medium cannot be opened, its mirror is
  //   read in its place, which a note says: snapshot() makes a whole shelf of it.
  // - A mirror of the first that has a newer version, which a commit may have returned, is not
  //   written over: Errc::medium_missing. Where the first has that version, and damaged, the mirror
  //   is given up instead, and a note says so.
  std::vector<Mirror> mirrors = {};
  // Mirrors, by number, that a writer gives up where they are missing (else Errc::medium_missing):
  // the next version has them no more.
  std::vector<unsigned> without = {};
  // Called for each new tensor; it must not use the shelf, and what it throws comes from the call
  // that creates. Without it, or where it gives no medium,
  //
  //     tensors below 1 MiB          lie on the first medium
  //     others, not all mapped       go round all media that are not mapped
  //     others, all media mapped     lie on the second medium
  //
  // and with one medium all tensors lie there.
  PlaceTensor place = {};
  // Threads that copy one assignment, the caller among them: 1 to 64.
  // - 0: as many as this process may use CPUs, two at most (more were not measured).
  // - Each copies 8 MiB at least: below 16 MiB there is one.
  // - They end before the call does. Not stored; of no effect on an opening for reading.
  unsigned threads = 0;
  // A chunk whose assigned bytes are those of the version before is hashed and not written: frozen
  // weights cost a pass over memory. What did change is hashed twice.
  // - Bytes with the same XXH3-64 count as the same.
  // - It holds for chunks that are assigned whole, and that were written, or compared with their
  //   checksum, since the shelf was opened: assigning the same bytes to a damaged chunk heals it.
  // - Such a chunk keeps its slot and the number of the version that wrote it. Not stored.
  bool keep_unchanged = false;
  // A chunk that fails its checksum when it is read is read from another slot, where one has it
  // with the right checksum: the bytes come in place of Errc::corrupt. From a mirror it is read
  // without this option, too.
  // - Nothing is written: Shelf::heal() restores it, unless an assignment has taken the slot that
  //   has the sound bytes by then. Not stored.
  // - Of no effect where checksums are not checked (Verify::never), on what Verify::on_open finds,
  //   on leases in place, which can only show the slot, on snapshot(), resize() and move(), and on
  //   a chunk of which a write changes a part. What a commit or compact() copies from slot to slot
  //   is healed as a read is.
  bool heal = false;
  // What a writer does where a reader holds a version; not stored. A wait ends after pin_timeout,
  // by Errc::pinned, which names the reader. So does one for a pin of its own process, whatever is
  // said here.
  // - With OnPin::wait assignments and commits wait; and openings, where a reader holds a version
  //   that is not retained any more.
  // - With OnPin::outrun openings wait, while a reader shows bytes in place.
  OnPin on_pin = OnPin::wait;
  std::chrono::duration<double> pin_timeout{60};
  // Only with Mode::read and Verify::on_load: opens the newest version whose manifest is whole, in
  // spite of signs that a newer one is lost, and of damaged chunks. Reading those throws
  // Errc::corrupt as ever, and verify() lists them. See repair.hpp for how to write to it again.
  bool salvage = false;
  // Called by a thread that waits within a call: for another thread, or for a version on its way,
  // about every 50 ms; for another process (wait_for(), pins of readers) before each look at what
  // that does, which may be every millisecond. Not by one that waits for a read of the very tensor
  // that it assigns.
  // - It may throw: the call ends with what it threw, and nothing has changed.
  // - It may look at the shelf. A call in it that could wait again throws Errc::unsupported.
  // - Not called by close(), by the end of a transaction, and once a version is closed to writes:
  //   these come to their end.
  std::function<void()> while_waiting = {};
  // Called where an open shelf is destroyed, or another is moved over it, with what close() would
  // have thrown: why a commit or a save in the background failed, where no call has thrown that.
  // Must not use the shelf; what it throws is dropped. Without it, a line on stderr says so.
  std::function<void(const Error&)> on_unheard = {};
};

}  // namespace tensorshelf
