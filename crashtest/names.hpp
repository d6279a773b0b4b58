// What a power cut may leave of the files below a folder: which names there are, and what the files
// that they lead to hold. Knows nothing of shelves.
//
// As docs/design.md, section 7, assumes of file systems, and nothing beyond:
//
//     names   A step (a name made, moved or taken away) is whole or not there at all, a rename over
//             another file too. It stays from when its folder is synced on. Until then any steps
//             may be there and any others not, whatever their order was.
//     files   What a file holds stays from when the file is synced on. Until then it has what it
//             had then (a new one nothing), or what it has now, or the length that it has now, with
//             zeros beyond what it had. (A mixture is for the fault model of recording_medium.hpp.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tensorshelf::crash {

// One for each content that there is, so that pointers tell whether two are the same.
using Content = std::shared_ptr<const std::vector<std::byte>>;
using Tree = std::map<std::filesystem::path, Content>;

class Names {
 public:
  using File = std::uint64_t;
  using Named = std::map<std::filesystem::path, File>;

  void made(const std::filesystem::path& name);  // of a new and empty file
  void linked(const std::filesystem::path& from, const std::filesystem::path& to);
  void moved(const std::filesystem::path& from, const std::filesystem::path& to);
  void removed(const std::filesystem::path& name);
  void holds(const std::filesystem::path& name, std::vector<std::byte> now);
  void synced_file(const std::filesystem::path& name);
  void synced_folder(const std::filesystem::path& folder);

  // As they are for who did not lose power.
  const Named& now() const { return now_; }

  // Each tree that a cut in this moment may leave, some of them more than once.
  void each_cut(const std::function<void(const Tree&)>& visit) const;

 private:
  struct Step {
    std::optional<std::filesystem::path> gone;
    std::optional<std::filesystem::path> named;
    File file = 0;
  };
  struct Held {
    Content synced, now, grown;  // grown: the length of now, zeros beyond what was synced
  };

  void take(const std::filesystem::path& folder, Step step);
  Content the_one(std::vector<std::byte> bytes);
  std::vector<Content> may_hold(File file) const;
  void each_content(const Named& named, Named::const_iterator at, Tree& tree,
                    const std::function<void(const Tree&)>& visit) const;

  Named now_;
  Named kept_;
  std::vector<std::pair<std::filesystem::path, Step>> pending_;  // by folder, in their order
  std::vector<Held> files_;
  std::map<std::uint64_t, Content> contents_;  // by checksum
};

}  // namespace tensorshelf::crash
