// What lies on the medium beside versions that are known, none of it where another does: versions
// that are retained, and a prepared attempt.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "store/places/claims.hpp"
#include "store/recovery/load_root.hpp"

namespace tensorshelf {

// What it is given outlives it. After a load() that throws nothing more is to be loaded beside
// these.
class Neighbours {
 public:
  Neighbours(Medium& medium, const format::Seeds& seeds, KnownPages& known, FurtherMedia& further,
             const Capacities& capacities, const std::vector<std::shared_ptr<Version>>& versions,
             KnownTensors tensors = {})
      : medium_(medium),
        seeds_(seeds),
        known_(known),
        further_(further),
        claimed_(capacities),
        tensors_(std::move(tensors)) {
    for (const auto& version : versions) add(version);
  }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // As load_root() does; Errc::corrupt also where it shares a place and not what lies there.
  LoadedRoot load(const format::Root& root) {
    LoadedRoot loaded = load_root(medium_, seeds_, root, known_, tensors_, &further_);
    for (const auto& beside : versions_) {
      const bool older = loaded.version->number() < beside->number();
      check_places(older ? *loaded.version : *beside, older ? *beside : *loaded.version);
    }
    add(loaded.version);
    return loaded;
  }

 private:
  void add(const std::shared_ptr<const Version>& version) {
    versions_.push_back(version);
    claimed_.raise(version->capacities());  // of media that the newest does not name
    claimed_.add(list_.add(version));
    for (const auto& [name, named] : *version->names) {
      tensors_.emplace(named.tensor->layout.tensor_id, named);
    }
  }

  Medium& medium_;
  const format::Seeds& seeds_;
  KnownPages& known_;
  FurtherMedia& further_;
  std::vector<std::shared_ptr<const Version>> versions_;
  ClaimList list_;
  Claimed claimed_;
  KnownTensors tensors_;
};

}  // namespace tensorshelf
