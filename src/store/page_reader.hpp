// Reads manifest pages: neighbours together, each checked, the second copy where the first fails.
// What cannot be read together is read page by page.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/format.hpp"
#include "store/manifest.hpp"
#include "store/root_scan.hpp"

namespace tensorshelf {

class Medium;

// A copy that failed its checksum or could not be read, and the good page to put there.
struct PageRepair {
  std::uint64_t at;
  std::shared_ptr<const format::Page> page;
};

class PageReader {
 public:
  PageReader(Medium& medium, const format::Seeds& seeds, std::uint64_t capacity_bytes)
      : medium_(medium), seeds_(seeds), capacity_bytes_(capacity_bytes) {}

  // One unchanged node per ref, in order. Errc::corrupt where neither copy verifies or a ref
  // points outside the heap.
  std::vector<std::unique_ptr<Manifest::Node>> read(const std::vector<format::PageRef>& refs);

  std::vector<PageRepair> take_repairs() { return std::move(repairs_); }
  const Unread& unread() const { return unread_; }

 private:
  void check_places(const format::PageRef& ref) const;
  std::vector<format::Page> read_copy(const std::vector<format::PageRef>& refs, unsigned copy);
  void read_run(std::uint64_t at, std::span<format::Page> pages);
  bool verifies(const format::Page& page, const format::PageRef& ref) const;

  Medium& medium_;
  const format::Seeds& seeds_;
  std::uint64_t capacity_bytes_;
  std::vector<PageRepair> repairs_;
  Unread unread_;
};

}  // namespace tensorshelf
