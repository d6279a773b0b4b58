#include "store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "base/size_text.hpp"
#include "store/chunk_io.hpp"
#include "store/room.hpp"

namespace tensorshelf {

using format::kCopies;
using format::kSlots;

Store::Store(std::shared_ptr<GuardedMedium> medium, const OpenOptions& options, std::string path)
    : medium_(std::move(medium)),
      path_(std::move(path)),
      verify_(options.verify),
      promises_(medium_->promises()),
      opened_(recover(*medium_, {options.mode != Mode::read, options.verify, options.salvage},
                      options.progress)),
      seeds_(opened_.shelf_id),
      writable_(options.mode != Mode::read && opened_.writes_allowed),
      root_(opened_.root),
      version_(opened_.version),
      words_(opened_.words),
      manifest_(std::move(opened_.manifest)),
      next_tensor_id_(root_.next_tensor_id),
      committed_pages_(manifest_.page_count()) {
  for (auto& tensor : opened_.tensors) {
    tensor_bytes_ += tensor->layout.size_bytes;
    tensors_.emplace(tensor->layout.name, tensor);
  }
  opened_.tensors.clear();
  if (writable_) {
    if (planted(Bug::free_space_forgets_root)) opened_.used.clear();
    heap_.emplace(*medium_, root_.capacity_bytes, std::exchange(opened_.used, {}));
    reserve_pages_for(0);
  }
  note_space();
}

Store::~Store() {
  try {
    close();
  } catch (const std::exception&) {
    // close() throws what a background commit threw; a caller who cares calls it himself. A shelf
    // that is destroyed instead stays at its last durable version, which is what it promises.
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
  if (failed_) {
    std::lock_guard lock(failure_mutex_);
    throw Error(Errc::failed,
                fmt::format("{} can commit no more after a failure: {}", path_, failure_),
                fmt::format("Close it and open it again: version {} is safe.", version_.load()));
  }
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

// ---- structure ----------------------------------------------------------------------------------

// Room for any later commit: one more whole manifest beside the committed one, in every state of
// the pool that commits can bring about. `cells` are those of a tensor about to be placed.
void Store::reserve_pages_for(std::uint64_t cells) {
  const std::uint64_t more =
      cells == 0 ? 0 : cells / format::kPageCells + 2 + 1 + cells / format::kPageCells / 100 + 2;
  const std::uint64_t pages = manifest_.page_count() + more;
  heap_->reserve_pages(kCopies * (2 * pages - committed_pages_));
}

// Slots before pages, so that a tensor that is too large sets nothing aside; the record last, after
// all that can throw, because a record without its tensor would be a lie on the medium.
std::shared_ptr<StoredTensor> Store::place(format::TensorLayout layout) {
  try {
    layout.slot_at = heap_->take_slots(layout.name, layout.size_bytes);
  } catch (const Error& error) {
    if (error.code() != Errc::full || dropped_.empty()) throw;
    throw Error(Errc::full, error.what(),
                "persist() first: what was erased is free after it. Or else: " + error.remedy(),
                error.os_error());
  }
  const Extent extents[] = {layout.slot(0), layout.slot(1)};
  const std::uint64_t cells = layout.cell_count();
  std::optional<std::uint64_t> first_cell;
  try {
    reserve_pages_for(cells);
    first_cell = manifest_.take_cells(cells);
    layout.first_cell = *first_cell;
    auto tensor = std::make_shared<StoredTensor>(std::move(layout));
    tensor->records_leaf = manifest_.add_record(tensor->layout);
    return tensor;
  } catch (...) {
    if (first_cell) manifest_.release_cells(*first_cell, cells);
    for (const Extent& extent : extents) heap_->release(extent);
    throw;
  }
}

std::shared_ptr<StoredTensor> Store::create(std::string_view name, DType dtype,
                                            std::span<const std::int64_t> shape, bool replace) {
  check_writable();
  if (const auto problem = format::name_problem(name)) {
    throw Error(Errc::bad_name,
                fmt::format("the tensor name '{}' {}", name.substr(0, 80), *problem),
                "Use 1 to 1024 bytes of UTF-8 without NUL.");
  }
  const auto size = tensor_bytes(dtype, shape);
  if (!size) {
    throw Error(
        Errc::layout, fmt::format("'{}' cannot have that dtype and shape", name),
        fmt::format("Dimensions are not negative, at most {} of them, at most 2^62 bytes in "
                    "all.",
                    kMaxDims));
  }
  std::optional<ClosedGate> closed;  // the medium may grow, which excludes every write
  if (!planted(Bug::growth_beside_writers)) closed.emplace(*gate_);
  check_writable();
  const auto old = tensors_.find(name);
  if (!replace && old != tensors_.end()) {
    throw Error(Errc::name_taken, fmt::format("there is a tensor '{}' already", name),
                "Write to it, replace() it, or erase it first.");
  }
  if (replace && old == tensors_.end()) {
    throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to replace", name), "create() it.");
  }
  if (next_tensor_id_ >= format::kMaxCounter) {
    throw Error(Errc::full,
                fmt::format("'{}' would be tensor {} of the shelf, more than the format "
                            "can count",
                            name, next_tensor_id_),
                "Copy the tensors into a new shelf.");
  }
  format::TensorLayout layout;
  layout.tensor_id = next_tensor_id_;
  layout.name = name;
  layout.dtype = dtype;
  layout.shape.assign(shape.begin(), shape.end());
  layout.size_bytes = *size;
  return add(std::move(layout));
}

// All that can throw comes before the manifest and the lists change together. The medium may grow
// in place(): names can be looked up meanwhile.
std::shared_ptr<StoredTensor> Store::add(format::TensorLayout layout) {
  collect_graveyard();
  make_room_in_lists();
  look_for_rival();
  decltype(tensors_) made;
  made.try_emplace(layout.name);
  const auto tensor = place(std::move(layout));
  ++next_tensor_id_;
  tensor->missing.fill();
  tensor->dirty = true;  // zeros, or what is written in their place, belong to the next version
  dirty_.push_back(tensor);
  made.begin()->second = tensor;
  std::shared_ptr<StoredTensor> gone;
  std::unique_lock names(structure_);
  tensor_bytes_ += tensor->layout.size_bytes;
  if (const auto old = tensors_.find(tensor->layout.name); old != tensors_.end()) {
    tensor_bytes_ -= old->second->layout.size_bytes;
    gone = std::exchange(old->second, tensor);
    drop(gone);
  } else {
    tensors_.insert(made.extract(made.begin()));
  }
  names.unlock();  // others look up names while a reader of what is gone is waited for
  if (gone) bury(gone);
  note_space();  // after what was replaced has given its slots back
  return tensor;
}

void Store::make_room_in_lists() {
  std::lock_guard names(structure_);  // of dropped_, which verify() copies
  std::lock_guard lock(dirty_mutex_);
  make_room(dirty_);
  make_room(dropped_);
  make_room(graveyard_, dropped_.size() + 1);  // for all that may yet come to lie there
}

void Store::erase(std::string_view name) {
  check_writable();
  const ClosedGate closed(*gate_);
  check_writable();
  const auto there = tensors_.find(name);
  if (there == tensors_.end()) {
    throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to erase", name),
                "names() lists what there is.");
  }
  make_room_in_lists();
  const auto gone = there->second;
  {
    std::lock_guard lock(structure_);
    tensor_bytes_ -= gone->layout.size_bytes;
    drop(gone);
    tensors_.erase(there);
  }
  bury(gone);
  note_space();
}

// Out of the next version. What the committed root still names is freed by its flip, not before.
void Store::drop(const std::shared_ptr<StoredTensor>& tensor) noexcept {
  manifest_.remove_record(tensor->records_leaf, tensor->layout.tensor_id);
  manifest_.release_cells(tensor->layout.first_cell, tensor->layout.cell_count());
  // (Whether it is committed changes under the closed gate only, and that is ours.)
  if (tensor->committed && !planted(Bug::slots_reused_early)) dropped_.push_back(tensor);
}

// The rest, which waits for whoever reads it.
void Store::bury(const std::shared_ptr<StoredTensor>& tensor) noexcept {
  std::lock_guard lock(tensor->mutex);
  tensor->erased = true;
  if (!tensor->committed || planted(Bug::slots_reused_early)) release(tensor);
}

// Nothing names the tensor any more. Its mutex is held.
void Store::release(const std::shared_ptr<StoredTensor>& tensor) noexcept {
  tensor->committed.reset();  // handles that are left must not read what comes to lie there
  for (ChunkSet& chunks : tensor->verified) chunks.clear();
  if (!release_slots(*tensor)) graveyard_.push_back(tensor);  // there is room: make_room_in_lists()
}

// False, with nothing done, while a lease pins one of them: I3, a pinned reader's bytes are never
// written.
bool Store::release_slots(const StoredTensor& tensor) noexcept {
  const bool pinned = std::any_of(tensor.pins.begin(), tensor.pins.end(),
                                  [](const auto& pins) { return pins.load() > 0; });
  if (pinned && !planted(Bug::leased_slot_reused)) return false;
  for (unsigned slot = 0; slot < kSlots; ++slot) heap_->release(tensor.layout.slot(slot));
  return true;
}

// For those who ask, while the heap itself belongs to whoever closed the gate.
void Store::note_space() {
  std::lock_guard lock(structure_);
  capacity_bytes_ = heap_ ? heap_->capacity_bytes() : root_.capacity_bytes;
  free_bytes_ = heap_ ? heap_->free_bytes() : 0;
}

void Store::collect_graveyard() noexcept {
  std::erase_if(graveyard_, [this](const auto& tensor) {
    std::lock_guard lock(tensor->mutex);
    return release_slots(*tensor);
  });
}

std::shared_ptr<StoredTensor> Store::find(std::string_view name) const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  const auto there = tensors_.find(name);
  return there == tensors_.end() ? nullptr : there->second;
}

std::vector<std::string> Store::names() const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

TensorInfo Store::info(const StoredTensor& tensor) const {
  check_usable();
  std::lock_guard lock(tensor.mutex);
  TensorInfo info;
  info.name = tensor.layout.name;
  info.dtype = tensor.layout.dtype;
  info.shape = tensor.layout.shape;
  info.size_bytes = tensor.layout.size_bytes;
  info.version = tensor.version;
  info.dirty = tensor.dirty;
  return info;
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

void Store::close() {
  if (closed_) return;
  if (fork_guard_.in_child()) {
    // The committing thread and whoever waits at the gate stayed in the parent: joining the one or
    // destroying the other would never end.
    static_cast<void>(new std::jthread(std::move(committer_)));
    static_cast<void>(gate_.release());
    closed_ = true;
    return;
  }
  {
    const ClosedGate closed(*gate_);  // waits for writers and a commit in flight
    closed_ = true;
    uses_.close();  // and for those who read
    std::lock_guard lock(structure_);
    heap_.reset();
    medium_.reset();
  }
  check_background();
}

}  // namespace tensorshelf
