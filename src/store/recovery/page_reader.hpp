// Reads manifest pages: neighbours together, and page by page what cannot be read so. Both copies
// are read and checked; for who mends nothing, the second only where the first fails. Where there
// are many pages several threads read and check them: a drive answers several requests in little
// more time than one.
//
// Where both copies fail, and the medium has a mirror with a good copy, that one serves, and counts
// as good. So this opening writes the other copy anew, on both media, and the next opening this
// one: what the mirror alone has is never written over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "format/format.hpp"
#include "store/io/root_scan.hpp"
#include "store/manifest/tree.hpp"

namespace tensorshelf {

class FurtherMedia;
class Medium;

// A copy that failed its checksum or could not be read, and the good page to put there.
struct PageRepair {
  std::uint64_t at;
  PageNodePtr page;
};

// Pages that were verified, by place and checksum: versions share those that are the same, and of a
// shelf whose writer goes on, the next look reads only what changed since the last one.
class KnownPages {
 public:
  // Who mends nothing does with one that is good.
  enum class Copies { one, both };
  explicit KnownPages(Copies copies = Copies::both) : copies_(copies) {}

  Copies copies() const { return copies_; }
  void begin_look() { earlier_ = std::exchange(now_, {}); }
  struct Known {
    PageNodePtr page;
    std::optional<unsigned> bad_copy = {};  // found so: whoever comes to stand on the page mends it
  };
  const Known* find(const format::PageRef& ref);  // null where it is not known
  void keep(Known known);

 private:
  using Pages = std::map<std::pair<std::uint64_t, std::uint64_t>, Known>;
  Copies copies_;
  Pages earlier_;
  Pages now_;
};

class PageReader {
 public:
  // `further`: whose mirror of the medium serves where both copies fail; null: there is none.
  PageReader(Medium& medium, const format::Seeds& seeds, std::uint64_t capacity_bytes,
             KnownPages& known, const FurtherMedia* further)
      : medium_(medium),
        seeds_(seeds),
        capacity_bytes_(capacity_bytes),
        known_(known),
        further_(further) {}

  // One page per ref, in order. Errc::corrupt where neither copy verifies or a ref points outside
  // the heap.
  std::vector<PageNodePtr> read(const std::vector<format::PageRef>& refs);

  std::vector<PageRepair> take_repairs() { return std::move(repairs_); }
  const Unread& unread() const { return unread_; }

 private:
  void check_places(const format::PageRef& ref) const;
  // One copy of some pages as it was read: in the order of its places.
  struct Copy {
    std::vector<std::size_t> order;
    std::vector<format::RawPage> pages;
    std::vector<std::size_t> position;  // of each page, among these
    const format::RawPage& of(std::size_t page) const { return pages[position[page]]; }
  };
  // What one thread makes of some pages.
  struct Part {
    std::span<const PageNodePtr> nodes;
    std::vector<std::array<bool, format::kCopies>> good = {};  // of each
    Unread unread = {};
  };
  void read_unknown(std::vector<PageNodePtr> nodes);
  bool read_first(Part& part) const;
  void read_part(Part& part) const;
  void read_mirrored(PageNode& page, std::array<bool, format::kCopies>& good) const;
  void take_part(const Part& part, const format::PageRef*& bad);
  void read_copy(Part& part, unsigned copy, Copy& into) const;
  unsigned threads() const;

  Medium& medium_;
  const format::Seeds& seeds_;
  std::uint64_t capacity_bytes_;
  KnownPages& known_;
  const FurtherMedia* further_;
  std::vector<PageRepair> repairs_;
  Unread unread_;
};

}  // namespace tensorshelf
