// What the world does wrong: one exception type with a stable code, a sentence that names the
// thing and the limit, and the remedy. What we do wrong is an assert (src/base/check.hpp).
//
// Match on code(), never on the text: the text may improve, the code may not change.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tensorshelf {

enum class Errc {
  not_found,     // no shelf at the path
  exists,        // mode x, and there is one
  not_a_shelf,   // no shelf header: zeroed, or something else
  truncated,     // the medium is shorter than the shelf's own record of it
  newer_format,  // written by a later tensorshelf
  busy,          // it is open for writing elsewhere; os_error EDEADLK: by this process itself
  full,          // no room for a tensor's slots (never thrown by persist()), or no number left
  layout,        // dtype, shape or byte range differ from the tensor's
  unknown_name,  // no tensor of that name
  bad_name,      // empty, too long, not UTF-8, or reserved
  name_taken,    // create, and there is a tensor of that name
  bad_argument,  // a size text, mode, tier or option that cannot be read
  corrupt,       // a checksum fails and no intact copy exists
  read_only,     // opened with mode r, or the file may not be written, or not even read
  closed,        // used after close()
  leased,        // a live view pins the slot that the write needs
  forked,        // used in a child of the process that opened it
  not_dax,       // tier pmem was asked for and the path is not persistent memory
  unsupported,   // this build, this shelf or the place of the call lacks it (see text)
  uncommitted,  // something was assigned, created or erased since the last commit, or is on its way
  unresolved,   // an attempt is prepared, and it is not decided whether it is committed
  abandoned,    // the attempt that the changes belonged to was abandoned: discard() them
  transaction,  // refused within a transaction, by the thread that began it
  spoiled,      // an assignment that failed had overwritten a value that was not persisted yet
  torn,         // a source of a save changed while it was copied
  pinned,       // a reader elsewhere, or this very process, holds the version whose slot is needed
  medium_missing,  // a medium beside the first is not there, is another shelf's, or an older
                   // copy; or the first is an older copy
  gone,            // a commit: the file was deleted, or another has its name now
  stale,           // the version is no longer retained: its writer has gone on
  io,              // the operating system failed a read, a write or a barrier, or CUDA a copy
  failed,          // an earlier write or barrier failed: reopen (I8)
};

// The code as users and logs see it: "shelf_not_found", "layout_mismatch", ... Never changes.
std::string_view code_name(Errc code) noexcept;

class Error : public std::runtime_error {
 public:
  // `what` names the thing and the limit; `remedy` says what to do, and becomes a sentence with
  // capital and full stop; `os_error` is an errno or 0. Control characters are shown as \x00.
  Error(Errc code, const std::string& what, std::string remedy, int os_error = 0);

  Errc code() const noexcept { return code_; }
  const std::string& remedy() const noexcept { return remedy_; }
  int os_error() const noexcept { return os_error_; }

 private:
  Errc code_;
  std::string remedy_;
  int os_error_;
};

}  // namespace tensorshelf
