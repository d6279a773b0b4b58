// Reads manifest pages: neighbours together, each checked, the second copy where the first fails.
// What cannot be read together is read page by page.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
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

// Pages that were verified in the last look at a shelf whose writer goes on, by place and checksum:
// the next look, at a version that shares most of them, reads only what changed.
class KnownPages {
 public:
  void begin_look() { earlier_ = std::exchange(now_, {}); }
  const format::Page* find(const format::PageRef& ref);  // valid until the next look begins
  void keep(const format::PageRef& ref, const format::Page& page);

 private:
  using Pages = std::map<std::pair<std::uint64_t, std::uint64_t>, format::Page>;
  Pages earlier_;
  Pages now_;
};

class PageReader {
 public:
  // `known` may be null.
  PageReader(Medium& medium, const format::Seeds& seeds, std::uint64_t capacity_bytes,
             KnownPages* known)
      : medium_(medium), seeds_(seeds), capacity_bytes_(capacity_bytes), known_(known) {}

  // One unchanged node per ref, in order. Errc::corrupt where neither copy verifies or a ref
  // points outside the heap.
  std::vector<std::unique_ptr<Manifest::Node>> read(const std::vector<format::PageRef>& refs);

  std::vector<PageRepair> take_repairs() { return std::move(repairs_); }
  const Unread& unread() const { return unread_; }

 private:
  void check_places(const format::PageRef& ref) const;
  void read_unknown(const std::vector<format::PageRef>& refs,
                    const std::vector<Manifest::Node*>& nodes);
  std::vector<format::Page> read_copy(const std::vector<format::PageRef>& refs, unsigned copy);
  void read_run(std::uint64_t at, std::span<format::Page> pages);
  bool verifies(const format::Page& page, const format::PageRef& ref) const;

  Medium& medium_;
  const format::Seeds& seeds_;
  std::uint64_t capacity_bytes_;
  KnownPages* known_;
  std::vector<PageRepair> repairs_;
  Unread unread_;
};

}  // namespace tensorshelf
