#include "images.hpp"

#include <algorithm>

namespace tensorshelf::crash {
namespace {

class Planner {
 public:
  Planner(const PlanRequest& request, Rng& rng)
      : request_(request), units_(request.window.units()), rng_(rng) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (units_[i].is_size || request.reads.meets(units_[i].at, units_[i].size_bytes)) {
        read_.push_back(i);
      }
    }
  }

  ImagePlan run() {
    if (units_.empty()) return {{Image{}}, true};
    plan_.exhaustive = read_.size() < 20 && subsets() <= request_.cap;
    if (plan_.exhaustive) {
      every_subset();
    } else {
      by_pattern();
      by_chance();
    }
    return std::move(plan_);
  }

 private:
  std::size_t subsets() const {
    std::size_t count = 1;
    for (const std::size_t i : read_) count *= request_.window.trashable(units_[i]) ? 3 : 2;
    return count;
  }

  // `image` decides on the units that are read; the others follow here.
  void add(Image image) {
    if (request_.must_land_from < units_.size() &&
        std::all_of(image.begin() + static_cast<std::ptrdiff_t>(request_.must_land_from),
                    image.end(), [](Landing it) { return it == Landing::missing; })) {
      return;
    }
    plan_.images.push_back(std::move(image));
  }

  Image background() {
    Image image(units_.size(), Landing::missing);
    const std::uint64_t kind = rng_.below(3);
    if (kind == 0) return image;
    for (auto& landing : image) {
      if (kind == 1 || rng_.one_in(2)) landing = Landing::landed;
    }
    return image;
  }

  void every_subset() {
    const std::size_t count = subsets();
    for (std::size_t number = 0; number < count; ++number) {
      Image image = background();
      std::size_t rest = number;
      for (const std::size_t i : read_) {
        const std::size_t ways = request_.window.trashable(units_[i]) ? 3 : 2;
        image[i] = static_cast<Landing>(rest % ways);
        rest /= ways;
      }
      add(std::move(image));
    }
  }

  template <typename Decide>
  void pattern(Decide decide) {
    if (plan_.images.size() >= request_.cap) return;
    Image image = background();
    for (const std::size_t i : read_) image[i] = decide(i);
    add(std::move(image));
  }

  static Landing landed_if(bool condition) {
    return condition ? Landing::landed : Landing::missing;
  }

  Landing trashed(std::size_t i, Landing otherwise) const {
    return request_.window.trashable(units_[i]) ? Landing::trashed : otherwise;
  }

  // Single units are shuffled, so that a cap does not always cut off the same ones.
  void by_pattern() {
    pattern([](std::size_t) { return Landing::landed; });
    pattern([](std::size_t) { return Landing::missing; });
    pattern([&](std::size_t i) { return trashed(i, Landing::landed); });
    std::vector<std::uint32_t> events;
    for (const std::size_t i : read_) events.push_back(units_[i].event);
    events.erase(std::unique(events.begin(), events.end()), events.end());
    for (const std::uint32_t event : events) {
      pattern([&](std::size_t i) { return landed_if(units_[i].event != event); });
      pattern([&](std::size_t i) { return landed_if(units_[i].event == event); });
      pattern([&](std::size_t i) { return landed_if(units_[i].event <= event); });
      pattern([&](std::size_t i) {
        return units_[i].event == event ? trashed(i, Landing::missing) : Landing::landed;
      });
    }
    std::vector<std::size_t> order = read_;
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[rng_.below(k)]);
    const std::size_t room = request_.cap / 2;  // the rest is left to chance
    for (const std::size_t one : order) {
      if (plan_.images.size() >= room) break;
      pattern([&](std::size_t i) { return landed_if(i != one); });
      pattern([&](std::size_t i) { return landed_if(i == one); });
      pattern(
          [&](std::size_t i) { return i == one ? trashed(i, Landing::missing) : Landing::landed; });
    }
  }

  void by_chance() {
    while (plan_.images.size() < request_.cap && tries_++ < 2 * request_.cap) {
      const std::uint64_t odds = 1 + rng_.below(15);  // of 16: nearly nothing to nearly all
      pattern([&](std::size_t i) {
        if (request_.window.trashable(units_[i]) && rng_.one_in(8)) return Landing::trashed;
        return landed_if(rng_.below(16) < odds);
      });
    }
  }

  const PlanRequest& request_;
  std::span<const Unit> units_;
  Rng& rng_;
  std::vector<std::size_t> read_;
  ImagePlan plan_;
  std::size_t tries_ = 0;
};

}  // namespace

ImagePlan plan_images(const PlanRequest& request, Rng& rng) { return Planner(request, rng).run(); }

}  // namespace tensorshelf::crash
