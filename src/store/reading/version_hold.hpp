// Keeps one version as it is while it is copied out: its slots are not given to anyone, whatever is
// committed meanwhile (pinned.hpp). Of a shelf that is open for reading, by telling the writer
// (media/pins.hpp), where there is a way to. A crash forgets it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "store/state/state.hpp"

namespace tensorshelf {

class VersionHold {
 public:
  // By a thread: it ends in the thread that it began in, which is refused what would wait for it.
  // By a copy, or a user: a VersionPin, which may end in any thread. Whoever waits for a user waits
  // for OpenOptions::pin_timeout, and for the others until they end, as they do by themselves.
  enum class By { thread, copy, user };

  // The newest version where none is said. Errc::stale where it is not retained, or the writer has
  // given it up already; Errc::io where the file system has no locks to tell it by. On a medium
  // without pins (memory, a mirror that is opened alone) the hold is this opening's own.
  // `all_held`: the reader held all versions (PinTable::take_all) when it looked which is the
  // newest.
  VersionHold(State& state, std::optional<std::uint64_t> version, By by, bool all_held = false);
  ~VersionHold();
  VersionHold(const VersionHold&) = delete;
  VersionHold& operator=(const VersionHold&) = delete;

  std::uint64_t version() const { return version_; }
  std::optional<std::uint64_t> step() const { return step_; }
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  const Names& names() const { return *names_; }

  // Whether this thread holds a version of that store: if it waited, it might do so for itself.
  static bool around(const State& state);

 private:
  void tell(bool all_held);
  bool joins_another();
  void note_let_be();
  bool is_users() const;
  void forget() noexcept;

  State& state_;
  const By by_;
  bool told_ = false;       // the writer
  bool is_let_be_ = false;  // which lets it be
  const Use use_{state_};   // close() waits
  std::uint64_t version_ = 0;
  std::uint64_t word_ = 0;  // of its root
  std::optional<std::uint64_t> step_;
  std::uint64_t tensor_bytes_ = 0;
  std::shared_ptr<const Names> names_;

  inline static constinit thread_local const VersionHold* innermost_ = nullptr;
  const VersionHold* outer_ = nullptr;  // of the same thread
};

}  // namespace tensorshelf
