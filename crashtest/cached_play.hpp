// What plays about recovery have: a shelf on a disk behind a cache (tests/cached_disk.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "format/format.hpp"
#include "model.hpp"
#include "tests/cached_disk.hpp"

namespace tensorshelf::crash {

using testing::CachedDisk;
using testing::CachedMedium;
using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kSize = 5000;

inline Bytes value(std::uint64_t serial) {
  Bytes bytes(kSize);
  stamp(bytes, "a", serial, 0);
  return bytes;
}

// A disk with a shelf at version 1, of value(1).
struct CachedPlay {
  std::shared_ptr<CachedDisk> disk = std::make_shared<CachedDisk>();

  explicit CachedPlay(std::shared_ptr<CachedDisk> with) : disk(std::move(with)) {}
  CachedPlay() {
    format();
    make_first();
  }
  void format() {
    CachedMedium medium(disk);
    Shelf::format(medium);
  }
  void make_first() {
    Shelf shelf = open();
    shelf.create("a", DType::uint8, std::array<std::int64_t, 1>{kSize});
    commit(shelf, 1);
  }
  Shelf open(Mode mode = Mode::update) const {
    return Shelf::open(std::make_unique<CachedMedium>(disk), {.mode = mode});
  }
  static void commit(Shelf& shelf, std::uint64_t serial) {
    shelf.find("a")->write(value(serial));
    shelf.persist(serial);
  }
  std::string shows(std::uint64_t serial) const {
    const Shelf shelf = open(Mode::read);
    Bytes bytes(kSize);
    shelf.find("a").value().read(bytes);
    return bytes == value(serial) ? "" : "another value than the one that was acknowledged";
  }
};

inline void fails(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == Errc::io) return;
    throw;
  }
  throw std::runtime_error("a call succeeded on a medium that failed");
}

// Opens it in a process that dies at its `dying`-th step, and then the power goes. False: it died.
inline bool opens_before_death(const CachedPlay& play, unsigned dying) {
  CachedDisk& disk = *play.disk;
  disk.dies = [at = disk.events + dying](unsigned n) { return n == at; };
  bool opened = true;
  try {
    play.open();
  } catch (const Error& error) {
    if (error.code() != Errc::io) throw;
    opened = false;
  }
  disk.dies = {};
  disk.lose_power();
  return opened;
}

inline void spoil(CachedDisk& disk, std::uint64_t at) {
  for (Bytes* bytes : {&disk.visible, &disk.durable}) {
    std::fill_n(bytes->begin() + static_cast<std::ptrdiff_t>(at), kPageBytes, std::byte{0x5A});
  }
}

}  // namespace tensorshelf::crash
