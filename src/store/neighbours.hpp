// What lies on the medium beside the newest version, none of it where another does: versions that
// are retained, and a prepared attempt.
#pragma once

#include "store/heap.hpp"
#include "store/load_root.hpp"

namespace tensorshelf {

class Neighbours {
 public:
  Neighbours(Medium& medium, const format::Seeds& seeds, KnownPages& known,
             std::uint64_t capacity_bytes, const Version& newest)
      : medium_(medium),
        seeds_(seeds),
        known_(known),
        heap_(medium, capacity_bytes, list_.add(newest)) {
    note(newest);
  }

  // As load_root() does; Errc::corrupt also where it shares a place and not what lies there.
  LoadedRoot load(const format::Root& root) {
    LoadedRoot loaded = load_root(medium_, seeds_, root, known_, tensors_);
    heap_.claim(list_.add(*loaded.version));
    note(*loaded.version);
    return loaded;
  }

 private:
  void note(const Version& version) {
    for (const auto& [name, named] : *version.names) {
      tensors_.emplace(named.tensor->layout.tensor_id, named);
    }
  }

  Medium& medium_;
  const format::Seeds& seeds_;
  KnownPages& known_;
  ClaimList list_;
  Heap heap_;
  KnownTensors tensors_;
};

}  // namespace tensorshelf
