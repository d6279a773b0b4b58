// A shelf at version 1, and what becomes version 2.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kept_versions.hpp"

namespace tensorshelf::testing {

inline constexpr std::uint64_t kBegunBytes = 2 * kMiB + 1000;

// A shelf at version 1, of `old` and w as pattern(1).
struct Begun {
  Kept kept;
  Shelf shelf;
  TensorRef w;

  explicit Begun(const Shape& shape)
      : kept(shape), shelf(kept.open()), w(make(shelf, "w", kBegunBytes)) {
    w.write(pattern(kBegunBytes, 1));
    make(shelf, "old", 100).write(pattern(100, 1));
    shelf.persist(10);
  }
  void reopen() {
    shelf.close();
    shelf = kept.open();
    w = shelf.find("w").value();
  }
  // Version 2: w changed in its last chunk, `old` gone, `made` there.
  void change() {
    w.write(pattern(500, 2), 2 * kMiB + 100);
    shelf.erase("old");
    make(shelf, "made", 5000).write(pattern(5000, 2));
  }
  static std::vector<std::byte> changed() {
    auto bytes = pattern(kBegunBytes, 1);
    const auto part = pattern(500, 2);
    std::copy(part.begin(), part.end(), bytes.begin() + 2 * kMiB + 100);
    return bytes;
  }
  void check_first(const Shelf& there) const {
    CHECK(there.version() == 1);
    CHECK(there.step() == 10);
    CHECK(there.names() == std::vector<std::string>{"old", "w"});
    CHECK((value(there.find("w").value()) == pattern(kBegunBytes, 1)));
    CHECK((value(there.find("old").value()) == pattern(100, 1)));
  }
  void check_second(const Shelf& there) const {
    CHECK(there.version() == 2);
    CHECK(there.step() == 20);
    CHECK(there.names() == std::vector<std::string>{"made", "w"});
    CHECK((value(there.find("w").value()) == changed()));
    CHECK((value(there.find("made").value()) == pattern(5000, 2)));
  }
};

}  // namespace tensorshelf::testing
