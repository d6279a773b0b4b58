// Versions beside the newest, and attempts that come to nothing: reading, going back, discarding.
#include <fmt/format.h>

#include <utility>

#include "base/planted.hpp"
#include "store/assignment.hpp"
#include "store/store.hpp"
#include "store/turn.hpp"

namespace tensorshelf {
namespace {

VersionInfo info_of(const Version& version) {
  VersionInfo info;
  info.version = version.number();
  info.step = format::stated_step(version.root);
  info.time_ns = version.root.time_ns;
  info.data_bytes = version.root.data_bytes;
  return info;
}

}  // namespace

std::vector<VersionInfo> Store::versions() const {
  const auto lock = lock_usable();
  std::vector<VersionInfo> infos;
  for (const auto& version : retained_) infos.push_back(info_of(*version));
  return infos;
}

VersionInfo Store::version_info(std::uint64_t version) const {
  const auto lock = lock_usable();
  return info_of(version_of(Of::version(version)));
}

std::shared_ptr<StoredTensor> Store::find(std::string_view name, std::uint64_t version) const {
  const auto lock = lock_usable();
  const Names& names = *version_of(Of::version(version)).names;
  const auto there = names.find(name);
  return there == names.end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Store::names(std::uint64_t version) const {
  const auto lock = lock_usable();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : *version_of(Of::version(version)).names)
    names.emplace_back(name);
  return names;
}

// ---- discard, transactions ----------------------------------------------------------------------

bool Store::has_uncommitted() const {
  check_usable();
  refuse_inside("what is not committed was asked for");
  if (!writable_) return false;
  const ClosedGate closed(*gate_, Patience());  // for who is about to close the shelf
  check_usable();
  return !open_->dirty.empty() || open_->names_changed;
}

// The gate is closed.
void Store::check_nothing_uncommitted(const char* what) const {
  check_not_abandoned();
  if (open_->dirty.empty() && !open_->names_changed) return;
  std::lock_guard lock(structure_);
  throw Error(Errc::uncommitted,
              fmt::format("{} of {}, and there are changes that are not committed", what, path_),
              undecided()
                  ? "discard() them; or resolve() what is prepared, and persist() them then."
                  : "persist() or discard() them first.");
}

// Handles follow their tensors: what is named is there, and what was and is not, is not.
void Store::settle_names(const Names& before, const Names& now) {
  for (const auto& [name, named] : before) {
    const auto there = now.find(name);
    if (there != now.end() && there->second.tensor == named.tensor) continue;
    std::lock_guard lock(named.tensor->mutex);
    named.tensor->erased = true;
  }
  for (const auto& [name, named] : now) {
    std::lock_guard lock(named.tensor->mutex);
    named.tensor->erased = false;
  }
}

// The gate is closed. What it staged lies in slots that nothing else names.
void Store::drop_open_attempt(std::shared_ptr<Attempt> next) noexcept {
  for (const auto& tensor : open_->dirty) {
    std::lock_guard lock(tensor->mutex);
    for (std::uint64_t chunk = 0; chunk < tensor->layout.chunk_count(); ++chunk) {
      if (!tensor->written.contains(chunk)) continue;
      if (tensor->whole() && !planted(Bug::discarded_labels_kept)) {
        tensor->label(tensor->working, chunk) = 0;  // the number is another attempt's from now on
      }
    }
  }
  const bool names_changed = open_->names_changed;
  {
    std::lock_guard lock(structure_);
    open_.swap(next);
    if (!planted(Bug::look_outlives_discard)) looked_ = false;
  }
  if (names_changed) settle_names(*next->names, *open_->names);
}

void Store::discard() {
  check_writable();
  refuse_inside("discard() was called");
  const Turn turn(*this);
  const ClosedGate closed(*gate_, patience_);
  check_writable();
  drop_open_attempt(attempt_over(open_->base, open_->sequence));
}

void Store::begin_transaction() {
  check_writable();
  refuse_inside("a transaction was begun");
  Turn turn(*this);
  const ClosedGate closed(*gate_, patience_);
  check_writable();
  check_nothing_uncommitted("a transaction");
  spare_ = attempt_over(open_->base, open_->sequence);
  turn.keep();
}

Commit Store::commit_transaction(std::optional<std::uint64_t> step, bool& ended) {
  check_writable();
  refuse_inside("a transaction was committed");
  auto flight = freeze_in_turn(step);
  ended = true;
  spare_.reset();
  Turn::give_back(*this);
  return seal(std::move(flight));
}

// Also after a failure, which is for the next call to tell. One that goes within an assignment of
// its own thread, or what a wait calls, which nobody can refuse, cannot be dropped: then nothing
// more is committed.
void Store::end_transaction() {
  const Turn::GiveBack at_exit(*this);
  check_usable();
  if (is_inside()) return fail("a transaction was let go within an assignment, or a wait");
  const ClosedGate closed(*gate_, Patience());  // it must end, whatever is heard
  check_usable();
  drop_open_attempt(std::exchange(spare_, nullptr));
}

// ---- rollback -----------------------------------------------------------------------------------

// The pages of the old version under a new root: nothing is copied. What tensors it had that are
// gone since, it has again, with their extents, which it never gave up.
Commit Store::rollback(std::uint64_t number) {
  check_writable();
  refuse_inside("rollback() was called");
  Turn turn(*this);
  std::optional<Flight> flight;
  {
    const ClosedGate closed(*gate_, patience_);
    check_writable();
    {
      std::lock_guard lock(structure_);
      if (undecided()) throw_unresolved("nothing can be rolled back");
    }
    check_nothing_uncommitted("a rollback");
    const Version* old = nullptr;
    {
      std::lock_guard lock(structure_);
      if (!in_flight_.empty()) {
        throw Error(Errc::uncommitted,
                    fmt::format("a rollback of {}, and a version is on its way", path_),
                    "Wait for what persist(wait=False) returned first.");
      }
      old = &version_of(Of::version(number));  // it stays: nothing is on its way
    }
    check_version_left();
    look_for_rival_before_commit();
    auto version = std::make_shared<Version>();
    version->tree = old->tree.successor(open_->sequence);
    version->names = old->names;
    version->tensor_bytes = old->tensor_bytes;
    version->root = next_root({});
    version->root.step = old->root.step;
    version->root.tensor_count = old->names->size();
    version->root.data_bytes = 0;
    if (planted(Bug::rollback_floor_old)) version->root.floor = old->root.floor;
    if (planted(Bug::rollback_id_old)) {
      next_tensor_id_ = version->root.next_tensor_id = old->root.next_tensor_id;
    }
    for (const auto& [name, named] : *old->names) {
      const auto there = open_->names->find(name);
      const bool revived = there == open_->names->end() || there->second.tensor != named.tensor;
      if (revived && planted(Bug::revived_given_back)) named.holding->give_back();
    }
    const auto before = open_->names;
    auto next = attempt_over(version, open_->sequence);
    flight = launch(std::move(version), std::move(next));
    settle_names(*before, *open_->names);
  }
  return seal(std::move(*flight));
}

}  // namespace tensorshelf
