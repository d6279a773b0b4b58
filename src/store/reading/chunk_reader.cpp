#include "store/reading/chunk_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"
#include "store/io/unreadable.hpp"
#include "store/reading/elsewhere.hpp"
#include "store/reading/overtaken.hpp"

namespace tensorshelf {

bool ChunkReader::checks() const {
  if (planted(Bug::chunk_checksum_ignored)) return false;
  return state_.asked.verify != Verify::never || !state_.writable;
}

// The tensor's name in the version that says so, or now.
std::string ChunkReader::called(const RecordedChunk& recorded) const {
  const std::lock_guard lock(state_.structure);
  for (const auto& one : state_.versions.retained) {
    if (one->number() != recorded.seen_in) continue;
    if (const auto* const name = name_in(*one->names, recorded.tensor)) return *name;
  }
  return recorded.tensor.name();
}

void ChunkReader::throw_damaged(const RecordedChunk& recorded, const std::string& how,
                                int os_error) {
  throw_if_overtaken(state_, recorded.seen_in);
  // No damage: what is not committed is unsure where the medium has failed, which then says so.
  const std::uint64_t of = std::max(recorded.seen_in, recorded.version());
  if (state_.writable && of > state_.version && !planted(Bug::lost_stage_is_damage)) {
    state_.medium->wait({state_.last_ticket, 0});  // a write may have failed, and nobody heard yet
  }
  throw Error(
      Errc::corrupt,
      fmt::format("'{}' v{} slot {}: chunk {} {}; the other tensors of version {} can be read",
                  called(recorded), recorded.version(), slot_name(recorded.slot()), recorded.chunk,
                  how, recorded.seen_in),
      how_to_heal(state_, recorded), os_error);
}

// Else what was checked must be what is returned: a writer elsewhere may reuse the slot.
bool ChunkReader::no_one_else_writes() const {
  return state_.writable || planted(Bug::reader_trusts_slot);
}

// Out of the medium, into `target`, of the size of the chunk.
void ChunkReader::read_out(const RecordedChunk& recorded, std::span<std::byte> target) {
  try {
    state_.medium->read(recorded.at(), target);
  } catch (const Error& error) {
    if (is_cut_off(error)) throw_if_overtaken(state_, recorded.seen_in);
    if (!is_unreadable(error)) throw;
    throw_damaged(recorded, fmt::format("cannot be read ({})", error.what()), error.os_error());
  }
}

UntrustedBytes ChunkReader::fetch(const RecordedChunk& recorded, std::span<std::byte> scratch) {
  if (no_one_else_writes()) {
    const auto bytes = state_.medium->view(recorded.extent());
    if (!bytes.empty()) return UntrustedBytes(bytes);
  }
  const auto copy = scratch.first(recorded.size_bytes());
  read_out(recorded, copy);
  return UntrustedBytes(copy);
}

// Mapped bytes that are gone are asked of the medium, which knows why.
void ChunkReader::copy_out(const RecordedChunk& recorded, std::span<std::byte> target,
                           std::uint64_t within) {
  const auto whole = target.size() == recorded.size_bytes() ? target : chunk_scratch();
  const auto bytes = fetch(recorded, whole);
  if (bytes.lie_in(target) || bytes.part(within, target.size()).copy_into(target)) return;
  const auto room = planted(Bug::reread_over_another) ? chunk_scratch() : whole;
  const auto copy = room.first(bytes.size());
  read_out(recorded, copy);
  const bool apart = copy.data() != target.data();
  if (apart) std::memcpy(target.data(), copy.data() + within, target.size());
}

UntrustedBytes ChunkReader::compared(const RecordedChunk& recorded, std::span<std::byte> scratch) {
  auto bytes = fetch(recorded, scratch);
  const bool mapped = state_.medium->is_mapped(recorded.at());
  if (no_one_else_writes() && mapped && recorded.verified()) return bytes;
  if (!checks()) return bytes;
  const std::uint64_t seed = recorded.seed(state_.seeds);
  auto hash = bytes.hash(seed);
  if (!hash) {
    const auto copy = scratch.first(bytes.size());
    read_out(recorded, copy);
    hash = hash_bytes(copy, seed);
    bytes = UntrustedBytes(copy);
  }
  check_sum(recorded, *hash);
  return bytes;
}

void ChunkReader::check_sum(const RecordedChunk& recorded, std::uint64_t checksum) {
  ++state_.counters.verified;
  if (checksum == recorded.record.checksum) {
    recorded.tensor.set_verified(recorded.slot(), recorded.chunk);
  } else if (state_.asked.verify != Verify::never) {
    throw_damaged(recorded);
  } else {
    throw_if_overtaken(state_, recorded.seen_in);  // else damaged, and asked for all the same
  }
}

// Before they are copied over what another slot has, which may be the chunk's last sound copy: also
// behind a first look, where that copy is to be had. (Where they are gone, writing them says why.)
void ChunkReader::check_unread(const RecordedChunk& recorded, const UntrustedBytes& bytes) {
  const bool trusted = recorded.verified() && !state_.asked.heal;
  if (trusted || planted(Bug::rot_copied_over)) return;
  ++state_.counters.verified;
  const auto hash = bytes.hash(recorded.seed(state_.seeds));
  if (hash && *hash != recorded.record.checksum) throw_damaged(recorded);
}

void ChunkReader::read_sound(const RecordedChunk& recorded, std::span<std::byte> target) {
  try {
    copy_out(recorded, target, 0);
    ++state_.counters.verified;
    if (!recorded.matches(target, state_.seeds)) throw_damaged(recorded);
  } catch (const Error& error) {
    const bool mirrored = read_mirrored(state_, error, recorded, target);
    if (!mirrored || planted(Bug::pieces_not_healed)) throw;
  }
}

}  // namespace tensorshelf
