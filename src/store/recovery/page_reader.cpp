#include "store/recovery/page_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

#include "base/planted.hpp"
#include "base/side_by_side.hpp"
#include "store/media_set/further_media.hpp"

namespace tensorshelf {
namespace {

using format::PageRef;
using format::RawPage;

// 1 MiB of each copy: what is read is checked while the caches have it.
constexpr std::size_t kMaxRunPages = 256;
constexpr unsigned kDriveThreads = 8;  // however few the cores: most of their time they wait

}  // namespace

// One read for pages that lie side by side.
void PageReader::read_copy(Part& part, unsigned copy, Copy& into) const {
  const auto& nodes = part.nodes;
  const auto place = [&](std::size_t i) { return nodes[i]->ref.at[copy]; };
  auto& order = into.order;
  order.resize(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  into.pages.resize(nodes.size());
  into.position.resize(nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) into.position[order[i]] = i;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::uint64_t at = place(order[begin]);
    std::size_t end = begin + 1;
    while (end < order.size() && place(order[end]) == at + (end - begin) * kPageBytes) ++end;
    read_run(medium_, at, std::span(into.pages).subspan(begin, end - begin), part.unread);
    begin = end;
  }
}

void PageReader::check_places(const PageRef& ref) const {
  for (std::uint64_t at : ref.at) {
    if (at % kPageBytes != 0 || at < format::kHeapAt || at > capacity_bytes_ - kPageBytes) {
      throw Error(Errc::corrupt, fmt::format("a manifest page is said to lie at {}", at), "");
    }
  }
}

std::vector<PageNodePtr> PageReader::read(const std::vector<PageRef>& refs) {
  for (const PageRef& ref : refs) check_places(ref);
  std::vector<PageNodePtr> pages;
  pages.reserve(refs.size());
  std::vector<PageNodePtr> unknown;
  for (const PageRef& ref : refs) {
    if (const auto* known = known_.find(ref)) {
      pages.push_back(known->page);
      const auto bad = planted(Bug::bad_copy_told_once) ? std::nullopt : known->bad_copy;
      if (bad) repairs_.push_back({ref.at[*bad], known->page});
      continue;
    }
    pages.push_back(std::make_shared<PageNode>());
    pages.back()->ref = ref;
    unknown.push_back(pages.back());
  }
  read_unknown(unknown);
  return pages;
}

// Whether the first copy of each verifies, which is enough for who mends nothing.
bool PageReader::read_first(Part& part) const {
  if (known_.copies() == KnownPages::Copies::both) return false;
  Copy first;
  read_copy(part, 0, first);
  for (std::size_t i = 0; i < part.nodes.size(); ++i) {
    PageNode& page = *part.nodes[i];
    if (!format::take_verified(first.of(i), page.ref, seeds_, page.image)) return false;
  }
  part.good.assign(part.nodes.size(), {true, true});
  return true;
}

void PageReader::read_part(Part& part) const {
  if (read_first(part)) return;
  Copy first, second;
  read_copy(part, 0, first);
  read_copy(part, 1, second);
  part.good.reserve(part.nodes.size());
  for (std::size_t i = 0; i < part.nodes.size(); ++i) {
    const PageRef& ref = part.nodes[i]->ref;
    format::Page& image = part.nodes[i]->image;
    const bool first_good = format::take_verified(first.of(i), ref, seeds_, image);
    const bool second_good = first_good ? format::verifies(second.of(i), ref, seeds_)
                                        : format::take_verified(second.of(i), ref, seeds_, image);
    part.good.push_back({first_good, second_good});
    if (!first_good && !second_good) read_mirrored(*part.nodes[i], part.good.back());
  }
}

void PageReader::read_mirrored(PageNode& page, std::array<bool, format::kCopies>& good) const {
  const auto mirror = further_ != nullptr ? further_->mirror_of_first() : std::nullopt;
  if (!mirror || planted(Bug::mirror_has_no_pages)) return;
  Unread ignored;
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    if (!mirror->has(page.ref.at[copy], kPageBytes)) continue;
    const auto raw = read_page(mirror->medium, mirror->from + page.ref.at[copy], ignored);
    good[copy] = raw && format::take_verified(*raw, page.ref, seeds_, page.image);
    if (good[copy]) return;
  }
}

void PageReader::take_part(const Part& part, const PageRef*& bad) {
  unread_.note(part.unread);
  for (std::size_t i = 0; i < part.nodes.size(); ++i) {
    const PageNodePtr& node = part.nodes[i];
    const auto [first_good, second_good] = part.good[i];
    if (!first_good && !second_good) {
      if (bad == nullptr) bad = &node->ref;
      continue;
    }
    std::optional<unsigned> bad_copy;
    if (!first_good || !second_good) {
      bad_copy = first_good ? 1 : 0;
      repairs_.push_back({node->ref.at[*bad_copy], node});
    }
    known_.keep({node, bad_copy});
  }
}

unsigned PageReader::threads() const {
  return medium_.promises().mapped ? default_threads() : kDriveThreads;
}

// All that verifies is kept before what does not is reported: the next look is the shorter for it.
void PageReader::read_unknown(std::vector<PageNodePtr> nodes) {
  const auto earlier = [](const auto& a, const auto& b) { return a->ref.at[0] < b->ref.at[0]; };
  std::sort(nodes.begin(), nodes.end(), earlier);
  std::vector<Part> parts;
  for (std::size_t begin = 0; begin < nodes.size(); begin += kMaxRunPages) {
    const std::size_t size = std::min(kMaxRunPages, nodes.size() - begin);
    parts.push_back({std::span(nodes).subspan(begin, size)});
  }
  auto read = [&](std::size_t part) { read_part(parts[part]); };
  sharing.share(parts.size() > 1 ? threads() : 1, parts.size(), PartJob(read));
  const PageRef* bad = nullptr;
  for (const Part& part : parts) take_part(part, bad);
  if (bad == nullptr) return;
  throw Error(Errc::corrupt,
              fmt::format("both copies of a manifest page, at {} and {}, fail their checksum{}",
                          bad->at[0], bad->at[1], unread_.reason()),
              "", unread_.os_error);
}

const KnownPages::Known* KnownPages::find(const PageRef& ref) {
  const std::pair key(ref.at[0], ref.checksum);
  auto there = now_.find(key);
  if (there == now_.end()) {
    auto node = earlier_.extract(key);
    if (!node) return nullptr;
    there = now_.insert(std::move(node)).position;
  }
  return there->second.page->ref == ref ? &there->second : nullptr;
}

void KnownPages::keep(Known known) {
  const PageRef& ref = known.page->ref;
  now_.insert_or_assign({ref.at[0], ref.checksum}, std::move(known));
}

}  // namespace tensorshelf
