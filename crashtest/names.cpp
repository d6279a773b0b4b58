#include "names.hpp"

#include <xxhash.h>

#include <stdexcept>
#include <utility>

namespace tensorshelf::crash {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPending = 12;  // any of 4,096 sets of them may be there

}  // namespace

Content Names::the_one(std::vector<std::byte> bytes) {
  Content& one = contents_[XXH3_64bits(bytes.data(), bytes.size())];
  if (!one) one = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return one;
}

void Names::take(const fs::path& folder, Step step) {
  if (step.gone) now_.erase(*step.gone);
  if (step.named) now_[*step.named] = step.file;
  pending_.emplace_back(folder, std::move(step));
  if (pending_.size() > kMostPending) throw std::logic_error("too many names are not synced");
}

void Names::made(const fs::path& name) {
  const Content nothing = the_one({});
  files_.push_back({nothing, nothing, nothing});
  take(name.parent_path(), {.gone = {}, .named = name, .file = files_.size() - 1});
}

void Names::linked(const fs::path& from, const fs::path& to) {
  take(to.parent_path(), {.gone = {}, .named = to, .file = now_.at(from)});
}

void Names::moved(const fs::path& from, const fs::path& to) {
  if (from.parent_path() != to.parent_path()) throw std::logic_error("moved to another folder");
  take(to.parent_path(), {.gone = from, .named = to, .file = now_.at(from)});
}

void Names::removed(const fs::path& name) {
  take(name.parent_path(), {.gone = name, .named = {}, .file = 0});
}

void Names::holds(const fs::path& name, std::vector<std::byte> now) {
  Held& held = files_.at(now_.at(name));
  std::vector<std::byte> grown = *held.synced;
  grown.resize(now.size());
  held.grown = the_one(std::move(grown));
  held.now = the_one(std::move(now));
}

void Names::synced_file(const fs::path& name) {
  Held& held = files_.at(now_.at(name));
  held.synced = held.grown = held.now;
}

void Names::synced_folder(const fs::path& folder) {
  for (const auto& [where, step] : pending_) {
    if (where != folder) continue;
    if (step.gone) kept_.erase(*step.gone);
    if (step.named) kept_[*step.named] = step.file;
  }
  std::erase_if(pending_, [&](const auto& each) { return each.first == folder; });
}

std::vector<Content> Names::may_hold(File file) const {
  const auto& [synced, now, grown] = files_.at(file);
  if (synced == now) return {now};
  return {synced, now, grown};
}

void Names::each_content(const Named& named, Named::const_iterator at, Tree& tree,
                         const std::function<void(const Tree&)>& visit) const {
  if (at == named.end()) return visit(tree);
  for (const Content& content : may_hold(at->second)) {
    tree[at->first] = content;
    each_content(named, std::next(at), tree, visit);
  }
}

void Names::each_cut(const std::function<void(const Tree&)>& visit) const {
  for (std::uint64_t there = 0; there < std::uint64_t{1} << pending_.size(); ++there) {
    Named named = kept_;
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      const Step& step = pending_[i].second;
      if ((there >> i & 1) == 0) continue;
      if (step.gone) named.erase(*step.gone);
      if (step.named) named[*step.named] = step.file;
    }
    Tree tree;
    each_content(named, named.begin(), tree, visit);
  }
}

}  // namespace tensorshelf::crash
