// Watches the calls by which this process changes names and makes files durable, and keeps what a
// power cut would have left (names.hpp), before and after each of them. One of them may fail.
//
// The linker puts the watch in the place of open, rename, renameat2, link, unlink, fsync and
// fdatasync, in what links with the explorer: `--wrap` in CMakeLists.txt. A name that comes about
// in another way is an error.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "names.hpp"

namespace tensorshelf::crash {

// One at a time. Media are made durable by several threads at once: it hears of all their calls.
class RecordedNames {
 public:
  // Of the files below the folder, and in folders of it: those that are there are durable.
  // The call of that number, from 0 on, fails with EIO and does nothing.
  static constexpr unsigned kNone = ~0U;
  explicit RecordedNames(std::filesystem::path root, unsigned fails_at = kNone);
  ~RecordedNames();
  RecordedNames(const RecordedNames&) = delete;
  RecordedNames& operator=(const RecordedNames&) = delete;

  // What was called has returned: a cut from here on must leave what that promises.
  void told();
  // It has failed instead: what is there now counts too.
  void gave_up();
  bool failed() const { return fails_at_ != kNone && calls_ > fails_at_; }

  struct Cut {
    bool told = false;
    Tree tree;  // paths from the root on
    auto operator<=>(const Cut&) const = default;
  };
  // Each once.
  const std::set<Cut>& cuts() const { return cuts_; }

  // Empty, or what could not be watched.
  const std::string& problem() const { return problem_; }

  // For the watch: a call begins; and what one did, once it did it.
  void hears(const std::function<void()>& of);
  void before();
  bool fails() { return calls_++ == fails_at_; }
  void opened(const std::filesystem::path& path);
  void moved(const std::filesystem::path& from, const std::filesystem::path& to);
  void linked(const std::filesystem::path& from, const std::filesystem::path& to);
  void removed(const std::filesystem::path& path);
  void synced(int fd);

 private:
  std::optional<std::filesystem::path> below(const std::filesystem::path& path) const;
  void look();
  void keep_cuts();

  std::filesystem::path root_;
  Names names_;
  std::set<Cut> cuts_;
  unsigned fails_at_;
  unsigned calls_ = 0;
  bool told_ = false;
  std::string problem_;
};

}  // namespace tensorshelf::crash
