// Whether a store can still be used: it may be closed, or inherited by a forked child, or have
// failed, after which it commits no more (I8). Keeps what a commit in the background threw until a
// call can tell it. Any thread may call anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "store/threads/fork_guard.hpp"

namespace tensorshelf {

class Health {
 public:
  explicit Health(const std::string& path) : path_(path) {}  // which outlives this

  bool in_child() const { return fork_guard_.in_child(); }
  bool closed() const { return closed_; }
  void close() { closed_ = true; }
  void check_usable() const;  // Errc::forked, Errc::closed

  bool failed() const { return failed_; }
  void fail(const char* why) noexcept;
  // `safe`: the version that is durable.
  [[noreturn]] void throw_failed(std::uint64_t safe) const;

  // What nobody was told: of a commit in the background, whose failure is the shelf's, and of a
  // save that came to nothing. Of each the first tells why.
  void keep_background(std::exception_ptr error) noexcept;
  void keep_lost_save(std::exception_ptr error) noexcept;
  void check_background();      // throws one of them, the commit's first, once
  void throw_all_unheard();     // the same for the last call: where there are two, as one text
  std::string unheard() const;  // the texts of those that are left

 private:
  const std::string& path_;
  ForkGuard fork_guard_;
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;  // of the texts
  std::atomic<bool> failed_ = false;
  std::string failure_;                  // why
  std::exception_ptr background_error_;  // these two: not yet thrown to a caller
  std::exception_ptr lost_save_;
  std::atomic<bool> unheard_ = false;  // there is one
};

}  // namespace tensorshelf
