#include "shelf_graph.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace tensorshelf::group_test {
namespace {

// Finds all nodes, as they are.
class Finder {
 public:
  Finder(ShelfImages& images, const ShelfLimits& limits) : images_(images), limits_(limits) {}

  ShelfId first() { return opened(ShelfImages::kNew, 1); }
  std::vector<ShelfNode> nodes() && { return std::move(nodes_); }

 private:
  ShelfId add(bool open, const Shown& shown) {
    nodes_.push_back({.open = open, .shown = shown});
    return static_cast<ShelfId>(nodes_.size() - 1);
  }

  // An image that waits for a start; it may be cut short so often.
  ShelfId waiting(ImageId image, std::uint32_t start, std::uint32_t cuts) {
    const std::tuple key{image, start, cuts};
    if (const auto known = waiting_.find(key); known != waiting_.end()) return known->second;
    const ShelfId node = add(false, images_.shown(image));
    waiting_.emplace(key, node);
    if (start > limits_.starts || !nodes_[node].shown.wrong.empty()) return node;
    const std::vector<ShelfId> opened_as = {opened(image, start)};
    nodes_[node].opened = opened_as;
    if (cuts > 0) {
      nodes_[node].cut_short = all_waiting(images_.run(image, {}).within, start, cuts - 1);
    }
    return node;
  }

  std::vector<ShelfId> all_waiting(const std::vector<ImageId>& images, std::uint32_t start,
                                   std::uint32_t cuts) {
    std::vector<ShelfId> nodes;
    for (const ImageId image : images) nodes.push_back(waiting(image, start, cuts));
    return nodes;
  }

  ShelfId opened(ImageId image, std::uint32_t start) {
    const auto [at, fresh] = opened_.try_emplace({image, start});
    if (!fresh) return at->second;
    const Done& done = images_.run(image, {});
    const ShelfId node = add(true, done.shown);
    opened_[{image, start}] = node;
    nodes_[node].images = all_waiting(done.behind, start + 1, limits_.cuts);
    std::vector<Deed> deeds;
    go_on(node, image, start, deeds);
    return node;
  }

  // Whatever this start may do next.
  void go_on(ShelfId node, ImageId image, std::uint32_t start, std::vector<Deed>& before) {
    const Shown shown = nodes_[node].shown;
    if (!shown.wrong.empty()) return;
    std::vector<Deed> next;
    if (shown.prepared) {
      next = {{Deed::Kind::commit}, {Deed::Kind::abandon}};
    } else {
      std::uint32_t count = 1;
      for (const Deed& deed : before) count = std::max(count, deed.save.count + 1);
      for (; count <= limits_.saves; ++count) next.push_back({Deed::Kind::prepare, {start, count}});
    }
    for (const Deed& deed : next) {
      before.push_back(deed);
      const Done& done = images_.run(image, before);
      ShelfNode::Step step{.done = add(true, done.shown)};
      step.within = all_waiting(done.within, start + 1, limits_.cuts);
      nodes_[step.done].images = all_waiting(done.behind, start + 1, limits_.cuts);
      const ShelfId then = step.done;
      nodes_[node].deeds.emplace(deed, std::move(step));
      go_on(then, image, start, before);
      before.pop_back();
    }
  }

  ShelfImages& images_;
  const ShelfLimits& limits_;
  std::vector<ShelfNode> nodes_;
  std::map<std::tuple<ImageId, std::uint32_t, std::uint32_t>, ShelfId> waiting_;
  std::map<std::pair<ImageId, std::uint32_t>, ShelfId> opened_;
};

// The node with the numbers of classes in the place of those of nodes.
ShelfNode by_class(ShelfNode node, const std::vector<ShelfId>& class_of) {
  const auto all = [&](std::vector<ShelfId>& ids) {
    for (ShelfId& id : ids) id = class_of[id];
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  };
  for (auto& [deed, step] : node.deeds) {
    step.done = class_of[step.done];
    all(step.within);
  }
  all(node.images);
  all(node.opened);
  all(node.cut_short);
  return node;
}

// Splits classes until all nodes of each lead to the same ones (Hopcroft and Karp's equivalence,
// for sets of successors: Kanellakis and Smolka 1983). All are one class to begin with.
std::vector<ShelfId> classes_of(const std::vector<ShelfNode>& nodes) {
  std::vector<ShelfId> class_of(nodes.size(), 0);
  for (std::size_t count = nodes.empty() ? 0 : 1;;) {
    std::map<ShelfNode, ShelfId> numbers;
    std::vector<ShelfId> next;
    for (const ShelfNode& node : nodes) {
      const auto number = static_cast<ShelfId>(numbers.size());
      next.push_back(numbers.try_emplace(by_class(node, class_of), number).first->second);
    }
    class_of = std::move(next);
    if (numbers.size() == count) return class_of;
    count = numbers.size();
  }
}

}  // namespace

ShelfGraph::ShelfGraph(ShelfImages& images, const ShelfLimits& limits) {
  Finder finder(images, limits);
  const ShelfId first = finder.first();
  const std::vector<ShelfNode> found = std::move(finder).nodes();
  const std::vector<ShelfId> class_of = classes_of(found);
  std::map<ShelfId, ShelfNode> classes;
  for (std::size_t i = 0; i < found.size(); ++i) {
    classes.try_emplace(class_of[i], by_class(found[i], class_of));
  }
  for (auto& [id, node] : classes) nodes_.push_back(std::move(node));
  first_ = class_of[first];
  size_ = {found.size(), images.distinct(), nodes_.size(), images.counts()};
}

}  // namespace tensorshelf::group_test
