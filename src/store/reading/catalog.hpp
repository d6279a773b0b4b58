// What there is: versions, the tensors of each by name, the media, the counts. Changes nothing, and
// may be asked by any thread. Errc::closed and Errc::forked from all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/report.hpp>

#include "store/state/state.hpp"

namespace tensorshelf {

class Catalog {
 public:
  explicit Catalog(const State& state) : state_(state) {}

  // As the open attempt has them; null where none has the name.
  std::shared_ptr<StoredTensor> find(std::string_view name) const;
  std::vector<std::string> names() const;
  TensorInfo info(const StoredTensor& tensor, Of which) const;

  // Those that can be read, the oldest first. All that take a number throw Errc::stale where that
  // version is neither retained nor prepared.
  std::vector<VersionInfo> versions() const;
  VersionInfo version_info(std::uint64_t version) const;
  std::shared_ptr<StoredTensor> find(std::string_view name, std::uint64_t version) const;
  std::vector<std::string> names(std::uint64_t version) const;
  VersionDiff diff(std::uint64_t from, std::uint64_t to) const;  // diff.cpp

  // Of the newest version.
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;

  // catalog_info.cpp
  ShelfInfo info() const;
  std::uint64_t free_bytes() const;
  Stats stats() const;
  // As AttachedMedia::check_names(), of all that versions which are retained or on their way name.
  void check_media(bool lately = false) const;

 private:
  const State& state_;
};

}  // namespace tensorshelf
