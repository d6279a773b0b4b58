// A tensor's bytes lent out: in place where nothing can change them, else as a copy.
#include <memory>
#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "store/chunk_io.hpp"
#include "store/reader.hpp"

namespace tensorshelf {

using format::ChunkKind;

// Keeps the slot from being written, and what the tensor owns from being given back.
struct Reader::Pin {
  std::shared_ptr<GuardedMedium> medium;
  std::shared_ptr<StoredTensor> tensor;
  std::shared_ptr<Holding> holding;
  unsigned slot;

  Pin(std::shared_ptr<GuardedMedium> m, std::shared_ptr<StoredTensor> t, unsigned s)
      : medium(std::move(m)), tensor(std::move(t)), slot(s) {
    if (!planted(Bug::leased_slot_reused)) holding = tensor->holding.lock();
    ++tensor->pins[slot];
  }
  ~Pin() { --tensor->pins[slot]; }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
};

Lease Reader::lease(const std::shared_ptr<StoredTensor>& tensor, Of which) {
  const Use use(state_);
  std::lock_guard lock(tensor->mutex);
  const auto holding = hold(*tensor);
  const std::uint64_t size = tensor->layout.size_bytes;
  const Records now = records(*tensor, 0, size, which);
  bool in_place = state_.promises.mapped && state_.writable && tensor->whole() && size > 0;
  const unsigned slot = format::chunk_slot(now[0]);
  for (std::uint64_t chunk = 0; in_place && chunk < tensor->layout.chunk_count(); ++chunk) {
    in_place = format::chunk_kind(now[chunk]) == ChunkKind::stored &&
               format::chunk_slot(now[chunk]) == slot;
  }
  if (in_place) {
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      compared_chunk(*tensor, now[chunk], chunk, chunk_scratch());
    }
    return Lease(state_.medium->view(tensor->layout.slot(slot)), true,
                 std::make_shared<Pin>(state_.medium, tensor, slot));
  }
  const auto copy = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> bytes(copy.get(), size);
  read_locked(*tensor, bytes, 0, now);
  if (which.kind() == Of::Kind::version) throw_if_overtaken(which.number());
  return Lease(bytes, false, copy);
}

}  // namespace tensorshelf
