// Keeps one version as it is while it is copied out. Its slots are not given to anyone, whatever is
// committed meanwhile: who needs one of them waits, and so does a commit for which there would be
// more versions than the shelf has slots. Nothing of this is on the medium: a crash forgets it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "store/state.hpp"

namespace tensorshelf {

class VersionHold {
 public:
  // By a thread: it ends in the thread that it began in, which is refused what would wait for it.
  // By anyone: it may end in any thread, and whoever waits for it waits.
  enum class By { thread, anyone };

  // The newest version where none is said. Errc::stale where it is not retained.
  VersionHold(State& state, std::optional<std::uint64_t> version, By by);
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
  State& state_;
  const By by_;
  const Use use_{state_};  // close() waits
  std::uint64_t version_ = 0;
  std::optional<std::uint64_t> step_;
  std::uint64_t tensor_bytes_ = 0;
  std::shared_ptr<const Names> names_;

  inline static constinit thread_local const VersionHold* innermost_ = nullptr;
  const VersionHold* outer_ = nullptr;  // of the same thread
};

}  // namespace tensorshelf
