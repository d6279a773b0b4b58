// Readers beside the program that runs, each of which holds a version and must go on to show it,
// whatever is done to the shelf.
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include <tensorshelf/shelf.hpp>

#include "disk.hpp"
#include "model.hpp"
#include "recording_medium.hpp"
#include "tests/memory_pins.hpp"

namespace tensorshelf::crash {

class PinnedReaders {
 public:
  // How a writer sees the medium.
  std::unique_ptr<Medium> seen_by_all(std::unique_ptr<Medium> medium) const;

  // Opens one, which pins the newest version: this one.
  void add(Disk& disk, const Behaviour& behaviour, const Model& newest);
  void clear();
  bool empty() const { return readers_.empty(); }
  bool hold_before(std::uint64_t version) const;  // any version before that

  // Throws std::runtime_error where one shows anything else (I3).
  void check() const;

 private:
  struct Reader;
  std::shared_ptr<testing::SharedPins> shared_ = std::make_shared<testing::SharedPins>();
  std::list<std::shared_ptr<Reader>> readers_;
};

}  // namespace tensorshelf::crash
