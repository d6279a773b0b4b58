#include "page_history.hpp"

#include <algorithm>
#include <set>

#include <tensorshelf/extent.hpp>

namespace tensorshelf::crash {

namespace {

// No page ever held these.
std::set<Loss> lost_up_to(const Log& log, std::size_t event) {
  std::set<Loss> lost;
  for (std::size_t index = 0; index <= event; ++index) {
    const auto* death = std::get_if<DeathEvent>(&log.events[index]);
    if (death) lost.insert(death->lost.begin(), death->lost.end());
  }
  return lost;
}

}  // namespace

PageHistory page_history(const Log& log, std::size_t event,
                         const std::vector<std::uint64_t>& pages) {
  PageHistory history;
  for (const std::uint64_t page : pages) history.before_last[page].assign(kPageBytes, {});
  history.without_body = history.before_last;
  PageHistory::Pages now = history.before_last;
  const std::set<Loss> lost = lost_up_to(log, event);
  for (std::size_t index = 0; index <= event; ++index) {
    if (const auto* cut = std::get_if<CutEvent>(&log.events[index])) {
      for (auto& [page, bytes] : now) {
        if (page >= cut->size_bytes) bytes.assign(kPageBytes, {});
      }
    }
    const Stretch* written = stored(log.events[index]);
    if (written == nullptr) continue;
    const bool word = is<WordEvent>(log.events[index]);
    const auto content = log.content(*written);
    for (auto& [page, bytes] : now) {
      const std::uint64_t begin = std::max(page, written->at);
      const std::uint64_t end = std::min(page + kPageBytes, written->at + content.size());
      if (begin >= end || lost.contains({index, page})) continue;
      const auto part = content.subspan(begin - written->at, end - begin);
      const auto offset = static_cast<std::ptrdiff_t>(begin - page);
      history.before_last[page] = bytes;
      std::vector<std::byte>& body = history.without_body[page];
      if (!word) body = bytes;
      if (word) std::copy(part.begin(), part.end(), body.begin() + offset);
      if (word) history.worded.insert(page);
      std::copy(part.begin(), part.end(), bytes.begin() + offset);
    }
  }
  return history;
}

}  // namespace tensorshelf::crash
