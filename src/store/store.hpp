// The store behind Shelf: its parts over one State, whose header has the order of locks, and what
// concerns several of them: whose turn it is, transactions, the end.
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
#include "store/commit/committer.hpp"
#include "store/commit/decisions.hpp"
#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/commit/stager.hpp"
#include "store/reading/follow.hpp"
#include "store/reading/reader.hpp"
#include "store/reading/version_hold.hpp"
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
  // As AttachedMedia::check_names(), of all that versions which are retained or on their way name.
  void check_media(bool lately = false) const;
  Reader& reader() { return reader_; }
  Decisions& decisions() { return decisions_; }
  Follower& follower() { return follower_; }
  Compactor& compactor() { return compactor_; }
  std::unique_ptr<StoredAssignment> assign(const std::shared_ptr<StoredTensor>& tensor);
  std::unique_ptr<StoredAssignment> assign(const NewTensor& made);
  void write(const std::shared_ptr<StoredTensor>& tensor, std::span<const std::byte> bytes,
             std::uint64_t offset);

  // See commit/assignment.hpp.
  void refuse_inside(const char* what) const { tensorshelf::refuse_inside(state_, what); }

  Commit persist(std::optional<std::uint64_t> step);
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step);

  // versions.cpp
  std::vector<VersionInfo> versions() const;
  VersionInfo version_info(std::uint64_t version) const;
  std::shared_ptr<StoredTensor> find(std::string_view name, std::uint64_t version) const;
  std::vector<std::string> names(std::uint64_t version) const;
  VersionDiff diff(std::uint64_t from, std::uint64_t to) const;  // diff.cpp
  // A reader that says no version holds the newest that its writer lets it: it goes on to that.
  std::unique_ptr<VersionHold> hold(std::optional<std::uint64_t> version, VersionHold::By by);
  Commit rollback(std::uint64_t version);  // rollback.cpp
  // heal.cpp
  VerifyReport heal(const Progress& progress);
  VerifyReport heal(VerifyReport found);
  // transactions.cpp
  bool has_uncommitted() const;
  std::string unheard_failure() const { return state_.health.unheard(); }
  // Why a save came to nothing, for the next call, or close(), to throw.
  void keep_lost_save(std::exception_ptr why) noexcept { state_.health.keep_lost_save(why); }
  void discard();
  void begin_transaction();
  // `ended`: whether the transaction is over, also where it throws.
  Commit commit_transaction(std::optional<std::uint64_t> step, bool& ended);
  void discard_and_end_turn();  // of a transaction, or of a save of the pipeline's

  // A save of the pipeline's: as a transaction, but with all that was assigned before, and for
  // whichever thread ends it, which discard_and_end_turn() does where it comes to nothing.
  void begin_save();
  std::shared_future<Commit> launch_save(std::optional<std::uint64_t> step, bool& ended);
  // In place of launching it: prepared, when it returns (decisions.hpp).
  Prepared prepare_save(std::optional<std::uint64_t> step, std::string_view id, bool& ended);
  // Whether the open attempt has these bytes as that chunk; the turn is ours. Errc::abandoned where
  // it went with the one before it, Errc::closed where the shelf is.
  bool has_staged(StoredTensor& tensor, std::uint64_t chunk, std::span<const std::byte> bytes);

  // look.cpp
  std::shared_ptr<StoredTensor> find(std::string_view name) const;
  std::vector<std::string> names() const;
  TensorInfo info(const StoredTensor& tensor, Of which) const;
  ShelfInfo info() const;
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;
  Stats stats() const;

  void close();
  void let_go() noexcept;  // the same; on_unheard hears what it throws
  bool closed() const { return state_.health.closed(); }

 private:
  std::shared_future<Commit> launch_behind_turn(std::optional<std::uint64_t> step);
  // The gate is closed for both.
  void check_nothing_uncommitted(const char* what) const;
  void drop_open_attempt(std::shared_ptr<Attempt> next) noexcept;
  // rollback.cpp
  void check_sound(std::uint64_t version);
  void keep_places(Version& version) const;
  std::shared_ptr<Version> as_next(std::uint64_t version);
  // heal.cpp
  void check_may_heal();
  std::optional<Flight> freeze_healed(VerifyReport& report);

  State state_;
  Reader reader_;
  Stager stager_;
  Tensors tensors_;
  Freezer freezer_;
  Sealer sealer_;
  Decisions decisions_;
  Follower follower_;
  Compactor compactor_;
  std::unique_ptr<Committer> committer_;  // of persist_async; last: it ends before all else goes
};

}  // namespace tensorshelf
