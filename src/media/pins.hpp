// Who holds which version of a shelf, across processes: a reader tells, and its writer looks before
// it gives a slot to another version (I3). Nothing of it is on the medium: what a process holds is
// gone with it.
//
// A pin and the look that makes it good:
//
//   reader   take(v)            then looks whether a root beyond v's floor was flipped
//   writer   flips such a root  then looks whether v is pinned
//
// so that one of the two sees the other (I3). Firm holds and outrunning in the same way: each tells
// first, and looks then.
//
// A look costs a system call, which a commit of microseconds would feel. So the writer may go by
// what it knows of readers for a while, kHearing, and a reader's first pin waits twice as long once
// it has told that it is there. What the writer gives up unlooked within that time it has flipped
// within it, which the reader's own look then finds.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "media/file.hpp"

namespace tensorshelf {

struct PinHolder {
  std::uint64_t pid = 0;            // as the reader knows itself; 0: unknown
  std::uint64_t since_seconds = 0;  // of the Unix clock
};

inline constexpr std::chrono::milliseconds kHearing{1};

// One for each opening of a shelf. Thread-safe.
class PinTable {
 public:
  virtual ~PinTable() = default;

  // ---- a reader

  // Tells that a reader is here, for as long as the opening lasts, and when every writer has heard
  // of it: before that nothing may be taken. Errc::io where the file system has no such locks.
  virtual std::chrono::steady_clock::time_point appear() = 0;
  // Until dropped as often as taken. Errc::io likewise.
  virtual void take(std::uint64_t version) = 0;
  virtual void drop(std::uint64_t version) noexcept = 0;
  // All versions, those to come as well: for who looks which is the newest, to take that one. A
  // writer that has no slot to spare waits meanwhile.
  virtual void take_all() = 0;
  virtual void drop_all() noexcept = 0;  // but those that are taken one by one
  // For who shows pinned bytes in place: no writer outruns it meanwhile. False where one does.
  virtual bool take_firm() = 0;
  virtual void drop_firm() noexcept = 0;
  // Whether a writer is there for which pins do not count.
  virtual bool is_outrun() const noexcept = 0;

  // ---- a writer

  // Whether there may be pins at all, behind a flip; costs next to nothing.
  virtual bool any_readers() noexcept = 0;
  // The first version from `first` to `last` that a reader holds.
  virtual std::optional<std::uint64_t> find(std::uint64_t first,
                                            std::uint64_t last) const noexcept = 0;
  virtual PinHolder holder(std::uint64_t version) const noexcept = 0;  // one of them
  // From here on pins do not count. False, and they do, where a reader holds some firmly.
  virtual bool outrun() = 0;
};

// By locks on bytes far beyond any file's end, which the kernel gives back when the descriptor goes
// (open file descriptions, fcntl(2)): on the file itself; of a DevDAX device on its folder in
// sysfs, to which every node leads. Null where that folder is not there.
std::unique_ptr<PinTable> make_pin_table(std::shared_ptr<ShelfFile> file);

}  // namespace tensorshelf
