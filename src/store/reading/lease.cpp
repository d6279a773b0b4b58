// A tensor's bytes lent out: in place where nothing can change them, else as a copy.
#include <memory>
#include <mutex>
#include <utility>

#include "base/planted.hpp"
#include "media/pins.hpp"
#include "store/io/chunk_io.hpp"
#include "store/reading/reader.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

// Keeps the slot from being written, and what the tensor owns from being given back.
struct Reader::LeasedSlot {
  std::shared_ptr<GuardedMedium> medium;
  std::shared_ptr<StoredTensor> tensor;
  std::shared_ptr<Holding> holding;
  unsigned slot;

  LeasedSlot(std::shared_ptr<GuardedMedium> on, std::shared_ptr<StoredTensor> of,
             std::shared_ptr<Holding> lying, unsigned leased)
      : medium(std::move(on)), tensor(std::move(of)), slot(leased) {
    if (!planted(Bug::leased_slot_reused)) holding = std::move(lying);
    ++tensor->leases[slot];
  }
  ~LeasedSlot() { --tensor->leases[slot]; }
  LeasedSlot(const LeasedSlot&) = delete;
  LeasedSlot& operator=(const LeasedSlot&) = delete;
};

// A reader's pin: what it shows in place stays so, with the version pinned and no writer that
// outruns.
struct Reader::FirmPin {
  std::shared_ptr<GuardedMedium> medium;
  std::uint64_t version;

  FirmPin(std::shared_ptr<GuardedMedium> on, std::uint64_t pinned)
      : medium(std::move(on)), version(pinned) {
    medium->pins()->take(version);
  }
  ~FirmPin() {
    if (firm) medium->pins()->drop_firm();
    medium->pins()->drop(version);
  }
  FirmPin(const FirmPin&) = delete;
  FirmPin& operator=(const FirmPin&) = delete;
  bool firm = false;
};

// None where nothing may be shown in place: of a version that nobody holds, or beside a writer that
// outruns who holds it.
std::shared_ptr<const void> Reader::pin_in_place(Of which) {
  if (which.kind() != Of::Kind::version) return nullptr;
  const auto lock = state_.lock_usable();  // so that who holds it does not let go before
  if (!state_.versions.holds.lets_be(which.number())) return nullptr;
  auto pin = std::make_shared<FirmPin>(state_.medium, which.number());
  pin->firm = state_.medium->pins()->take_firm();
  if (!pin->firm && !planted(Bug::shown_beside_outrunner)) return nullptr;
  return pin;
}

Lease Reader::lease(const std::shared_ptr<StoredTensor>& tensor, Of which) {
  const Use use(state_);
  std::lock_guard lock(tensor->mutex);
  const auto holding = keep_places_of(state_, *tensor);
  const std::uint64_t size = tensor->layout.size_bytes;
  const RecordedChunks now = records(*tensor, 0, size, which);
  std::shared_ptr<const void> pin;
  bool in_place = tensor->whole() && size > 0 && state_.medium->is_mapped(tensor->chunk_at(0, 0));
  const unsigned slot = now[0].slot();
  for (std::uint64_t chunk = 0; in_place && chunk < tensor->layout.chunk_count(); ++chunk) {
    in_place = now[chunk].is_stored() && now[chunk].slot() == slot;
  }
  if (in_place && !state_.writable) in_place = (pin = pin_in_place(which)) != nullptr;
  if (in_place) {
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      chunks_.compared(now[chunk], chunk_scratch());
    }
    if (!pin) pin = std::make_shared<LeasedSlot>(state_.medium, tensor, holding, slot);
    return Lease(state_.medium->view(tensor->layout.slot(slot)), true, std::move(pin));
  }
  const auto copy = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> bytes(copy.get(), size);
  read_locked(now, 0, bytes);
  return Lease(bytes, false, copy);
}

}  // namespace tensorshelf
