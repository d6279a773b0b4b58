#include "store/io/root_scan.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::RawPage;
using format::Root;

namespace {

bool newer(const Root& a, const Root& b) {
  const auto key = [](const Root& r) {
    return std::pair(format::word_version(r.word), r.incarnation);
  };
  return key(a) > key(b);
}

}  // namespace

std::vector<Root> RootScan::candidates() const {
  std::vector<Root> found;
  for (const auto& home : roots) {
    const Root* best = nullptr;
    for (const auto& copy : home) {
      if (copy && (best == nullptr || newer(*copy, *best))) best = &*copy;
    }
    if (best != nullptr) found.push_back(*best);
  }
  std::sort(found.begin(), found.end(), newer);
  return found;
}

bool RootScan::holds(std::uint64_t version) const {
  const auto& home = roots[format::home_of(version, slot_count)];
  return std::any_of(home.begin(), home.end(), [version](const auto& root) {
    return root && format::word_version(root->word) >= version;
  });
}

bool RootScan::wiped(std::uint64_t version, unsigned copy) const {
  const unsigned home = format::home_of(version, slot_count);
  return blank[home][copy] && words[home][copy] == format::wiped_home_word(version, slot_count);
}

bool RootScan::leaves_unflipped(std::uint64_t version, unsigned copy) const {
  const auto& attempt = described[format::home_of(version, slot_count)][copy];
  return attempt && format::word_version(attempt->word) == version;
}

bool RootScan::clears(std::uint64_t version, unsigned copy) const {
  const auto& root = roots[format::home_of(version, slot_count)][copy];
  if (root) return format::word_version(root->word) < version;
  return leaves_unflipped(version, copy) || wiped(version, copy);
}

bool RootScan::clears_home(std::uint64_t version) const {
  const unsigned home = format::home_of(version, slot_count);
  unsigned old_words = 0;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (clears(version, copy)) return true;
    const std::uint64_t word = words[home][copy];
    if (word == 0) continue;
    if (version < slot_count && word == format::kUnusedHomeWord) return true;
    old_words += format::word_version(word) + slot_count == version;
  }
  return old_words == kCopies;  // one may be a newer word with a flipped bit
}

std::vector<std::uint64_t> RootScan::lost_beyond(std::uint64_t newest) const {
  std::vector<std::uint64_t> lost;
  bool never_flipped = false;  // nor what would have come after it
  for (std::uint64_t version = newest + 1; version < newest + slot_count; ++version) {
    const bool there = holds(version);
    if (!there && clears_home(version)) {
      never_flipped = true;
    } else if (there || !never_flipped) {
      lost.push_back(version);
    }
  }
  return lost;  // the good copy in the home of `newest` tells all about that one
}

// What clears() takes for innocent: under this word an attempt describes its root.
format::Page wiped_home(std::uint64_t version, unsigned slot_count) {
  Root wiped{};
  wiped.word = format::wiped_home_word(version, slot_count);
  return format::as_page(wiped);
}

std::optional<Root> RootScan::prepared(std::uint64_t newest) const {
  if (marks.lost() || marks.newest().version != newest + 1) return std::nullopt;
  const unsigned home = format::home_of(newest + 1, slot_count);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (mark_means(home, copy)) return described[home][copy];
  }
  return std::nullopt;
}

// A home that holds anything whole, or was wiped, lost nothing: then the mark is left over.
bool RootScan::prepared_is_lost(std::uint64_t newest) const {
  if (marks.lost() || marks.newest().version != newest + 1) return false;
  const unsigned home = format::home_of(newest + 1, slot_count);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (roots[home][copy] || described[home][copy] || blank[home][copy]) return false;
  }
  return true;
}

bool RootScan::mark_names(unsigned home, unsigned copy) const {
  const auto& attempt = described[home][copy];
  if (!attempt || marks.lost()) return false;
  const format::PreparedMark& mark = marks.newest();
  return attempt->incarnation == mark.incarnation && attempt->sequence == mark.sequence;
}

bool RootScan::mark_means(unsigned home, unsigned copy) const {
  return mark_names(home, copy) &&
         format::word_version(described[home][copy]->word) == marks.newest().version;
}

bool RootScan::attempt_left(std::uint64_t newest) const {
  const unsigned home = format::home_of(newest + 1, slot_count);
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    if (!roots[home][copy] && !blank[home][copy] && !mark_names(home, copy)) return true;
  }
  return false;
}

bool RootScan::take_lost(const RootScan& mirror) {
  const auto own = candidates();
  const auto theirs = mirror.candidates();
  if (own.empty() || theirs.empty()) return false;
  const std::uint64_t newest = format::word_version(own.front().word);
  // From there both went on: else it is another's.
  const auto shared = [&](const auto& root) {
    return root && format::is_same_root(*root, own.front());
  };
  if (std::ranges::none_of(mirror.roots[format::home_of(own.front())], shared)) return false;
  RootScan whole = *this;
  for (const Root& root : theirs) {
    const std::uint64_t version = format::word_version(root.word);
    if (holds(version)) continue;
    if (version > newest && clears_home(version)) return false;
    if (version < newest && !may_have_lost(version, theirs.front())) continue;
    if (tells_of_another(root) && !planted(Bug::other_history_taken)) return false;
    const unsigned home = format::home_of(root);
    const auto& copies = mirror.roots[home];
    const unsigned copy = copies[0] && copies[0]->word == root.word ? 0 : 1;
    whole.roots[home][copy] = root;
    whole.mirrored[home][copy] = true;
    if (planted(Bug::one_mirrored_root)) break;
  }
  const bool taken = whole.mirrored != mirrored;
  *this = std::move(whole);
  return taken;
}

bool RootScan::tells_of_another(const Root& root) const {
  const unsigned home = format::home_of(root);
  const auto& there = times[home];
  const bool named = std::ranges::find(words[home], root.word) != words[home].end();
  return named && std::ranges::find(there, root.time_ns) == there.end();
}

bool RootScan::may_have_lost(std::uint64_t version, const Root& newest) const {
  const std::uint64_t next = version + slot_count;  // that of its home
  if (next <= format::word_version(newest.word)) return false;
  if (version < newest.floor) return !clears_home(next);
  return !clears(next, 0) && !clears(next, 1);  // nobody wrote to the home of a retained version
}

namespace {

// The attempt that a page describes under the word that lay there before, if it does. That word has
// another tag: under its own one it was flipped, and a bit of the number is damaged.
std::optional<Root> read_unflipped(const RawPage& page, const format::Seeds& seeds,
                                   const format::RootPlace& place) {
  const std::uint64_t word = format::root_word(page);
  if (word == 0 && !planted(Bug::zero_word_taken_for_old)) {
    return std::nullopt;  // lies in no home, so that it was not there before either
  }
  const std::uint64_t version =
      word == format::kUnusedHomeWord ? place.home : format::word_version(word) + place.slot_count;
  if (version >= format::kMaxVersion) return std::nullopt;
  auto root = format::read_described(page, version, seeds, place);
  const bool own = root && format::word_tag(root->word) == format::word_tag(word);
  if (own && !planted(Bug::own_word_taken_for_old)) return std::nullopt;
  return root;
}

}  // namespace

RootScan scan_homes(Medium& medium, std::uint64_t from, const format::Seeds& seeds,
                    unsigned slot_count) {
  RootScan scan;
  scan.slot_count = slot_count;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const auto pages = read_pages(medium, from + format::root_at(0, copy), slot_count, scan.unread);
    for (unsigned home = 0; home < slot_count; ++home) {
      const auto& page = pages[home];
      if (!page) continue;
      scan.roots[home][copy] = format::read_root(*page, seeds, {home, copy, slot_count});
      scan.words[home][copy] = format::root_word(*page);
      scan.times[home][copy] = format::root_time(*page);
      if (!scan.roots[home][copy]) {
        scan.described[home][copy] = read_unflipped(*page, seeds, {home, copy, slot_count});
      }
      scan.blank[home][copy] = format::blank_but_for_its_word(*page);
    }
  }
  return scan;
}

RootScan scan_roots(Medium& medium, const format::Seeds& seeds, unsigned slot_count) {
  RootScan scan = scan_homes(medium, 0, seeds, slot_count);
  scan.marks = read_marks(medium, seeds);
  return scan;
}

bool scan_again(Medium& medium, const format::Seeds& seeds, RootScan& scan) {
  RootScan now = scan_homes(medium, 0, seeds, scan.slot_count);
  now.marks = scan.marks;
  const bool moved = now.words != scan.words;
  if (moved) scan = std::move(now);
  return moved;
}

PerHome<std::uint64_t> version_words(Medium& medium, unsigned slot_count) {
  PerHome<std::uint64_t> words = {};
  std::vector<format::RawPage> pages(slot_count);
  Unread unread;
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    read_run(medium, format::root_at(0, copy), pages, unread);
    for (unsigned home = 0; home < slot_count; ++home) {
      words[home][copy] = format::root_word(pages[home]);
    }
  }
  return words;
}

}  // namespace tensorshelf
