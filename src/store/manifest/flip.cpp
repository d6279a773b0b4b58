#include "store/manifest/flip.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <tensorshelf/medium.hpp>

#include "base/planted.hpp"

namespace tensorshelf {

using format::kCopies;
using format::PageRef;
using format::Root;

std::uint64_t Homes::next_sequence(const Root& over, std::uint64_t incarnation,
                                   std::uint64_t after) const {
  const std::uint64_t version = format::word_version(over.word) + 1;
  const auto& old = words[format::home_of(version, format::slot_count(over))];
  for (std::uint64_t sequence = after + 1;; ++sequence) {
    const std::uint64_t tag =
        format::word_tag(format::attempt_word(version, incarnation, sequence));
    const bool there = std::any_of(old.begin(), old.end(), [tag](std::uint64_t word) {
      return format::word_tag(word) == tag;
    });
    const bool any = planted(Bug::tag_of_old_word) || planted(Bug::tag_by_incarnation);
    if (!there || any) return sequence;
  }
}

namespace {

class Writer {
 public:
  explicit Writer(const WriteTarget& target) : target_(target) {}

  // To fresh places: what other versions name stays as it is (I3). Each copy goes out in rising
  // order, so that a block medium joins them.
  void pages(const Tree& tree, unsigned level) {
    std::vector<Tree::Changed> changed = tree.changed(level);
    for (const Tree::Changed& page : changed) place(*page.node);
    std::vector<format::Page> directories;
    for (const Tree::Changed& page : changed) {
      if (level > 0) directories.push_back(Tree::directory_image(page, level));
    }
    std::vector<std::size_t> order(changed.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return changed[a].node->ref.at[copy] < changed[b].node->ref.at[copy];
      });
      for (const std::size_t i : order) {
        PageRef& ref = changed[i].node->ref;
        const auto& image = level > 0 ? directories[i] : changed[i].node->image;
        ref.checksum = write(ref.at[copy], image, target_.seeds.page(ref.at[0]));
      }
    }
  }

  void root_copies(Root root) {
    const unsigned home = format::home_of(root);
    for (unsigned copy = 0; copy < kCopies; ++copy) {
      format::seal_root(root, target_.seeds, copy);
      format::Page page = format::as_page(root);
      if (!planted(Bug::word_with_body)) {
        format::set_root_word(page, target_.homes.words[home][copy]);
      }
      write(format::root_at(home, copy), page, 0);
    }
  }

  const Described& described() const { return described_; }

 private:
  void place(PageNode& node) {
    if (is_placed_as_planted(node)) return;
    node.heap = target_.heap;  // first: what is taken is given back, also where this throws
    for (unsigned copy = 0; copy < kCopies; ++copy)
      node.ref.at[copy] = target_.heap->take_page(copy);
  }

  bool is_placed_as_planted(PageNode& node) {
    if (planted(Bug::page_reused_early) && node.over != nullptr && node.over->heap) {
      for (const std::uint64_t at : node.over->ref.at) target_.heap->release_page(at);
      node.over->heap = nullptr;
    }
    if (!planted(Bug::page_in_place) || node.over == nullptr) return false;
    node.heap = std::exchange(node.over->heap, nullptr);
    node.ref = node.over->ref;
    return true;
  }

  std::uint64_t write(std::uint64_t at, const format::Page& page, std::uint64_t seed) {
    const Ticket ticket = target_.medium.write(at, page.bytes(), seed);
    described_.last_ticket = std::max(described_.last_ticket, ticket.sequence);
    described_.metadata_bytes += kPageBytes;
    return ticket.checksum;
  }

  const WriteTarget& target_;
  Described described_;
};

}  // namespace

Described describe(Version& version, const WriteTarget& target) {
  Writer writer(target);
  for (unsigned level = 0; level <= version.tree.levels(); ++level) {
    writer.pages(version.tree, level);
  }
  version.tree.fill_root(version.root);
  writer.root_copies(version.root);
  return writer.described();
}

void flip(const Version& version, Medium& medium) {
  const unsigned home = format::home_of(version.root);
  for (unsigned copy = 0; copy < (planted(Bug::one_copy_flipped) ? 1 : kCopies); ++copy) {
    medium.store_word(format::root_at(home, copy), version.root.word);  // COMMIT POINT
  }
}

}  // namespace tensorshelf
