// Where bytes may be written: slots that no version, no attempt in flight and no lease names (I3).
//
// With the tensor's mutex held, and the gate passed, or closed by us: what is in flight can only
// become less.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "store/state/state.hpp"

namespace tensorshelf {

// The chunk that was looked at last, and where it may go. Valid while the tensor's mutex is held: a
// lease, which could take the slot, needs it.
struct FoundSlot {
  std::uint64_t chunk = 0;
  std::optional<unsigned> slot = {};
};

class FreeSlots {
 public:
  explicit FreeSlots(State& state) : state_(state) {}

  // For the next value of the chunk: of the slots that are free the one that lies lowest, so that
  // what is assigned moves down by itself; nothing where every slot is named.
  std::optional<unsigned> find(const StoredTensor& tensor, std::uint64_t chunk) const {
    return find(tensor, chunk, Naming::all);
  }
  // Waits until every chunk of those bytes has one, of which the last is returned; lets go of the
  // lock meanwhile, for others to read. Errc::leased where no commit will free one, and
  // Errc::unresolved where only a decision will.
  FoundSlot await(const StoredTensor& tensor, std::uint64_t offset, std::uint64_t size,
                  std::unique_lock<FairMutex>& lock) const;
  // Where the open attempt has the chunk, or is to have it, by what was found.
  unsigned next(const StoredTensor& tensor, std::uint64_t chunk, const FoundSlot& found) const;

 private:
  enum class Naming { all, kept };  // kept: as if who holds versions beyond keep let them go

  std::uint32_t named(const StoredTensor& tensor, std::uint64_t chunk, Naming naming) const;
  std::optional<unsigned> find(const StoredTensor& tensor, std::uint64_t chunk,
                               Naming naming) const;
  std::optional<FoundSlot> find_all(const StoredTensor& tensor, std::uint64_t offset,
                                    std::uint64_t size, Naming naming) const;

  State& state_;
};

// The slot that a write needs is what somebody has a view of.
[[noreturn]] void throw_leased(const StoredTensor& tensor);

}  // namespace tensorshelf
