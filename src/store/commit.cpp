// The commit: the only code that writes a root. The steps of docs/design.md, in their order:
//
//   1  stage     what nobody assigned since the slot was current is copied forward
//   2  describe  changed manifest pages, their directories, both root copies under the old word
//   3  barrier   I1
//   4  flip      the version word of both copies, after a look for a rival (I10)
//   5  barrier   I2
//   6  publish   in memory: the working slots are the committed ones now
//
// The gate is closed throughout: no writer is inside, and every writer that was has drained its
// own stores (I7). After a failure in 2 to 6 nobody knows what the medium holds, so the store
// commits no more until recovery has looked (I8).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/store.hpp"

namespace tensorshelf {
namespace {

class OpenGateAtExit {
 public:
  explicit OpenGateAtExit(CommitGate& gate) : gate_(gate) {}
  ~OpenGateAtExit() { gate_.open(); }
  OpenGateAtExit(const OpenGateAtExit&) = delete;
  OpenGateAtExit& operator=(const OpenGateAtExit&) = delete;

 private:
  CommitGate& gate_;
};

}  // namespace

using format::kCopies;
using format::PageRef;
using format::Root;

Commit Store::persist(std::optional<std::uint64_t> step) {
  check_writable();
  const ClosedGate closed(*gate_);
  check_writable();
  return commit(step);
}

std::shared_future<Commit> Store::persist_async(std::optional<std::uint64_t> step) {
  check_writable();
  gate_->close();  // here, and opened by the committing thread
  bool handed_over = false;
  try {
    check_writable();
    std::packaged_task<Commit()> task([this, step] {
      OpenGateAtExit open_gate(*gate_);
      try {
        return commit(step);
      } catch (...) {
        std::lock_guard lock(failure_mutex_);
        background_error_ = std::current_exception();
        background_failed_ = true;
        throw;
      }
    });
    auto future = task.get_future().share();
    std::lock_guard lock(committer_mutex_);
    if (committer_.joinable()) committer_.join();  // it opened the gate: nothing is left of it
    std::jthread thread(std::move(task));
    handed_over = true;
    committer_ = std::move(thread);
    return future;
  } catch (...) {
    if (!handed_over) gate_->open();
    throw;
  }
}

Commit Store::commit(std::optional<std::uint64_t> step) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t metadata_before = counters_.metadata;
  check_version_left();
  try {
    check_no_rival(*medium_, opened_, seeds_);  // I10: before we write where his version may lie
  } catch (const Error& error) {
    if (error.code() == Errc::busy) fail(error.what());
    throw;
  }
  Tensors dirty = take_dirty();
  try {
    stage_rest(dirty);
  } catch (...) {  // nothing is lost: the tensors are still dirty
    std::lock_guard lock(dirty_mutex_);
    dirty_.swap(dirty);  // no writer was let in, so it was empty; and it needs no memory
    throw;
  }
  if (planted(Bug::gate_opened_early)) gate_->open();
  Root root;
  try {
    root = describe(dirty, step);
    seal(root);
    publish(dirty, root);
  } catch (const std::exception& error) {
    fail(error.what());  // also where only memory ran out: the medium may be ahead of us now
    throw;
  } catch (...) {
    fail("an exception of an unknown kind");
    throw;
  }

  const auto elapsed = std::chrono::steady_clock::now() - begin;
  ++counters_.commits;
  counters_.nanoseconds += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  Commit commit;
  commit.version = format::word_version(root.word);
  if (root.step != format::kNoStep) commit.step = root.step;
  commit.data_bytes = staged_now_.exchange(0);
  commit.metadata_bytes = counters_.metadata - metadata_before;
  commit.seconds = std::chrono::duration<double>(elapsed).count();
  return commit;
}

Store::Tensors Store::take_dirty() {
  std::lock_guard lock(dirty_mutex_);
  Tensors dirty = std::exchange(dirty_, {});
  std::erase_if(dirty, [](const auto& tensor) { return tensor->erased; });
  return dirty;
}

// Throws Errc::corrupt where a chunk to be copied forward is damaged. Assigning the damaged tensor
// whole lets the next persist() go on.
void Store::stage_rest(const Tensors& dirty) {
  for (const auto& tensor : dirty) {
    std::lock_guard lock(tensor->mutex);
    complete(*tensor);
  }
}

// Before anything is done: the shelf stays as it is, and can be read.
void Store::check_version_left() const {
  const std::uint64_t version = format::word_version(root_.word) + 1;
  if (version < format::kMaxVersion) return;
  throw Error(
      Errc::full,
      fmt::format("version {} of {} is the last that the format can count", version - 1, path_),
      "Copy the tensors into a new shelf.");
}

Root Store::describe(const Tensors& dirty, std::optional<std::uint64_t> step) {
  const std::uint64_t version = format::word_version(root_.word) + 1;
  for (const auto& tensor : dirty) {
    const auto& layout = tensor->layout;
    const unsigned slot = tensor->working();
    manifest_.set_cell(layout.first_cell, format::make_state_cell(slot, version));
    for (std::uint64_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      manifest_.set_cell(layout.first_cell + 1 + chunk, tensor->sums[slot][chunk]);
    }
  }
  write_changed_pages();

  Root root{};
  root.incarnation = opened_.incarnation;
  root.sequence = ++sequence_;
  root.word = format::make_word(version, root.incarnation);  // I5: no other attempt's
  root.step = step.value_or(root_.step);                     // the last one that was stated
  root.capacity_bytes =
      planted(Bug::capacity_not_recorded) ? root_.capacity_bytes : heap_->capacity_bytes();
  root.next_tensor_id = next_tensor_id_;
  root.tensor_count = tensors_.size();
  manifest_.fill_root(root);
  write_root_copies(root);
  return root;
}

void Store::release_replaced_pages() {
  for (const PageRef& page : std::exchange(replaced_pages_, {})) {
    for (std::uint64_t at : page.at) heap_->release_page(at);
  }
}

// To fresh places: what the committed root names stays as it is (I3). Each copy goes out in rising
// order, so that a block medium joins them.
void Store::write_nodes(const Nodes& nodes) {
  for (Manifest::Node* node : nodes) {
    if (planted(Bug::page_in_place) && node->ref != PageRef{}) continue;
    if (node->ref != PageRef{}) replaced_pages_.push_back(node->ref);
    if (planted(Bug::page_reused_early)) release_replaced_pages();
    for (unsigned copy = 0; copy < kCopies; ++copy) node->ref.at[copy] = heap_->take_page(copy);
  }
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    Nodes ordered = nodes;
    std::sort(ordered.begin(), ordered.end(),
              [copy](const auto* a, const auto* b) { return a->ref.at[copy] < b->ref.at[copy]; });
    for (Manifest::Node* node : ordered) {
      const Ticket ticket =
          medium_->write(node->ref.at[copy], node->image.bytes, seeds_.page(node->ref.at[0]));
      note_ticket(ticket);
      node->ref.checksum = ticket.checksum;
      counters_.metadata += kPageBytes;
    }
  }
}

void Store::write_changed_pages() {
  const auto numbers = manifest_.take_changed_leaves();
  Nodes leaves;
  for (std::uint32_t leaf : numbers) leaves.push_back(&manifest_.leaf(leaf));
  write_nodes(leaves);
  for (std::uint32_t leaf : numbers) {
    if (!planted(Bug::directory_not_linked)) manifest_.link_leaf(leaf);
  }
  write_nodes(manifest_.take_changed_directories());
}

void Store::write_root_copies(Root root) {
  const auto home = static_cast<unsigned>(format::word_version(root.word) % format::kSlots);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    format::seal_root(root, seeds_, copy);
    format::Page page = format::as_page(root);
    if (!planted(Bug::word_with_body)) {
      std::memcpy(page.bytes.data(), &words_[home][copy], sizeof(std::uint64_t));
    }
    note_ticket(medium_->write(format::root_at(home, copy), page.bytes, 0));
    counters_.metadata += kPageBytes;
  }
}

void Store::seal(const Root& root) {
  const auto home = static_cast<unsigned>(format::word_version(root.word) % format::kSlots);
  if (!planted(Bug::wait_left_out)) medium_->wait({last_ticket_.load(), 0});
  // I1: all that the root names is durable before any word names it
  if (!planted(Bug::flip_without_barrier)) medium_->barrier();
  check_no_rival(*medium_, opened_, seeds_);  // I10: and as late as can be
  for (unsigned copy = 0; copy < (planted(Bug::one_copy_flipped) ? 1 : kCopies); ++copy) {
    medium_->store_word(format::root_at(home, copy), root.word);  // COMMIT POINT
  }
  if (!planted(Bug::ack_without_barrier)) medium_->barrier();  // I2: acknowledged implies durable
  words_[home].fill(root.word);
}

// Tensor by tensor, and then the root: no lock that others look things up under is held while a
// tensor that is being read is waited for.
void Store::publish(const Tensors& dirty, const Root& root) {
  const std::uint64_t version = format::word_version(root.word);
  for (const auto& tensor : dirty) {
    std::lock_guard lock(tensor->mutex);
    const bool first = !tensor->committed;
    tensor->committed = tensor->working();
    tensor->version = version;
    tensor->dirty = false;
    std::swap(tensor->stale, tensor->written);
    if (planted(Bug::stale_chunks_forgotten)) tensor->stale.clear();
    tensor->written.clear();
    if (first) tensor->stale.fill();  // the other slot holds nothing of ours
  }
  looked_ = false;
  committed_pages_ = manifest_.page_count();
  Tensors dropped;
  {
    std::lock_guard lock(structure_);
    root_ = root;
    version_ = version;
    dropped.swap(dropped_);
  }
  for (const auto& tensor : dropped) {
    std::lock_guard lock(tensor->mutex);
    release(tensor);
  }
  collect_graveyard();
  note_space();
  release_replaced_pages();  // last: of all here it alone may throw
}

}  // namespace tensorshelf
