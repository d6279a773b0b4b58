// The media of a shelf beside its first that are attached, and what is known of each. Any thread
// may ask, and tell.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/layout.hpp"
#include "format/medium_set.hpp"
#include "media/media.hpp"

namespace tensorshelf {

class Tree;

struct AttachedMedium {
  unsigned index;
  format::ShelfId id;
  std::string path;
  std::weak_ptr<const ShelfFile> file = {};
  bool offered = false;                  // by who opened the shelf
  bool retired = false;                  // nothing more is placed there
  std::optional<unsigned> mirrors = {};  // that medium; nothing is placed there
  bool tied = false;                     // gets what is written on what it mirrors
  bool absent = false;                   // missing, and what it is paired with serves
};

class AttachedMedia {
 public:
  explicit AttachedMedia(const GuardedMedium& media) : media_(media) {}

  std::vector<AttachedMedium> all() const;  // by index
  std::optional<AttachedMedium> find(unsigned index) const;
  bool any() const { return any_; }
  bool any_retired() const { return any_retired_; }
  // To which a version may come to refer: not those that were removed.
  MediumSet in_use() const;
  bool is_mirrored(unsigned index) const;
  std::uint64_t changes() const { return changes_; }  // so far, of what all() says

  void add(AttachedMedium medium);
  void tie(unsigned index);
  void retire(unsigned index, bool retired = true);
  void give_up(unsigned index);  // neither tied any more, nor used
  // What the open attempt names goes on, after one that removed it was dropped.
  void revive(const Tree& open) noexcept;

  // Errc::gone where the file of one of `which` was deleted, or another took its place. With
  // `lately`, one to which nothing was written since is not asked again within a millisecond: who
  // deletes it then does so behind this commit as well as before it.
  void check_names(MediumSet which, bool lately) const;

 private:
  AttachedMedium& at(unsigned index);
  void check_name(const ShelfFile& file, unsigned index) const;

  const GuardedMedium& media_;
  mutable std::mutex mutex_;  // of the next two
  std::vector<AttachedMedium> all_;
  mutable std::array<std::chrono::steady_clock::time_point, kMaxMedia> asked_ = {};
  std::atomic<bool> any_ = false;
  std::atomic<bool> any_retired_ = false;
  std::atomic<std::uint64_t> changes_ = 0;
};

}  // namespace tensorshelf
