#include "store/media_set/attached_media.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "store/manifest/tree.hpp"

namespace tensorshelf {

std::vector<AttachedMedium> AttachedMedia::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

std::optional<AttachedMedium> AttachedMedia::find(unsigned index) const {
  const std::lock_guard lock(mutex_);
  const auto there = std::ranges::find(all_, index, &AttachedMedium::index);
  if (there == all_.end()) return std::nullopt;
  return *there;
}

// With the mutex held.
AttachedMedium& AttachedMedia::at(unsigned index) {
  return *std::ranges::find(all_, index, &AttachedMedium::index);
}

MediumSet AttachedMedia::in_use() const {
  const std::lock_guard lock(mutex_);
  MediumSet which;
  for (const AttachedMedium& each : all_) {
    if (!each.retired) which.add(each.index);
  }
  return which;
}

bool AttachedMedia::is_mirrored(unsigned index) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      all_, [&](const AttachedMedium& each) { return each.tied && each.mirrors == index; });
}

void AttachedMedia::add(AttachedMedium medium) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(medium));
  std::ranges::sort(all_, {}, &AttachedMedium::index);
  any_ = true;
  ++changes_;
}

void AttachedMedia::tie(unsigned index) {
  const std::lock_guard lock(mutex_);
  at(index).tied = true;
  ++changes_;
}

void AttachedMedia::retire(unsigned index, bool retired) {
  const std::lock_guard lock(mutex_);
  at(index).retired = retired;
  any_retired_ = true;
  ++changes_;
}

void AttachedMedia::give_up(unsigned index) {
  const std::lock_guard lock(mutex_);
  at(index).tied = false;
  at(index).retired = true;
  any_retired_ = true;
  ++changes_;
}

void AttachedMedia::revive(const Tree& open) noexcept {
  if (!any_retired_) return;
  try {
    const auto media = open.media();
    const std::lock_guard lock(mutex_);
    for (const auto& named : media) {
      AttachedMedium& medium = at(named.index);
      if (medium.mirrors && !medium.tied) continue;  // it was given up
      if (std::exchange(medium.retired, false)) ++changes_;
    }
  } catch (const std::exception&) {  // no memory: nothing is placed there until it is opened again
  }
}

void AttachedMedia::check_name(const ShelfFile& file, unsigned index) const {
  try {
    file.check_name();
  } catch (const Error& error) {
    const auto medium = find(index);
    if (error.code() != Errc::gone || !medium || !medium->mirrors) throw;
    throw Error(
        error.code(),
        fmt::format("medium {}, the mirror of medium {}: {}", index, *medium->mirrors,
                    error.what()),
        fmt::format("What is committed is on what it mirrors. Move the file back, and "
                    "persist() again; or close the shelf, which drops the rest, and open it "
                    "with without={}, to go on without that mirror.",
                    index),
        error.os_error());
  }
}

void AttachedMedia::check_names(MediumSet which, bool lately) const {
  constexpr auto kLately = std::chrono::milliseconds(1);
  const auto now = std::chrono::steady_clock::now();
  std::array<std::shared_ptr<const ShelfFile>, kMaxMedia> files;
  {
    const std::lock_guard lock(mutex_);
    for (const AttachedMedium& each : all_) {
      const bool just_asked = lately && now - asked_[each.index] < kLately;
      if (!which.has(each.index) || (just_asked && media_.is_settled(each.index))) continue;
      files[each.index] = each.file.lock();
    }
  }
  for (unsigned index = 0; index < kMaxMedia; ++index) {
    if (!files[index]) continue;
    check_name(*files[index], index);
    const std::lock_guard lock(mutex_);
    asked_[index] = now;
  }
}

}  // namespace tensorshelf
