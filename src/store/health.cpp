#include "store/health.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"

namespace tensorshelf {

void Health::check_usable() const {
  if (in_child()) {
    throw Error(Errc::forked, fmt::format("{} was opened by the parent of this process", path_),
                "Open it in the child itself: with mode \"r\" while the parent has it open.");
  }
  if (closed_) {
    throw Error(Errc::closed, fmt::format("{} is closed", path_), "Open it again.");
  }
}

// Marked as failed before anything that could itself fail.
void Health::fail(const char* why) noexcept {
  if (planted(Bug::failure_forgotten)) return;
  failed_ = true;
  std::lock_guard lock(mutex_);
  try {
    if (failure_.empty()) failure_ = why;
  } catch (const std::bad_alloc&) {  // then without the reason
  }
}

void Health::throw_failed(std::uint64_t safe) const {
  std::lock_guard lock(mutex_);
  throw Error(Errc::failed,
              fmt::format("{} can commit no more after a failure: {}", path_, failure_),
              fmt::format("Close it and open it again: version {} is safe.", safe));
}

void Health::keep_background(std::exception_ptr error) noexcept {
  std::lock_guard lock(mutex_);
  if (!background_error_) background_error_ = std::move(error);
  background_failed_ = true;
}

void Health::check_background() {
  if (!background_failed_) return;
  std::unique_lock lock(mutex_);
  background_failed_ = false;
  if (auto error = std::exchange(background_error_, nullptr)) {
    lock.unlock();
    std::rethrow_exception(error);
  }
}

std::string Health::unheard() const {
  const std::lock_guard lock(mutex_);
  if (!background_error_) return {};
  try {
    std::rethrow_exception(background_error_);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace tensorshelf
