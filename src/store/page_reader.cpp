#include "store/page_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

#include "base/planted.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {
namespace {

using format::PageRef;
using format::RawPage;

constexpr std::size_t kMaxRunPages = 256;  // 1 MiB

}  // namespace

// A page that cannot be read stays zero: no checksum holds for it.
void PageReader::read_run(std::uint64_t at, std::span<RawPage> pages) {
  try {
    medium_.read(at, std::as_writable_bytes(pages));
    return;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = read_page(medium_, at + i * kPageBytes, unread_).value_or(RawPage{});
  }
}

// The given copy of every page, in their order; one read for pages that lie side by side.
std::vector<RawPage> PageReader::read_copy(const std::vector<PageNodePtr>& nodes, unsigned copy) {
  const auto place = [&](std::size_t i) { return nodes[i]->ref.at[copy]; };
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  std::vector<RawPage> pages(nodes.size());
  std::vector<RawPage> run;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::uint64_t at = place(order[begin]);
    std::size_t end = begin + 1;
    while (end < order.size() && end - begin < kMaxRunPages &&
           place(order[end]) == at + (end - begin) * kPageBytes) {
      ++end;
    }
    run.resize(end - begin);
    read_run(at, run);
    for (std::size_t i = begin; i < end; ++i) pages[order[i]] = run[i - begin];
    begin = end;
  }
  return pages;
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

// All that verifies is kept before what does not is reported: the next look is the shorter for it.
void PageReader::read_unknown(const std::vector<PageNodePtr>& nodes) {
  const std::vector<RawPage> first = read_copy(nodes, 0);
  const std::vector<RawPage> second = read_copy(nodes, 1);
  const PageRef* bad = nullptr;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const PageRef& ref = nodes[i]->ref;
    const auto good_first = format::verified(first[i], ref, seeds_);
    const auto good_second = format::verified(second[i], ref, seeds_);
    if (!good_first && !good_second) {
      if (bad == nullptr) bad = &ref;
      continue;
    }
    nodes[i]->image = good_first ? *good_first : *good_second;
    std::optional<unsigned> bad_copy;
    if (!good_first || !good_second) {
      bad_copy = good_first ? 1 : 0;
      repairs_.push_back({ref.at[*bad_copy], nodes[i]});
    }
    known_.keep({nodes[i], bad_copy});
  }
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
