// One of the media behind the guard (media.hpp): what it got since its last barrier, and its
// mirror, which gets the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

struct GuardedMember {
  explicit GuardedMember(std::unique_ptr<Medium> medium)
      : inner(std::move(medium)), mapped(inner->promises().mapped), size(inner->size()) {}

  const std::unique_ptr<Medium> inner;
  const bool mapped;
  std::atomic<std::uint64_t> size;
  std::atomic<std::uint64_t> written = 0;  // the last sequence of its own
  std::atomic<bool> wrote = false;         // since the last wait; sequences need not rise
  // Changed since its last barrier, as far as one would cover it: what was written and not yet
  // waited for is for a later one. At first nobody knows what another process left (I12).
  std::atomic<bool> unsettled = true;
  // Where what is written here is written, too; set, and given up, while nobody writes.
  std::atomic<GuardedMember*> mirror = nullptr;
  std::uint64_t mirror_shift = 0;
  std::atomic<bool> mirror_uncut = false;

  bool within(std::uint64_t offset, std::uint64_t size_bytes) const {
    const std::uint64_t end = size.load(std::memory_order_relaxed);
    return offset <= end && size_bytes <= end - offset;
  }

  static void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    std::uint64_t seen = number.load(std::memory_order_relaxed);
    while (seen < to && !number.compare_exchange_weak(seen, to)) {
    }
  }

  void note(std::uint64_t sequence) {
    const bool rises = sequence > written.load(std::memory_order_relaxed);
    raise(written, sequence);
    if (rises || !planted(Bug::settled_by_sequence)) wrote = true;
  }

  // `by`: Medium::write or Medium::write_lent. Of a source that changes, and is copied, the mirror
  // gets what the medium got.
  Ticket write(decltype(&Medium::write) by, std::uint64_t at, std::span<const std::byte> bytes,
               std::uint64_t seed) {
    const Ticket ticket = (*inner.*by)(at, bytes, seed);
    GuardedMember* const twin = mirror;
    if (twin == nullptr || planted(Bug::mirror_not_written)) return ticket;
    Ticket there = (*twin->inner.*by)(at + mirror_shift, bytes, seed);
    twin->note(there.sequence);
    if (there.checksum == ticket.checksum) return ticket;
    std::vector<std::byte> got(bytes.size());
    inner->read(at, got);
    there = twin->inner->write(at + mirror_shift, got, seed);
    twin->note(there.sequence);
    return ticket;
  }

  void store_word(std::uint64_t at, std::uint64_t word) {
    inner->store_word(at, word);
    unsettled = true;
    GuardedMember* const twin = mirror;
    if (twin == nullptr || planted(Bug::mirror_word_left_out)) return;
    twin->inner->store_word(at + mirror_shift, word);
    twin->unsettled = true;
  }

  // The mirror first: where it is full, nothing has happened.
  std::uint64_t reserve(std::uint64_t size_bytes) {
    if (GuardedMember* const twin = mirror) twin->reserve(size_bytes + mirror_shift);
    const std::uint64_t grown = inner->reserve(size_bytes);
    TENSORSHELF_ASSERT(grown >= size_bytes);
    raise(size, grown);  // a file may be longer than the room in it, which can still be read
    unsettled = true;
    // A medium may give more than was asked for.
    if (GuardedMember* const twin = mirror; twin != nullptr && grown > size_bytes) {
      try {
        twin->reserve(grown + mirror_shift);
      } catch (const Error& error) {
        if (error.code() != Errc::full) throw;
        return size_bytes;  // for which both have room
      }
    }
    return grown;
  }

  std::uint64_t shrink(std::uint64_t size_bytes) {
    const std::uint64_t left = inner->shrink(size_bytes);
    TENSORSHELF_ASSERT(left >= size_bytes);
    size.store(left, std::memory_order_relaxed);
    mirror_uncut = false;
    GuardedMember* const twin = mirror;
    if (twin == nullptr || left + mirror_shift >= twin->size) return left;
    try {
      twin->shrink(left + mirror_shift);
    } catch (const std::exception&) {
      mirror_uncut = true;  // what it mirrors is cut by now: it is longer than it need be
    }
    return left;
  }

  void wait() {
    const bool more = wrote.exchange(false);
    // Before, too: another thread's wait may take it meanwhile, and find nothing to settle (I1).
    if (more) unsettled = true;
    inner->wait({written.load(std::memory_order_acquire), 0});
    if (more) unsettled = true;
  }

  void barrier() {
    if (!unsettled.exchange(false)) return;
    inner->barrier();  // I1, I2: all that this medium got
  }
};

}  // namespace tensorshelf
