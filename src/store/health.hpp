// Whether a store can still be used: it may be closed, or inherited by a forked child, or have
// failed, after which it commits no more (I8). Keeps what a commit in the background threw until a
// call can tell it. Any thread may call anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "store/fork_guard.hpp"

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

  void keep_background(std::exception_ptr error) noexcept;  // the first tells why
  void check_background();                                  // throws it, once
  std::string unheard() const;                              // its text, where nobody was told yet

 private:
  const std::string& path_;
  ForkGuard fork_guard_;
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;  // of the texts
  std::atomic<bool> failed_ = false;
  std::string failure_;                          // why
  std::exception_ptr background_error_;          // not yet thrown to a caller
  std::atomic<bool> background_failed_ = false;  // there is one
};

}  // namespace tensorshelf
