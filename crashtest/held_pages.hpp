// What a medium was given and need not have handed on: writes that nobody waited for, and words
// behind no barrier. When the medium is destroyed or its process dies, each page of these is there
// or not, whatever the others are (tensorshelf/medium.hpp). What is not there is gone for good: no
// process sees it, and no power loss can leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "disk.hpp"
#include "log.hpp"

namespace tensorshelf::crash {

class HeldPages {
 public:
  // An event of the log, in order, before it happens to the disk.
  void note(const Log& log, std::size_t event, const Disk& disk);

  bool empty() const { return items_.empty(); }

  // The end: by the seed all is there, or nothing, or any of the pages. The rest leaves the disk,
  // and the death, which is for the log, says what that was.
  DeathEvent end(Log& log, Disk& disk, std::uint64_t seed);

 private:
  struct Item {
    std::size_t event;
    std::vector<std::byte> before;  // what was there; as long as what is left of the event
    bool handed_on = false;         // only kept because it lies over something that was not
  };
  static Stretch left_of(const Log& log, const Item& item);
  void cut(const Log& log, std::uint64_t size_bytes);
  void hand_on(const Log& log, const Event& event);
  void undo(const Log& log, Disk& disk);
  void apply_again(const Log& log, Disk& disk, const DeathEvent& death);

  std::vector<Item> items_;  // in order, from the first that is held on
};

}  // namespace tensorshelf::crash
