// What a shelf gave out hands its calls to the store, too.
#include <tensorshelf/handles.hpp>

#include <utility>

#include <tensorshelf/error.hpp>

#include "store/commit/assignment.hpp"
#include "store/commit_checks.hpp"
#include "store/store.hpp"

namespace tensorshelf {

TensorInfo TensorRef::info() const { return store_->catalog().info(*tensor_, Of::committed()); }
std::string_view TensorRef::name() const noexcept { return tensor_->name(); }
std::uint64_t TensorRef::id() const noexcept { return tensor_->layout.tensor_id; }
bool TensorRef::is_gone() const {
  const std::lock_guard lock(tensor_->mutex);
  return tensor_->erased;
}
DType TensorRef::dtype() const noexcept { return tensor_->layout.dtype; }
std::span<const std::int64_t> TensorRef::shape() const noexcept {
  return {tensor_->layout.shape.data(), tensor_->layout.shape.size()};
}

void TensorRef::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  store_->write(tensor_, bytes, offset);
}

Assignment TensorRef::assign() { return Assignment(store_, tensor_); }

Assignment::Assignment(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor)
    : store_(std::move(store)),
      tensor_(std::move(tensor)),
      assignment_(store_->assign(tensor_)),
      medium_(assignment_->medium()) {}

Assignment::Assignment(std::shared_ptr<Store> store, NewTensor made)
    : store_(std::move(store)),
      made_(std::make_unique<NewTensor>(std::move(made))),
      tensor_(made_->named.tensor),
      assignment_(store_->assign(*made_)),
      medium_(assignment_->medium()) {}

Assignment::~Assignment() = default;

std::uint64_t Assignment::tensor_id() const noexcept { return tensor_->layout.tensor_id; }

StoredAssignment& Assignment::under_way() const {
  if (assignment_) return *assignment_;
  throw Error(Errc::unsupported, "the assignment has ended: it is done",
              "Begin another one with assign().");
}

void Assignment::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  under_way().write(bytes, offset);
}

void Assignment::write_lent(std::span<const std::byte> bytes, std::uint64_t offset) {
  under_way().write(bytes, offset, Handing::lend);
}

void Assignment::await_lent(std::span<const std::byte> bytes) const noexcept {
  if (const auto medium = medium_.lock()) medium->await_lent(bytes);
}

bool Assignment::takes_lent() const { return under_way().takes_lent(); }

void Assignment::done() {
  if (!made_) {
    under_way().done();
    assignment_.reset();
    return;
  }
  under_way().done_apart(*made_);
  assignment_.reset();
  const auto made = std::move(made_);  // from here on its places are the attempt's
  store_->tensors().add(*made);
}

void TensorRef::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->reader().read(*tensor_, bytes, offset, Of::staged());
}

void TensorRef::read_committed(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->reader().read(*tensor_, bytes, offset, Of::committed());
}

Lease TensorRef::lease() const { return store_->reader().lease(tensor_, Of::staged()); }
Lease TensorRef::lease_committed() const {
  return store_->reader().lease(tensor_, Of::committed());
}

VersionInfo RetainedVersion::info() const { return store_->catalog().version_info(version_); }
std::vector<std::string> RetainedVersion::names() const {
  return store_->catalog().names(version_);
}
std::optional<RetainedTensor> RetainedVersion::find(std::string_view name) const {
  auto tensor = store_->catalog().find(name, version_);
  if (!tensor) return std::nullopt;
  return RetainedTensor(store_, std::move(tensor), version_);
}

TensorInfo RetainedTensor::info() const {
  return store_->catalog().info(*tensor_, Of::version(version_));
}
void RetainedTensor::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->reader().read(*tensor_, bytes, offset, Of::version(version_));
}
Lease RetainedTensor::lease() const {
  return store_->reader().lease(tensor_, Of::version(version_));
}

VersionPin::VersionPin(std::shared_ptr<Store> store, std::optional<std::uint64_t> version,
                       PinnedFor what)
    : store_(std::move(store)),
      hold_(store_->follower().hold(
          version, what == PinnedFor::copy ? VersionHold::By::copy : VersionHold::By::user)) {}
VersionPin::VersionPin(VersionPin&&) noexcept = default;
VersionPin::~VersionPin() { hold_.reset(); }  // before the store goes
std::uint64_t VersionPin::version() const { return hold_->version(); }

Transaction::~Transaction() {
  if (!store_) return;
  try {
    store_->transactions().drop();
  } catch (...) {  // closed or failed meanwhile: then nothing of it is committed
  }
}

Commit Transaction::commit(std::optional<std::uint64_t> step) {
  if (!store_) {
    throw Error(Errc::transaction, "the transaction has ended: it was committed or discarded",
                "Begin another one with transaction().");
  }
  check_step(step);
  check_name(file_);
  store_->catalog().check_media();
  bool ended = false;
  const auto store = std::exchange(store_, nullptr);
  try {
    return store->transactions().commit(step, ended);
  } catch (...) {
    if (!ended) store_ = store;
    throw;
  }
}

void Transaction::discard() {
  if (store_) store_->refuse_inside("a transaction was discarded");
  if (const auto store = std::exchange(store_, nullptr)) store->transactions().drop();
}

}  // namespace tensorshelf
