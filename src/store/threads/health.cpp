#include "store/threads/health.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"

namespace tensorshelf {
namespace {

std::string text_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

void Health::check_usable() const {
  if (in_child()) {
    throw Error(Errc::forked, fmt::format("{} was opened by the parent of this process", path_),
                "Open it in the child itself: with mode=\"r\" while the parent has it open.");
  }
  if (closed_) {
    throw Error(Errc::closed, fmt::format("{} is closed", path_), "Open it again.");
  }
}

// Marked as failed before anything that could itself fail, and locked, so that who sees the mark
// waits for the reason.
void Health::fail(const char* why) noexcept {
  if (planted(Bug::failure_forgotten)) return;
  std::lock_guard lock(mutex_);
  failed_ = true;
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
  const std::lock_guard lock(mutex_);
  if (!background_error_) background_error_ = std::move(error);
  unheard_ = true;
}

void Health::keep_lost_save(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!lost_save_) lost_save_ = std::move(error);
  unheard_ = true;
}

void Health::check_background() {
  if (!unheard_) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(background_error_ ? background_error_ : lost_save_, nullptr);
    unheard_ = lost_save_ != nullptr;
  }
  if (error) std::rethrow_exception(error);
}

void Health::throw_all_unheard() {
  const std::string all = unheard();
  const auto is_second_left = [this] {
    const std::lock_guard lock(mutex_);
    const bool left = std::exchange(lost_save_, nullptr) != nullptr;
    unheard_ = false;
    return left && !planted(Bug::second_failure_dropped);
  };
  try {
    check_background();
  } catch (const Error& first) {
    if (!is_second_left()) throw;
    throw Error(first.code(), all, first.remedy(), first.os_error());
  } catch (const std::exception&) {  // there was no memory
    if (!is_second_left()) throw;
    throw Error(Errc::failed, all, "Open the shelf again: its last version is safe.");
  }
}

std::string Health::unheard() const {
  const std::lock_guard lock(mutex_);
  std::string all = text_of(background_error_);
  if (background_error_ && lost_save_) all += ". Besides: ";
  return all + text_of(lost_save_);
}

}  // namespace tensorshelf
