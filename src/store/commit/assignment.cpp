#include "store/commit/assignment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/reading/version_hold.hpp"

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

State& StoredAssignment::may_begin(State& state) {
  state.check_writable();
  refuse_inside(state, "a tensor was assigned");
  return state;
}

StoredAssignment::StoredAssignment(Stager& stager, const std::shared_ptr<StoredTensor>& tensor)
    : stager_(stager),
      state_(may_begin(stager.state())),
      tensor_(tensor),
      alone_(tensor->assigning, *state_.waiters, state_.patience),
      inside_(*state_.gate, state_.patience) {
  state_.check_writable();
  state_.check_not_abandoned();
  state_.rival.look();
  outer_ = innermost_;
  innermost_ = this;
}

// In no list of the attempt's: whatever ends the attempt passes it by.
StoredAssignment::StoredAssignment(Stager& stager, const NewTensor& made)
    : StoredAssignment(stager, made.named.tensor) {
  tensor_->attempt = state_.open->sequence;
}

StoredAssignment::~StoredAssignment() {
  unlink();
  if (state_.health.in_child()) {
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

const StoredAssignment* StoredAssignment::around(const State& state) {
  const StoredAssignment* inside = innermost_;
  while (inside != nullptr && &inside->state_ != &state) inside = inside->outer_;
  return inside;
}

bool is_inside(const State& state) {
  return state.patience.is_calling() || StoredAssignment::around(state) != nullptr;
}

void refuse_inside(const State& state, const char* what) {
  if (!is_inside(state) && !VersionHold::around(state)) return;
  const StoredAssignment* const inside = StoredAssignment::around(state);
  std::string where = VersionHold::around(state) ? "a snapshot" : "a call that waits";
  if (inside != nullptr) where = fmt::format("an assignment to '{}'", inside->tensor().name());
  throw Error(Errc::unsupported, fmt::format("{} from inside {} of the same thread", what, where),
              "Let it end first. In a signal handler, set a flag, and do it in the main loop.");
}

// ---- writes -------------------------------------------------------------------------------------

void StoredAssignment::write(std::span<const std::byte> bytes, std::uint64_t offset,
                             Handing handing) {
  state_.health.check_usable();
  if (in_part_) {
    throw Error(Errc::unsupported,
                fmt::format("an assignment to '{}' goes on after a write of it that failed",
                            tensor_->name()),
                "Let it go, which undoes it, and begin another.");
  }
  in_part_ = true;
  stager_.write(*tensor_, bytes, offset, *this, handing);
  in_part_ = false;
  if (planted(Bug::assignment_cut)) {
    state_.gate->leave();
    state_.gate->enter(Patience());
  }
}

// As long as this is inside of the gate nothing moves.
bool StoredAssignment::takes_lent() const {
  const std::lock_guard lock(tensor_->mutex);
  const std::uint64_t places =
      std::min<std::uint64_t>(tensor_->layout.stripes, tensor_->layout.chunk_count());
  for (std::uint64_t chunk = 0; chunk < places; ++chunk) {
    if (!state_.medium->is_mapped(tensor_->chunk_at(0, chunk))) return true;
  }
  return false;
}

void StoredAssignment::begin(std::span<const std::byte> bytes, std::uint64_t offset,
                             const FoundSlot& found) {
  if (tensor_->spoiled == state_.open->sequence) bytes_.add(offset, offset + bytes.size());
  carried_ |= tensor_->attempt == state_.open->sequence && tensor_->carried;
  began_ |= stager_.begin_write(tensor_, found);
  staged_bytes_ += bytes.size();  // undo() takes back as much
  state_.open->staged_bytes += bytes.size();
}

void StoredAssignment::done() {
  state_.health.check_usable();
  if (in_part_) {
    throw Error(
        Errc::unsupported,
        fmt::format("an assignment to '{}' cannot be done: a write of it failed", tensor_->name()),
        "Let it go, which undoes it, and begin another.");
  }
  finish();
}

void StoredAssignment::write_once(std::span<const std::byte> bytes, std::uint64_t offset) {
  stager_.write(*tensor_, bytes, offset, *this);
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
  state_.open->staged_bytes -= staged_bytes_;
  made.staged_bytes = std::exchange(staged_bytes_, 0);
}

// ---- undo ---------------------------------------------------------------------------------------

void StoredAssignment::forget_touched() noexcept {
  for (std::uint64_t chunk = first_; chunk < end_; ++chunk) tensor_->touched.erase(chunk);
}

// What was written lies in slots that nothing names from here on. Where a value of the same attempt
// lay there, it is gone; the chunk has then the value from before the attempt, which nobody sees.
void StoredAssignment::undo() noexcept {
  if (!began_ && !carried_ && end_ == 0) return;
  StoredTensor& tensor = *tensor_;
  Attempt& attempt = *state_.open;
  const std::lock_guard lock(tensor.mutex);
  for (std::uint64_t chunk = first_; chunk < end_; ++chunk) {
    if (!tensor.touched.contains(chunk)) continue;
    tensor.written.erase(chunk);
    if (tensor.whole()) tensor.label(tensor.working, chunk) = 0;
  }
  if (over_own_value_) tensor.spoiled = attempt.sequence;
  attempt.staged_bytes -= staged_bytes_;
  if (carried_ && !tensor.carried && !planted(Bug::carried_undone)) {
    tensor.carried = true;  // it is nobody's change again
    const std::lock_guard list(state_.dirty_mutex);
    ++attempt.carried;
  }
  if (!began_) return;
  tensor.attempt = 0;
  const std::lock_guard list(state_.dirty_mutex);
  std::erase(attempt.dirty, tensor_);
}

}  // namespace tensorshelf
