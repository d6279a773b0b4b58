// What plays about mirrors have: a shelf on a disk behind a cache, and its mirror on another.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "format/format.hpp"
#include "model.hpp"
#include "tests/cached_disk.hpp"

namespace tensorshelf::crash {

using testing::CachedDisk;
using testing::CachedMedium;
using Bytes = std::vector<std::byte>;

inline constexpr std::int64_t kMirroredBytes = 5000;

// A shelf at version 2, of which nothing is mirrored yet.
struct Mirrored {
  std::shared_ptr<CachedDisk> first = std::make_shared<CachedDisk>();
  std::shared_ptr<CachedDisk> mirror = std::make_shared<CachedDisk>();

  explicit Mirrored(unsigned keep = 0) {
    {
      CachedMedium medium(first);
      Shelf::format(medium, {.keep = keep});
    }
    Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(first), {.mode = Mode::update});
    shelf.create("a", DType::uint8, std::array{kMirroredBytes});
    for (std::uint64_t serial : {1, 2}) {
      shelf.find("a")->write(stamped(kMirroredBytes, serial));
      shelf.persist(serial);
    }
  }
  Shelf open(Mode mode = Mode::update) const {
    std::vector<MirrorMedium> mirrors;
    mirrors.push_back({0, std::make_unique<CachedMedium>(mirror)});
    return Shelf::open(std::make_unique<CachedMedium>(first), {}, std::move(mirrors),
                       {.mode = mode});
  }
  // False where the process died, or a flush failed.
  bool opens() const {
    try {
      open();
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::io && error.code() != Errc::failed) throw;
      return false;
    }
  }
  // In a process that dies at that event of both; then the power goes.
  bool opens_before_death(unsigned event) const {
    const unsigned end = first->events + mirror->events + event;
    const auto dies = [&](unsigned) { return first->events + mirror->events > end; };
    first->dies = mirror->dies = dies;
    const bool opened = opens();
    first->dies = mirror->dies = {};
    lose_power();
    return opened;
  }
  void lose_power() const {
    first->lose_power();
    mirror->lose_power();
  }
  bool is_refused(Mode mode = Mode::update) const {
    try {
      open(mode);
      return false;
    } catch (const Error& error) {
      if (error.code() != Errc::medium_missing) throw;
      return true;
    }
  }
  void commit(std::uint64_t serial) const {
    Shelf shelf = open();
    shelf.find("a")->write(stamped(kMirroredBytes, serial));
    shelf.persist(serial);
  }
  // By the mirror, where the first is lost: a value from that one on.
  std::string alone(std::uint64_t serial) const {
    try {
      const Shelf shelf = Shelf::open(std::make_unique<CachedMedium>(mirror), {.mode = Mode::read});
      Bytes bytes(kMirroredBytes);
      shelf.find("a").value().read(bytes);
      const std::uint64_t step = shelf.step().value();
      return bytes == stamped(kMirroredBytes, step) && step >= serial
                 ? ""
                 : "the mirror has another value";
    } catch (const Error& error) {
      return fmt::format("of the mirror nothing can be read: {}", error.what());
    }
  }
};

inline void flip(CachedDisk& disk, std::uint64_t at) {
  disk.visible[at] ^= std::byte{1};
  disk.durable = disk.visible;
}

}  // namespace tensorshelf::crash
