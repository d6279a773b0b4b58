// A shelf in memory whose media are mirrored, any of which may fail, rot or be put back as it was.
#pragma once

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/format.hpp"
#include "held_medium.hpp"
#include "kept_versions.hpp"

namespace tensorshelf::testing {

inline constexpr unsigned kSecond[] = {1};
using Bytes = std::vector<std::byte>;

// One whose reads of some place, or whose barriers, fail while that is said.
struct Faults {
  bool barrier = false;
  bool reads = false;  // all of them
  bool shrink = false;
  std::function<void()> written = {};  // behind each write
};
class Faulty final : public SharedMedium {
 public:
  Faulty(std::shared_ptr<Medium> medium, bool mapped, std::shared_ptr<Faults> faults)
      : SharedMedium(std::move(medium), mapped), faults_(std::move(faults)) {}
  void barrier() override {
    if (faults_->barrier) throw Error(Errc::io, "the barrier failed", "Open it again.", EIO);
    SharedMedium::barrier();
  }
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    const Ticket ticket = SharedMedium::write(at, bytes, seed);
    if (faults_->written) faults_->written();
    return ticket;
  }
  std::uint64_t shrink(std::uint64_t size_bytes) override {
    if (faults_->shrink) throw Error(Errc::io, "the cut failed", "Open it again.", EIO);
    return SharedMedium::shrink(size_bytes);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (faults_->reads) throw Error(Errc::io, "the read failed", "Open it again.", EIO);
    SharedMedium::read(at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    return faults_->reads ? std::span<const std::byte>() : SharedMedium::view(extent);
  }

 private:
  std::shared_ptr<Faults> faults_;
};

// One medium by itself, in memory.
struct One {
  std::shared_ptr<Medium> medium = make_memory_medium(0, 64 * kMiB);
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  bool mapped = true;

  std::unique_ptr<Medium> opened() const {
    return std::make_unique<Faulty>(medium, mapped, faults);
  }
  Bytes bytes() const {
    Bytes all(medium->size());
    medium->read(0, all);
    return all;
  }
  void put(std::span<const std::byte> all) const {
    for (std::uint64_t at = 0; at < all.size(); at += kPageBytes) {
      medium->wait(medium->write(at, all.subspan(at, std::min(kPageBytes, all.size() - at)), 0));
    }
  }
  // Flips a bit where the value lies, at its first place from `from` on.
  void rot(const Bytes& value, std::uint64_t from = 0) const {
    Bytes all = bytes();
    const auto there = std::search(all.begin() + static_cast<std::ptrdiff_t>(from), all.end(),
                                   value.begin(), value.end());
    REQUIRE(there != all.end());
    there[5] ^= std::byte{1};
    put(all);
  }
};

// A shelf with a further medium, and what mirrors what: media that are there when it is opened.
struct Mirrored {
  One first;
  One second;
  std::map<unsigned, One> mirrors;
  bool has_second = true;

  explicit Mirrored(std::initializer_list<unsigned> mirrored) {
    for (const unsigned of : mirrored) mirrors[of] = {};
    Shelf::format(*first.medium, {.keep = 1});
  }
  Shelf open(OpenOptions options = {}) const {
    if (options.mode == Mode::append) options.mode = Mode::update;
    std::vector<std::unique_ptr<Medium>> also;
    if (has_second) also.push_back(second.opened());
    std::vector<MirrorMedium> with;
    for (const auto& [of, one] : mirrors) with.push_back({of, one.opened()});
    return Shelf::open(first.opened(), std::move(also), std::move(with), options);
  }
  // By the mirror of the first, which is lost.
  Shelf alone() const {
    std::vector<std::unique_ptr<Medium>> also;
    if (has_second) also.push_back(second.opened());
    return Shelf::open(mirrors.at(0).opened(), std::move(also), {.mode = Mode::read});
  }
};

inline bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline void assign(Shelf& shelf, std::string_view name, const Bytes& bytes,
                   std::span<const unsigned> media = {}) {
  if (!shelf.find(name)) {
    shelf.create(name, DType::uint8, std::array{static_cast<std::int64_t>(bytes.size())}, media);
  }
  shelf.find(name)->write(bytes);
}

inline Bytes read(const Shelf& shelf, std::string_view name) { return value(*shelf.find(name)); }

inline const Bytes kSmall = pattern(3000, 1);
inline const Bytes kLarge = pattern(2 * kMiB + 77, 2);

inline void flip(const One& one, std::uint64_t at) {
  Bytes all = one.bytes();
  all[at] ^= std::byte{1};
  one.put(all);
}

// Three commits, of the last of which both copies of the root are damaged on the first. Its number.
inline std::uint64_t commit_and_damage_newest(const Mirrored& mirrored) {
  for (int stamp = 1; stamp < 4; ++stamp) {
    Shelf shelf = mirrored.open();
    assign(shelf, "small", pattern(3000, stamp));
    shelf.persist(stamp);
  }
  const std::uint64_t version = mirrored.open().version();
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    flip(mirrored.first, format::root_at(format::home_of(version, 3), copy) + 100);
  }
  return version;
}

}  // namespace tensorshelf::testing
