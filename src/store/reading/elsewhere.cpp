#include "store/reading/elsewhere.hpp"

#include <mutex>

#include "base/planted.hpp"
#include "store/io/unreadable.hpp"

namespace tensorshelf {

namespace {

bool read_slot(GuardedMedium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
               unsigned slot, std::span<std::byte> room) {
  const auto bytes = room.first(recorded.size_bytes());
  try {
    medium.read(recorded.tensor.chunk_at(slot, recorded.chunk), bytes);
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
    return false;
  }
  return recorded.matches(bytes, seeds) || planted(Bug::healed_unchecked);
}

}  // namespace

bool mirror_lacks(GuardedMedium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
                  std::span<std::byte> room) {
  if (!recorded.is_stored() || planted(Bug::mirror_not_verified)) return false;
  return medium.has_mirror(recorded.at()) && !read_mirror(medium, seeds, recorded, room);
}

bool read_own(GuardedMedium& medium, const format::Seeds& seeds, const RecordedChunk& recorded,
              std::span<std::byte> room) {
  return read_slot(medium, seeds, recorded, recorded.slot(), room);
}

bool read_elsewhere(GuardedMedium& medium, const format::Seeds& seeds,
                    const RecordedChunk& recorded, std::span<std::byte> room) {
  if (read_mirror(medium, seeds, recorded, room)) return true;
  for (unsigned slot = 0; slot < recorded.tensor.slot_count(); ++slot) {
    if (slot == recorded.slot()) continue;
    if (read_slot(medium, seeds, recorded, slot, room)) return true;
  }
  return false;
}

namespace {

bool read_by(decltype(read_elsewhere)& read, State& state, const Error& error,
             const RecordedChunk& recorded, std::span<std::byte> room) {
  if (error.code() != Errc::corrupt) return false;
  try {
    if (!read(*state.medium, state.seeds, recorded, room)) return false;
  } catch (const Error&) {  // `error` is thrown then
    return false;
  }
  ++state.counters.healed;
  return true;
}

}  // namespace

bool read_mirrored(State& state, const Error& error, const RecordedChunk& recorded,
                   std::span<std::byte> room) {
  return read_by(read_mirror, state, error, recorded, room);
}

bool read_healed(State& state, const Error& error, const RecordedChunk& recorded,
                 std::span<std::byte> room) {
  return read_by(state.asked.heal ? read_elsewhere : read_mirror, state, error, recorded, room);
}

namespace {

bool is_in_newest(const State& state, const RecordedChunk& recorded) {
  const std::lock_guard lock(state.structure);
  const Version& newest = *state.versions.retained.back();
  return has(newest, recorded.tensor) &&
         newest.tree.record(recorded.tensor.cell(recorded.chunk)) == recorded.record;
}

bool is_elsewhere(const State& state, const RecordedChunk& recorded) {
  try {
    return read_elsewhere(*state.medium, state.seeds, recorded, chunk_scratch());
  } catch (const Error&) {  // there is one to tell already
    return false;
  }
}

}  // namespace

std::string how_to_heal(const State& state, const RecordedChunk& recorded) {
  if (!is_in_newest(state, recorded)) {
    return "Other versions may have it whole: versions lists them. The newest one does not have "
           "this chunk, and verify() reads that one alone.";
  }
  const std::string other = "verify() lists all damage; assigning the whole tensor heals it";
  if (!is_elsewhere(state, recorded)) return other;
  return "verify(repair=True), of a shelf that is open for writing, restores it from another "
         "slot or a mirror; " +
         other;
}

std::vector<std::uint64_t> intact_in(const State& state, StoredTensor& tensor,
                                     std::uint64_t chunk) {
  std::vector<RecordedChunk> olders;
  {
    const std::lock_guard lock(state.structure);
    for (const auto& version : state.versions.retained) {
      if (version == state.versions.retained.back()) break;
      if (!state.versions.is_offered(*version) || !has(*version, tensor)) continue;
      olders.push_back(recorded_in(*version, tensor, chunk));
    }
  }
  std::vector<std::uint64_t> intact;
  for (const RecordedChunk& older : olders) {
    if (chunk_intact(*state.medium, state.seeds, older)) intact.push_back(older.seen_in);
  }
  return intact;
}

}  // namespace tensorshelf
