#include "store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/load_root.hpp"
#include "store/room.hpp"
#include "store/split.hpp"

namespace tensorshelf {

using format::kCopies;

Store::Store(std::shared_ptr<GuardedMedium> medium, const OpenOptions& options, std::string path)
    : medium_(std::move(medium)),
      path_(std::move(path)),
      verify_(options.verify),
      promises_(medium_->promises()),
      opened_(recover(*medium_, {options.mode != Mode::read, options.verify, options.salvage},
                      options.progress)),
      seeds_(opened_.shelf_id),
      writable_(options.mode != Mode::read && opened_.writes_allowed),
      keep_(split_of(opened_.versions.back()->root, options).keep),
      in_flight_limit_(split_of(opened_.versions.back()->root, options).in_flight),
      placement_(
          options.placement.value_or(promises_.mapped ? Placement::whole : Placement::by_chunk)),
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
  own_places();
  open_ = std::make_shared<Attempt>(retained_.back(), ++sequence_);
  reserve_pages_for(0);
}

Store::~Store() {
  try {
    close();
  } catch (const std::exception&) {
    // close() throws what a background commit threw; a caller who cares calls it himself. A shelf
    // that is destroyed instead stays at its last durable version, which is what it promises.
  }
}

// From here on what nothing names is given back.
void Store::own_places() {
  const bool forgets = planted(Bug::free_space_forgets_root);
  const auto named = planted(Bug::retained_places_free) ? std::vector{retained_.back()} : retained_;
  heap_ =
      std::make_shared<Heap>(*medium_, retained_.back()->root.capacity_bytes,
                             forgets ? Claims{} : claims_of(named), [this] { wait_until_quiet(); });
  for (const auto& version : named) {
    version->tree.each_page([&](const PageNodePtr& page) {
      if (!forgets) page->heap = heap_;
    });
    for (const auto& [name, there] : *version->names) {
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

// ---- structure ----------------------------------------------------------------------------------

const Names& Store::names_now() const { return open_ ? *open_->names : *retained_.back()->names; }

// Room for every version that can be there at once, each as large as the largest: so that no later
// commit is refused. `cells` are those of a tensor about to be placed.
void Store::reserve_pages_for(std::uint64_t cells) {
  const std::uint64_t more =
      cells == 0 ? 0 : cells / format::kPageCells + 2 + 1 + cells / format::kPageCells / 100 + 3;
  std::uint64_t pages = open_->tree.page_count();
  {
    std::lock_guard lock(structure_);
    for (const auto& version : retained_) pages = std::max(pages, version->tree.page_count());
  }
  heap_->reserve_pages(kCopies * opened_.slot_count * (pages + more));
}

// Slots before pages, so that a tensor that is too large sets nothing aside; the record last, after
// all that can throw, because a record without its tensor would be a lie on the medium.
Named Store::place(format::TensorLayout layout) {
  try {
    layout.slot_at = heap_->take_slots(layout.name, layout.size_bytes, opened_.slot_count);
  } catch (const Error& error) {
    if (error.code() != Errc::full || !open_->removed_committed) throw;
    throw Error(Errc::full, error.what(),
                "persist() first: what was erased is free after it. Or else: " + error.remedy(),
                error.os_error());
  }
  Named made;
  try {
    const CellRun cells = heap_->take_cells(layout.cell_count());
    layout.first_cell = cells.first;
    try {
      made.holding = std::make_shared<Holding>(layout);
    } catch (...) {
      heap_->release(cells);
      throw;
    }
  } catch (...) {
    for (const std::uint64_t at : layout.slot_at) heap_->release(Extent{at, layout.size_bytes});
    throw;
  }
  made.holding->adopt(heap_);
  made.tensor = std::make_shared<StoredTensor>(std::move(layout));
  made.tensor->holding = made.holding;
  reserve_pages_for(made.holding->cells().count);
  open_->tree.open_cells(made.holding->cells());
  made.tensor->records_leaf = open_->tree.add_tensor(made.tensor->layout);
  return made;
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
  const auto old = names_now().find(name);
  const bool there = old != names_now().end();
  if (!replace && there) {
    throw Error(Errc::name_taken, fmt::format("there is a tensor '{}' already", name),
                "Write to it, replace() it, or erase it first.");
  }
  if (replace && !there) {
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
  layout.placement = placement_;
  return add(std::move(layout));
}

// All that can throw comes before the manifest and the lists change together. The medium may grow
// in place(): names can be looked up meanwhile.
std::shared_ptr<StoredTensor> Store::add(format::TensorLayout layout) {
  look_for_rival();
  make_room(open_->dirty);
  Names made;
  const auto node = made.try_emplace(layout.name).first;
  Names* names = nullptr;
  {
    std::lock_guard lock(structure_);
    names = &open_->change_names();
  }
  const auto old = names->find(layout.name);
  if (old != names->end()) open_for_removal(*old->second.tensor);
  node->second = place(std::move(layout));
  const auto tensor = node->second.tensor;
  ++next_tensor_id_;
  open_->names_changed = true;
  tensor->attempt = open_->sequence;  // zeros, or what is written in their place, are its value
  open_->dirty.push_back(tensor);
  Named gone;
  std::unique_lock lock(structure_);
  open_->tensor_bytes += tensor->layout.size_bytes;
  if (old != names->end()) {
    gone = std::exchange(old->second, node->second);
  } else {
    names->insert(made.extract(node));
  }
  lock.unlock();  // others look up names while a reader of what is gone is waited for
  if (gone.tensor) remove(*gone.tensor);
  return tensor;
}

void Store::erase(std::string_view name) {
  check_writable();
  const ClosedGate closed(*gate_);
  check_writable();
  const auto there = names_now().find(name);
  if (there == names_now().end()) {
    throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to erase", name),
                "names() lists what there is.");
  }
  const Named gone = there->second;
  open_for_removal(*gone.tensor);
  {
    std::lock_guard lock(structure_);
    Names& names = open_->change_names();
    names.erase(names.find(name));
  }
  remove(*gone.tensor);
}

// After it, remove() cannot fail.
void Store::open_for_removal(const StoredTensor& tensor) {
  open_->tree.open_leaf(tensor.records_leaf);
  open_->tree.open_cells({tensor.layout.first_cell, tensor.layout.cell_count()});
}

// Out of the attempt. What a version names stays as it is until none does.
void Store::remove(StoredTensor& tensor) noexcept {
  open_->tree.remove_tensor(tensor.records_leaf, tensor.layout.tensor_id);
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    open_->tree.set_record(tensor.cell(i), {});
  }
  {
    std::lock_guard lock(structure_);
    open_->names_changed = true;
    open_->tensor_bytes -= tensor.layout.size_bytes;
    open_->removed_committed |= open_->base->names->contains(tensor.layout.name);
  }
  std::lock_guard lock(tensor.mutex);  // of whoever reads it
  tensor.erased = true;
  if (!planted(Bug::slots_reused_early)) return;
  if (const auto holding = tensor.holding.lock()) holding->give_back();
}

std::shared_ptr<StoredTensor> Store::find(std::string_view name) const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  const auto there = names_now().find(name);
  return there == names_now().end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Store::names() const {
  check_usable();
  std::lock_guard lock(structure_);
  check_usable();
  std::vector<std::string> names;
  names.reserve(names_now().size());
  for (const auto& [name, tensor] : names_now()) names.push_back(name);
  return names;
}

TensorInfo Store::info(const StoredTensor& tensor, Of which) const {
  check_usable();
  std::lock_guard lock(tensor.mutex);
  std::lock_guard structure(structure_);
  check_usable();
  TensorInfo info;
  info.name = tensor.layout.name;
  info.dtype = tensor.layout.dtype;
  info.shape = tensor.layout.shape;
  info.size_bytes = tensor.layout.size_bytes;
  if (const Version& version = version_of(which); has(version, tensor)) {
    for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
      const auto record = version.tree.record(tensor.cell(i));
      info.version = std::max(info.version, format::chunk_version(record));
    }
  }
  info.dirty = which.kind_ != Of::Kind::version && open_ && tensor.attempt == open_->sequence;
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

void Store::wait_until_quiet() {
  std::unique_lock lock(structure_);
  published_->wait(lock, [this] { return in_flight_.empty(); });
}

void Store::close() {
  if (closed_) return;
  if (fork_guard_.in_child()) {
    // The committing thread and whoever waits at the gate stayed in the parent: joining the one or
    // destroying the other would never end.
    static_cast<void>(committer_.release());
    static_cast<void>(gate_.release());
    static_cast<void>(published_.release());
    closed_ = true;
    return;
  }
  std::unique_ptr<Committer> committer;  // whoever closes takes it, behind the gate
  {
    const ClosedGate closed(*gate_);  // waits for writers, and then for commits in flight
    wait_until_quiet();
    closed_ = true;
    uses_.close();  // and for those who read
    committer.swap(committer_);
    std::vector<std::shared_ptr<Version>> gone;
    std::shared_ptr<Attempt> open;
    std::lock_guard lock(structure_);
    gone.swap(retained_);
    open.swap(open_);
    heap_.reset();
    medium_.reset();
  }
  committer.reset();
  check_background();
}

}  // namespace tensorshelf
