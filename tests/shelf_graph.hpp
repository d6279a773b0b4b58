// All that the shelf of one rank can come to, and by which deeds and crashes, as a graph of what
// the real store did (shelf_images.hpp): open shelves, and images that crashes leave. Nodes that
// show the same, and from which the same deeds and crashes lead to the same again, are one node in
// the end: so a search over worlds deals in few. They are compared, no one says what they should
// be.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shelf_images.hpp"

namespace tensorshelf::group_test {

using ShelfId = std::uint32_t;  // a node

struct ShelfNode {
  struct Step {
    ShelfId done = 0;
    std::vector<ShelfId> within = {};  // images that a crash within it may leave
    friend auto operator<=>(const Step&, const Step&) = default;
  };

  bool open = false;
  Shown shown = {};
  // Of an open one.
  std::map<Deed, Step> deeds = {};
  std::vector<ShelfId> images = {};  // that a crash may leave, when nothing is under way
  // Of an image.
  std::vector<ShelfId> opened = {};     // for the next start: one, or none behind the last
  std::vector<ShelfId> cut_short = {};  // images that a crash within that opening may leave
  friend auto operator<=>(const ShelfNode&, const ShelfNode&) = default;
};

struct ShelfLimits {
  std::uint32_t starts = 2;
  std::uint32_t saves = 2;  // of each start
  std::uint32_t cuts = 1;   // of openings, by a crash
};

class ShelfGraph {
 public:
  struct Size {
    std::size_t found = 0;  // nodes, and how many of them were images
    std::size_t images = 0;
    std::size_t left = 0;  // when those that are alike are one
    crash::Counts counts;
  };

  ShelfGraph(ShelfImages& images, const ShelfLimits& limits);

  const ShelfNode& operator[](ShelfId id) const { return nodes_[id]; }
  ShelfId first() const { return first_; }  // new, and open for the first start
  const Size& size() const { return size_; }

 private:
  std::vector<ShelfNode> nodes_;
  ShelfId first_ = 0;
  Size size_;
};

}  // namespace tensorshelf::group_test
