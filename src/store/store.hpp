// The store behind Shelf: its parts over one State, whose header has the order of locks, and what
// concerns several of them: persist, and the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/lease.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "store/commit/assignment.hpp"
#include "store/commit/decisions.hpp"
#include "store/commit/freezer.hpp"
#include "store/commit/launcher.hpp"
#include "store/commit/open_attempt.hpp"
#include "store/commit/sealer.hpp"
#include "store/commit/stager.hpp"
#include "store/commit/transactions.hpp"
#include "store/heal.hpp"
#include "store/reading/catalog.hpp"
#include "store/reading/follow.hpp"
#include "store/reading/reader.hpp"
#include "store/rollback.hpp"
#include "store/room/compactor.hpp"
#include "store/room/tensors.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class StoredAssignment;

class Store {
 public:
  Store(const ShelfMedia& media, const OpenOptions& options, std::string path);
  ~Store();

  Tensors& tensors() { return tensors_; }
  const Catalog& catalog() const { return catalog_; }
  Reader& reader() { return reader_; }
  Decisions& decisions() { return decisions_; }
  Transactions& transactions() { return transactions_; }
  Follower& follower() { return follower_; }
  Compactor& compactor() { return compactor_; }
  Rollback& rollback() { return rollback_; }
  Healing& healing() { return healing_; }
  std::unique_ptr<StoredAssignment> assign(const std::shared_ptr<StoredTensor>& tensor);
  std::unique_ptr<StoredAssignment> assign(const NewTensor& made);
  void write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
             std::uint64_t offset);

  // See commit/assignment.hpp.
  void refuse_inside(const char* what) const { tensorshelf::refuse_inside(state_, what); }

  Commit persist(std::optional<std::uint64_t> step);
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step);

  std::string unheard_failure() const { return state_.health.unheard(); }
  // Why a save came to nothing, for the next call, or close(), to throw.
  void keep_lost_save(std::exception_ptr why) noexcept { state_.health.keep_lost_save(why); }
  // Whether the open attempt has these bytes as that chunk; the turn is ours. Errc::abandoned where
  // it went with the one before it, Errc::closed where the shelf is.
  bool has_staged(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes);
  bool has_uncommitted() const { return tensorshelf::has_uncommitted(state_); }
  void discard() { tensorshelf::discard(state_); }

  void close();
  void let_go() noexcept;  // the same; on_unheard hears what it throws
  bool closed() const { return state_.health.closed(); }

 private:
  State state_;
  Reader reader_;
  Stager stager_;
  Tensors tensors_;
  Freezer freezer_;
  Sealer sealer_;
  Launcher launcher_;  // its thread uses what is above, and ends before that
  Decisions decisions_;
  Transactions transactions_;
  Catalog catalog_;
  Follower follower_;
  Compactor compactor_;
  Rollback rollback_;
  Healing healing_;
};

}  // namespace tensorshelf
