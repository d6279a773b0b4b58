#include "store/assignment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

void WrittenBytes::add(std::uint64_t begin, std::uint64_t end) {
  auto next = runs_.upper_bound(begin);
  if (next != runs_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != runs_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = runs_.erase(next);
  }
  runs_.emplace(begin, end);
}

// ---- begin and end ------------------------------------------------------------------------------

Store& StoredAssignment::may_begin(Store& store) {
  store.check_writable();
  store.refuse_inside("a tensor was assigned");
  return store;
}

StoredAssignment::StoredAssignment(Store& store, const std::shared_ptr<StoredTensor>& tensor)
    : store_(may_begin(store)),
      tensor_(tensor),
      alone_(tensor->assigning, *store.room_, store.patience_),
      inside_(*store.gate_, store.patience_) {
  store_.check_writable();
  store_.check_not_abandoned();
  store_.look_for_rival();
  outer_ = innermost_;
  innermost_ = this;
}

// In no list of the attempt's: whatever ends the attempt passes it by.
StoredAssignment::StoredAssignment(Store& store, const NewTensor& made)
    : StoredAssignment(store, made.named.tensor) {
  tensor_->attempt = store_.open_->sequence;
}

StoredAssignment::~StoredAssignment() {
  unlink();
  if (store_.fork_guard_.in_child()) {
    inside_.forsake();
    alone_.forsake();
    return;
  }
  if (!done_ && !planted(Bug::undone_chunk_kept)) undo();
  forget_touched();
}

void StoredAssignment::unlink() noexcept {
  StoredAssignment** at = &innermost_;
  while (*at != nullptr && *at != this) at = &(*at)->outer_;
  TENSORSHELF_ASSERT(*at == this);  // it ends in the thread in which it began
  *at = outer_;
}

const StoredAssignment* StoredAssignment::around(const Store& store) {
  const StoredAssignment* inside = innermost_;
  while (inside != nullptr && &inside->store_ != &store) inside = inside->outer_;
  return inside;
}

bool Store::is_inside() const {
  return patience_.is_calling() || StoredAssignment::around(*this) != nullptr;
}

void Store::refuse_inside(const char* what) const {
  if (!is_inside()) return;
  const StoredAssignment* const inside = StoredAssignment::around(*this);
  const auto where = inside == nullptr
                         ? std::string("a call that waits")
                         : fmt::format("an assignment to '{}'", inside->tensor().layout.name);
  throw Error(Errc::unsupported, fmt::format("{} from inside {} of the same thread", what, where),
              "Let it end first. In a signal handler, set a flag, and do it in the main loop.");
}

// ---- writes -------------------------------------------------------------------------------------

void StoredAssignment::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  store_.check_usable();
  if (in_part_) {
    throw Error(Errc::unsupported,
                fmt::format("an assignment to '{}' goes on after a write of it that failed",
                            tensor_->layout.name),
                "Let it go, which undoes it, and begin another.");
  }
  in_part_ = true;
  store_.write(*this, bytes, offset);
  in_part_ = false;
  if (planted(Bug::assignment_cut)) {
    store_.gate_->leave();
    store_.gate_->enter(Patience());
  }
}

// All that can throw comes before the first chunk is touched. The tensor's mutex is held.
void StoredAssignment::begin_write(std::span<const std::byte> bytes, std::uint64_t offset) {
  if (tensor_->spoiled == store_.open_->sequence) bytes_.add(offset, offset + bytes.size());
  began_ |= store_.begin_write(tensor_);
  staged_bytes_ += bytes.size();  // undo() takes back as much
  store_.open_->staged_bytes += bytes.size();
}

void StoredAssignment::done() {
  store_.check_usable();
  if (in_part_) {
    throw Error(Errc::unsupported,
                fmt::format("an assignment to '{}' cannot be done: a write of it failed",
                            tensor_->layout.name),
                "Let it go, which undoes it, and begin another.");
  }
  finish();
}

void StoredAssignment::finish() {
  if (bytes_.are_all(tensor_->layout.size_bytes)) {
    const std::lock_guard lock(tensor_->mutex);
    tensor_->spoiled = 0;
  }
  done_ = true;
}

void StoredAssignment::done_apart(NewTensor& made) {
  done();
  store_.open_->staged_bytes -= staged_bytes_;
  made.staged_bytes = std::exchange(staged_bytes_, 0);
}

// ---- undo ---------------------------------------------------------------------------------------

void StoredAssignment::forget_touched() noexcept {
  for (std::uint64_t chunk = first_; chunk < end_; ++chunk) tensor_->touched.erase(chunk);
}

// What was written lies in slots that nothing names from here on. Where a value of the same attempt
// lay there, it is gone; the chunk has then the value from before the attempt, which nobody sees.
void StoredAssignment::undo() noexcept {
  if (!began_ && end_ == 0) return;
  StoredTensor& tensor = *tensor_;
  Attempt& attempt = *store_.open_;
  const std::lock_guard lock(tensor.mutex);
  for (std::uint64_t chunk = first_; chunk < end_; ++chunk) {
    if (!tensor.touched.contains(chunk)) continue;
    tensor.written.erase(chunk);
    if (tensor.whole()) tensor.label(tensor.working, chunk) = 0;
  }
  if (over_own_value_) tensor.spoiled = attempt.sequence;
  attempt.staged_bytes -= staged_bytes_;
  if (!began_) return;
  tensor.attempt = 0;
  const std::lock_guard list(store_.dirty_mutex_);
  std::erase(attempt.dirty, tensor_);
}

}  // namespace tensorshelf
