#include "store/page_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "store/unreadable.hpp"

namespace tensorshelf {
namespace {

using format::Page;
using format::PageRef;

constexpr std::size_t kMaxRunPages = 256;  // 1 MiB

}  // namespace

// A page that cannot be read stays zero: no checksum holds for it.
void PageReader::read_run(std::uint64_t at, std::span<Page> pages) {
  try {
    medium_.read(at, std::as_writable_bytes(pages));
    return;
  } catch (const Error& error) {
    if (!is_unreadable(error)) throw;
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i] = read_page(medium_, at + i * kPageBytes, unread_).value_or(Page{});
  }
}

// The given copy of every page, in the order of `refs`; one read for pages that lie side by side.
std::vector<Page> PageReader::read_copy(const std::vector<PageRef>& refs, unsigned copy) {
  std::vector<std::size_t> order(refs.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return refs[a].at[copy] < refs[b].at[copy]; });
  std::vector<Page> pages(refs.size());
  std::vector<Page> run;
  for (std::size_t begin = 0; begin < order.size();) {
    const std::uint64_t at = refs[order[begin]].at[copy];
    std::size_t end = begin + 1;
    while (end < order.size() && end - begin < kMaxRunPages &&
           refs[order[end]].at[copy] == at + (end - begin) * kPageBytes) {
      ++end;
    }
    run.resize(end - begin);
    read_run(at, run);
    for (std::size_t i = begin; i < end; ++i) pages[order[i]] = run[i - begin];
    begin = end;
  }
  return pages;
}

bool PageReader::verifies(const Page& page, const PageRef& ref) const {
  if (planted(Bug::page_checksum_ignored)) return true;
  return hash_bytes(page.bytes, seeds_.page(ref.at[0])) == ref.checksum;
}

void PageReader::check_places(const PageRef& ref) const {
  for (std::uint64_t at : ref.at) {
    if (at % kPageBytes != 0 || at < format::kHeapAt || at > capacity_bytes_ - kPageBytes) {
      throw Error(Errc::corrupt, fmt::format("a manifest page is said to lie at {}", at), "");
    }
  }
}

std::vector<std::unique_ptr<Manifest::Node>> PageReader::read(const std::vector<PageRef>& refs) {
  for (const PageRef& ref : refs) check_places(ref);
  std::vector<std::unique_ptr<Manifest::Node>> nodes;
  nodes.reserve(refs.size());
  std::vector<PageRef> unknown;
  std::vector<Manifest::Node*> to_read;
  for (const PageRef& ref : refs) {
    nodes.push_back(std::make_unique<Manifest::Node>());
    nodes.back()->ref = ref;
    if (const Page* page = known_ == nullptr ? nullptr : known_->find(ref)) {
      nodes.back()->image = *page;
    } else {
      unknown.push_back(ref);
      to_read.push_back(nodes.back().get());
    }
  }
  read_unknown(unknown, to_read);
  return nodes;
}

// All that verifies is kept before what does not is reported: the next look is the shorter for it.
void PageReader::read_unknown(const std::vector<PageRef>& refs,
                              const std::vector<Manifest::Node*>& nodes) {
  const std::vector<Page> first = read_copy(refs, 0);
  const std::vector<Page> second = read_copy(refs, 1);
  const PageRef* bad = nullptr;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const bool first_good = verifies(first[i], refs[i]);
    const bool second_good = verifies(second[i], refs[i]);
    if (!first_good && !second_good) {
      if (bad == nullptr) bad = &refs[i];
      continue;
    }
    nodes[i]->image = first_good ? first[i] : second[i];
    if (known_ != nullptr) known_->keep(refs[i], nodes[i]->image);
    if (first_good != second_good) {
      repairs_.push_back({refs[i].at[first_good ? 1 : 0], std::make_shared<Page>(nodes[i]->image)});
    }
  }
  if (bad == nullptr) return;
  throw Error(Errc::corrupt,
              fmt::format("both copies of a manifest page, at {} and {}, fail their checksum{}",
                          bad->at[0], bad->at[1], unread_.reason()),
              "", unread_.os_error);
}

const Page* KnownPages::find(const PageRef& ref) {
  const std::pair key(ref.at[0], ref.checksum);
  if (auto node = earlier_.extract(key)) return &now_.insert(std::move(node)).position->second;
  const auto there = now_.find(key);
  return there == now_.end() ? nullptr : &there->second;
}

void KnownPages::keep(const PageRef& ref, const Page& page) {
  now_.insert_or_assign({ref.at[0], ref.checksum}, page);
}

}  // namespace tensorshelf
