#include "store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/capacity.hpp"
#include "store/load_root.hpp"
#include "store/split.hpp"

namespace tensorshelf {

using format::kCopies;

namespace {

Purpose purpose_of(const OpenOptions& options) {
  if (options.mode != Mode::read) return Purpose::write;
  return options.salvage ? Purpose::salvage : Purpose::read;
}

}  // namespace

Store::Store(std::shared_ptr<GuardedMedium> medium, const OpenOptions& options, std::string path)
    : medium_(std::move(medium)),
      path_(std::move(path)),
      verify_(options.verify),
      promises_(medium_->promises()),
      opened_(recover(*medium_, purpose_of(options), options.verify, options.progress)),
      seeds_(opened_.shelf_id),
      writable_(options.mode != Mode::read && opened_.writes_allowed),
      keep_(split_of(opened_.versions.back()->root, options).keep),
      in_flight_limit_(split_of(opened_.versions.back()->root, options).in_flight),
      placement_(
          options.placement.value_or(promises_.mapped ? Placement::whole : Placement::by_chunk)),
      patience_(options.while_waiting),
      published_(std::make_unique<std::condition_variable_any>()),
      retained_(std::move(opened_.versions)),
      version_(opened_.version),
      homes_(opened_.homes) {
  if (!writable_) return;
  retained_.reserve(format::kMaxSlots + 1);
  in_flight_.reserve(format::kMaxSlots);
  if (planted(Bug::floor_by_keep_asked)) {
    while (retained_.size() > 1 + keep_) retained_.erase(retained_.begin());
  }
  const format::Root& root = retained_.back()->root;
  next_tensor_id_ = root.next_tensor_id;
  mark_ = opened_.mark;
  if (opened_.prepared) take_prepared(*std::exchange(opened_.prepared, std::nullopt));
  own_places();
  open_ = attempt_over(retained_.back(), 0);
  heap_->reserve_pages(pages_for({}));
}

Store::~Store() {
  try {
    close();
  } catch (...) {
    // close() throws what a background commit threw; a caller who cares calls it himself. A shelf
    // that is destroyed instead stays at its last durable version, which is what it promises.
  }
}

// It stays as it is, and the shelf too, until it is decided.
void Store::take_prepared(const FoundPrepared& found) {
  prepared_ = {.info = found.info, .version = found.version, .damage = found.damage};
  found_prepared_ = true;
  if (!found.version) return;
  in_flight_.push_back(found.version);
  next_tensor_id_ = std::max(next_tensor_id_, found.version->root.next_tensor_id);
}

// From here on what nothing names is given back.
void Store::own_places() {
  const bool forgets = planted(Bug::free_space_forgets_root);
  auto named = planted(Bug::retained_places_free) ? std::vector{retained_.back()} : retained_;
  std::uint64_t capacity_bytes = retained_.back()->root.capacity_bytes;
  for (const auto& version : in_flight_) {
    capacity_bytes = std::max(capacity_bytes, version->root.capacity_bytes);
    if (!planted(Bug::prepared_slot_free)) named.push_back(version);
  }
  Claimed claimed(capacity_bytes);
  ClaimList list;
  for (const auto& version : named) {
    if (!forgets) claimed.add(list.add(version));
  }
  heap_ = std::make_shared<Heap>(*medium_, claimed, [this] { wait_until_quiet(patience_); });
  for (const auto& version : named) {
    version->tree.each_page([&](const PageNodePtr& page) {
      if (!forgets) page->heap = heap_;
    });
    for (const Named& there : std::exchange(version->loaded, {})) {
      if (!forgets) there.holding->adopt(heap_);
      StoredTensor& tensor = *there.tensor;
      for (std::uint64_t chunk = 0; tensor.whole() && chunk < tensor.layout.chunk_count();
           ++chunk) {
        const auto record = version->tree.record(tensor.cell(chunk));
        tensor.label(format::chunk_slot(record), chunk) = format::chunk_version(record);
      }
    }
  }
}

void Store::check_usable() const {
  if (fork_guard_.in_child()) {
    throw Error(Errc::forked, fmt::format("{} was opened by the parent of this process", path_),
                "Open it in the child itself: with mode \"r\" while the parent has it open.");
  }
  if (closed_) {
    throw Error(Errc::closed, fmt::format("{} is closed", path_), "Open it again.");
  }
}

// Checked before as well: in a forked child nobody may ever unlock it.
std::unique_lock<FairMutex> Store::lock_usable() const {
  check_usable();
  std::unique_lock lock(structure_);
  check_usable();
  return lock;
}

void Store::begin_use() {
  check_usable();  // in a child nobody would ever leave
  if (uses_.enter()) return;
  check_usable();  // says that it is closed
  TENSORSHELF_ASSERT(false);
}

void Store::look_for_rival() {
  if (looked_) return;
  check_no_rival(*medium_, opened_, seeds_);
  looked_ = true;
}

void Store::check_writable() {
  check_may_write();
  if (found_prepared_) throw_unresolved("nothing can be changed");
}

void Store::check_may_write() {
  check_usable();
  check_background();
  if (!writable_) {
    throw Error(Errc::read_only,
                opened_.writes_allowed
                    ? fmt::format("{} is open with mode \"r\"", path_)
                    : fmt::format("{} has features that this release can only read", path_),
                opened_.writes_allowed ? "Open it with mode \"r+\" or \"a\"."
                                       : "Use the tensorshelf release that wrote it.");
  }
  if (failed_) throw_failed();
}

void Store::throw_failed() {
  std::lock_guard lock(failure_mutex_);
  throw Error(Errc::failed,
              fmt::format("{} can commit no more after a failure: {}", path_, failure_),
              fmt::format("Close it and open it again: version {} is safe.", version_.load()));
}

// Marked as failed before anything that could itself fail.
void Store::fail(const char* why) noexcept {
  if (planted(Bug::failure_forgotten)) return;
  failed_ = true;
  std::lock_guard lock(failure_mutex_);
  try {
    if (failure_.empty()) failure_ = why;
  } catch (const std::bad_alloc&) {  // then without the reason
  }
}

// ---- its end ------------------------------------------------------------------------------------

void Store::check_background() {
  if (!background_failed_) return;
  std::unique_lock lock(failure_mutex_);
  background_failed_ = false;
  if (auto error = std::exchange(background_error_, nullptr)) {
    lock.unlock();
    std::rethrow_exception(error);
  }
}

void Store::wait_until_quiet(const Patience& patience) {
  std::unique_lock lock(structure_);
  patience.wait(*published_, lock, [this] { return in_flight_.empty() || undecided(); });
}

void Store::close() {
  if (closed_) return;
  if (fork_guard_.in_child()) {
    // The committing thread and whoever waits at the gate stayed in the parent: joining the one or
    // destroying the other would never end.
    static_cast<void>(committer_.release());
    static_cast<void>(gate_.release());
    static_cast<void>(published_.release());
    static_cast<void>(room_.release());
    closed_ = true;
    return;
  }
  refuse_inside("close() was called");
  std::unique_ptr<Committer> committer;  // whoever closes takes it, behind the gate
  {
    const Patience deaf;                    // half a close would be none
    const ClosedGate closed(*gate_, deaf);  // waits for writers, and then for commits in flight
    wait_until_quiet(deaf);
    closed_ = true;
    uses_.close();  // and for those who read
    committer.swap(committer_);
    std::vector<std::shared_ptr<Version>> gone;
    std::vector<std::shared_ptr<Version>> left;  // prepared: it stays on the medium
    std::shared_ptr<Attempt> open;
    std::lock_guard lock(structure_);
    left.swap(in_flight_);
    prepared_.reset();
    gone.swap(retained_);
    open.swap(open_);
    heap_.reset();
    medium_.reset();
  }
  committer.reset();
  check_background();
}

}  // namespace tensorshelf
