#include "store/commit/chunk_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "base/side_by_side.hpp"

namespace tensorshelf {

void note_ticket(State& state, const Ticket& ticket) {
  std::uint64_t seen = state.last_ticket.load(std::memory_order_relaxed);
  while (seen < ticket.sequence &&
         !state.last_ticket.compare_exchange_weak(seen, ticket.sequence)) {
  }
}

ChunkCopy::ChunkCopy(StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                     std::span<const std::byte> bytes, Handing handing)
    : slot_(slot), chunk_(chunk), bytes_(bytes), handing_(handing) {
  tensor.clear_verified(slot, chunk);
  if (tensor.whole()) tensor.label(slot, chunk) = 0;
}

void ChunkCopy::run(State& state, const StoredTensor& tensor) {
  const auto write = handing_ == Handing::lend ? &Medium::write_lent : &Medium::write;
  const Ticket ticket = (*state.medium.*write)(tensor.chunk_at(slot_, chunk_), bytes_,
                                               tensor.chunk_seed(state.seeds, chunk_));
  note_ticket(state, ticket);
  checksum_ = ticket.checksum;
}

std::uint64_t ChunkCopy::done(StoredTensor& tensor) const {
  tensor.set_verified(slot_, chunk_);
  return checksum_;
}

std::uint64_t put_chunk(State& state, StoredTensor& tensor, unsigned slot, std::uint64_t chunk,
                        std::span<const std::byte> bytes, Handing handing) {
  ChunkCopy copy(tensor, slot, chunk, bytes, handing);
  copy.run(state, tensor);
  return copy.done(tensor);
}

void run_all(State& state, const StoredTensor& tensor, std::span<ChunkCopy> copies,
             unsigned threads) {
  if (planted(Bug::copy_left_out) && copies.size() > 1) copies = copies.first(copies.size() - 1);
  std::mutex mutex;
  std::exception_ptr refused;  // after a failure: of one of these, which says more, or of another's
  auto copy = [&](std::size_t part) {
    {
      const std::lock_guard lock(mutex);
      if (refused) return;
    }
    try {
      copies[part].run(state, tensor);
    } catch (const Error& error) {
      if (error.code() != Errc::failed) throw;
      const std::lock_guard lock(mutex);
      refused = std::current_exception();
    }
  };
  sharing.share(threads, copies.size(), PartJob(copy));
  if (refused) std::rethrow_exception(refused);
}

unsigned threads_for(const State& state, std::uint64_t size_bytes) {
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(size_bytes / sharing.bytes_each, 1, state.asked.threads));
}

}  // namespace tensorshelf
