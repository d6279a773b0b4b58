#include "faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "format/format.hpp"
#include "page_history.hpp"
#include "runner.hpp"
#include "survey.hpp"

namespace tensorshelf::crash {
namespace {

enum class Kind {
  flip_bit,
  zero_page,
  unreadable,
  unreadable_once,
  lost_write,
  misdirected,
  lost_body
};
constexpr std::array kInOnePage = {Kind::flip_bit, Kind::zero_page, Kind::unreadable,
                                   Kind::unreadable_once};

const char* name(Kind damage) {
  constexpr std::array names = {"a bit flip",
                                "zeros",
                                "no reading",
                                "one failed reading",
                                "a lost write",
                                "a misdirected write",
                                "a lost write below its word"};
  return names[static_cast<std::size_t>(damage)];
}

struct Fault {
  std::uint64_t page;
  Kind damage;
  std::uint64_t bit = 0;      // of a byte, for a flip
  std::uint64_t instead = 0;  // misdirected: the page that was written
};

// What must be true of an opening of the damaged disk.
struct Demand {
  bool nothing_lost = false;
  bool new_incarnation = true;
  bool may_fail_reading = false;
  bool mirror_whole = false;              // one of two media that mirror each other is as it was
  bool half_mended = false;               // of two damaged copies one, which the mirror had
  std::set<std::string> may_refuse = {};  // tensors
};

bool contains(const std::set<std::string>& names, const std::string& name) {
  return names.find(name) != names.end();
}

class FaultWalk {
 public:
  FaultWalk(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
            Counts& counts)
      : disk_(disk),
        behaviour_(behaviour),
        scene_(scene),
        rng_(rng),
        counts_(counts),
        there_(survey(disk.bytes(), behaviour.second_bytes)) {
    behaviour_.faults = &unreadable_;
  }

  void run() {
    const std::vector<std::uint64_t> pages = pages_read();
    for (const std::uint64_t page : pages) {
      for (const Kind damage : kInOnePage) with({{page, damage, rng_.below(8)}});
    }
    if (scene_.settled) misplaced_writes(pages);
    for (std::size_t a = 0; a < pages.size(); ++a) {
      for (std::size_t b = a + 1; b < pages.size(); ++b) {
        const Kind damage = rng_.one_in(2) ? Kind::flip_bit : kInOnePage[1 + rng_.below(3)];
        // Never the same bit in both copies: then they agree, and no second copy can tell.
        const std::uint64_t bit = rng_.below(8);
        const std::uint64_t other = (bit + 1 + rng_.below(7)) % 8;
        with({{pages[a], damage, bit}, {pages[b], damage, other}});
      }
    }
  }

 private:
  Shelf open(Log& log, Mode mode, ReadSet* reads = nullptr) {
    ++counts_.recoveries;
    Recorded media = recorded(disk_, log, behaviour_, reads);
    return Shelf::open(std::move(media.first), std::move(media.also), std::move(media.mirrors),
                       {.mode = mode});
  }

  std::vector<std::uint64_t> pages_read() {
    const Disk::Mark mark = disk_.mark();
    ReadSet reads;
    Log log;
    {
      Shelf shelf = open(log, Mode::update, &reads);
      difference(scene_.found, shelf);  // reads every tensor
      if (scene_.prepared != nullptr) {
        shelf.resolve(Decision::commit);
        difference(*scene_.prepared, shelf);
      }
    }
    disk_.rollback(mark);
    std::vector<std::uint64_t> pages;
    for (std::uint64_t at = 0; at < disk_.size_bytes(); at += kPageBytes) {
      if (reads.meets(at, kPageBytes)) pages.push_back(at);
    }
    // A shelf of many pages is sampled: the pairs grow with the square.
    constexpr std::size_t most = 24;
    while (pages.size() > most) {
      pages.erase(pages.begin() + static_cast<std::ptrdiff_t>(rng_.below(pages.size())));
    }
    return pages;
  }

  // The last write to each page never landed, or landed in another page.
  void misplaced_writes(const std::vector<std::uint64_t>& pages) {
    written_ = page_history(scene_.log, scene_.event, pages);
    for (const std::uint64_t page : pages) {
      with({{page, Kind::lost_write}});
      if (written_.worded.contains(page)) with({{page, Kind::lost_body}});
      // Not in place of its other copy: what is then left of the two looks like one never written.
      const std::uint64_t instead = pages[rng_.below(pages.size())];
      const Place* const place = there_.find(page);
      const Place* const other = place == nullptr ? nullptr : there_.other_copy(*place);
      if (instead == page || (other != nullptr && other->at == instead)) continue;
      with({{page, Kind::misdirected, 0, instead}});
    }
  }

  void apply(const Fault& fault) {
    static constexpr std::array<std::byte, kPageBytes> zeros = {};
    switch (fault.damage) {
      case Kind::zero_page:
        return disk_.write(fault.page, zeros);
      case Kind::unreadable:
      case Kind::unreadable_once:
        unreadable_.pages.push_back(fault.page);
        unreadable_.once = fault.damage == Kind::unreadable_once;
        return;
      case Kind::misdirected: {
        const auto page = disk_.bytes().subspan(fault.page, kPageBytes);
        disk_.write(fault.instead, std::vector<std::byte>(page.begin(), page.end()));
        return disk_.write(fault.page, written_.before_last.at(fault.page));
      }
      case Kind::lost_write:
        return disk_.write(fault.page, written_.before_last.at(fault.page));
      case Kind::lost_body:
        return disk_.write(fault.page, written_.without_body.at(fault.page));
      case Kind::flip_bit:
        break;
    }
    // Structs keep their fields at the head of the page, and roots their version word first of all.
    constexpr std::array<std::uint64_t, 4> ranges = {8, 64, kPageBytes, kPageBytes};
    const std::uint64_t at = fault.page + rng_.below(ranges[rng_.below(ranges.size())]);
    const std::array flipped = {disk_.bytes()[at] ^ (std::byte{1} << fault.bit)};
    disk_.write(at, flipped);
  }

  bool hits(const Fault& fault, Part part) const {
    const auto on = [&](std::uint64_t page) { return scene_.log.part_of(page) == part; };
    return on(fault.page) || (fault.damage == Kind::misdirected && on(fault.instead));
  }

  // What both copies of a page of the manifest had.
  bool mirror_has(const Place& place, const Demand& demand) const {
    return demand.mirror_whole && there_.second_filled &&
           place.at >= behaviour_.second_bytes + format::kHeapAt;
  }

  Demand demand_of(const std::vector<Fault>& faults) const {
    Demand demand{.nothing_lost = scene_.settled};
    const auto all_off = [&](Part part) {
      return std::none_of(faults.begin(), faults.end(),
                          [&](const Fault& fault) { return hits(fault, part); });
    };
    demand.mirror_whole = behaviour_.mirrored && (all_off(Part::first) || all_off(Part::second));
    std::vector<const Place*> hit;
    for (const Fault& fault : faults) {
      demand.may_fail_reading = demand.may_fail_reading || fault.damage == Kind::unreadable ||
                                fault.damage == Kind::unreadable_once;
      hit.push_back(there_.find(fault.page));
      if (fault.damage == Kind::misdirected) hit.push_back(there_.find(fault.instead));
    }
    for (std::size_t i = 0; i < hit.size(); ++i) {
      const Place* const place = hit[i];
      if (place == nullptr) continue;
      if (place->what == Place::What::data) {
        demand.may_refuse.insert(there_.tensors[place->tensor]);
        continue;
      }
      for (std::size_t k = 0; k < i; ++k) {
        if (hit[k] == nullptr || hit[k] != there_.other_copy(*place)) continue;
        demand.half_mended = mirror_has(*place, demand);
        demand.nothing_lost = demand.nothing_lost && demand.half_mended;
      }
      // An older number is as good as any, unless the record that says it is damaged.
      const Kind damage = faults.front().damage;
      if (damage == Kind::lost_write || damage == Kind::misdirected || damage == Kind::lost_body) {
        demand.new_incarnation = false;
      }
    }
    return demand;
  }

  void with(const std::vector<Fault>& faults) {
    const Disk::Mark mark = disk_.mark();
    const Demand demand = demand_of(faults);
    std::string text;
    for (const Mode mode : {Mode::read, Mode::update}) {
      if (mode == Mode::read && !rng_.one_in(4)) continue;
      for (const Fault& fault : faults) apply(fault);
      text = outcome(demand, mode);
      if (text.empty() && mode == Mode::update && demand.nothing_lost && !demand.half_mended)
        text = opened_again(faults, demand);
      if (text.empty() && mode == Mode::update) text = resolved();
      unreadable_.pages.clear();
      disk_.rollback(mark);
      if (!text.empty()) break;
    }
    if (text.empty()) return;
    std::string places;
    for (const Fault& fault : faults) {
      places += fmt::format(" {} at {:#x}", name(fault.damage), fault.page);
      if (fault.damage == Kind::misdirected) places += fmt::format(" to {:#x}", fault.instead);
    }
    throw std::runtime_error(fmt::format("damage ({} ): {}", places, text));
  }

  // Empty when the damaged shelf did what it may.
  std::string outcome(const Demand& demand, Mode mode) {
    const std::string how = mode == Mode::read ? "read-only: " : "";
    Log log;
    try {
      Shelf shelf = open(log, mode);
      const ShelfInfo info = shelf.info();
      if (mode == Mode::update) {
        if (demand.new_incarnation && info.incarnation <= scene_.incarnation) {
          return fmt::format("incarnation {} was given out before (I5)", info.incarnation);
        }
        incarnation_ = info.incarnation;
      }
      const bool lost = demand.nothing_lost && scene_.prepared != nullptr;
      if (lost && !info.recovery.prepared) return "the damage lost what was prepared (I14)";
      std::string text;
      if (!info.recovery.degraded) {
        text = unreported_difference(shelf, demand);
      } else if (demand.nothing_lost) {
        text = "the damage made the shelf fall back to an older version";
      } else {
        text = degraded_difference(shelf);
      }
      if (text.empty() && mode == Mode::read && !log.events.empty()) text = "it wrote";
      return text.empty() ? text : how + text;
    } catch (const Error& error) {
      if (demand.nothing_lost) return how + "the damage lost the shelf: " + error.what();
      const bool honest = error.code() == Errc::corrupt || error.code() == Errc::not_a_shelf ||
                          error.code() == Errc::truncated || error.code() == Errc::newer_format ||
                          error.code() == Errc::unsupported ||
                          error.code() == Errc::medium_missing ||
                          (error.code() == Errc::io && demand.may_fail_reading) ||
                          // A root that could not be read when it was opened is a newer one later.
                          (error.code() == Errc::stale && mode == Mode::read && unreadable_.once);
      if (honest) return {};
      return fmt::format("{}an error that does not fit ({}): {}", how, code_name(error.code()),
                         error.what());
    }
  }

  // What is prepared is committed whole, or refused. (What it did not write may be damaged.)
  std::string resolved() {
    if (scene_.prepared == nullptr || rng_.one_in(2)) return {};
    Log log;
    try {
      Shelf shelf = open(log, Mode::update);
      if (!shelf.prepared()) return {};
      return resolved_difference(*scene_.prepared, scene_.found, shelf, unreadable_.once);
    } catch (const Error&) {
      return {};  // opening was looked at
    }
  }

  // After nothing was lost: what is damaged now has two whole copies, so the other one may go.
  std::string opened_again(const std::vector<Fault>& faults, const Demand& before) {
    const Survey now = survey(disk_.bytes(), behaviour_.second_bytes);
    if (!now.damage.empty()) return "after opening, " + now.damage;
    for (const std::uint64_t page : unreadable_.pages) {
      const Place* const place = there_.find(page);
      if (place != nullptr && place->what == Place::What::metadata) {
        return fmt::format("after opening, {:#x} still cannot be read", page);
      }
    }
    const Place* const first = there_.find(faults.front().page);
    if (faults.size() != 1 || first == nullptr || first->what != Place::What::metadata) return {};
    const Place* const other = there_.other_copy(*first);
    if (other == nullptr) return "";
    const std::uint64_t spent = incarnation_;
    Demand demand = before;
    demand.new_incarnation = false;  // it is compared here
    const Fault next{other->at, rng_.one_in(2) ? Kind::flip_bit : Kind::unreadable, rng_.below(8)};
    apply(next);
    const std::string text = outcome(demand, Mode::update);
    if (!text.empty())
      return fmt::format("then {} at {:#x}: {}", name(next.damage), next.page, text);
    if (incarnation_ <= spent) return fmt::format("incarnation {} was given out twice", spent);
    return {};
  }

  // An older version was verified when it was fallen back to, so all of it must be readable.
  std::string degraded_difference(const Shelf& shelf) const {
    const std::uint64_t version = shelf.info().version;
    try {
      for (const Model& model : scene_.history) {
        if (model.version != version) continue;
        return shelf.versions().size() == 1 ? difference(model, shelf)
                                            : "degraded, and older versions are offered";
      }
    } catch (const Error& error) {
      return fmt::format("degraded to version {}, which cannot be read: {}", version, error.what());
    }
    return fmt::format("degraded to version {}, which never was", version);
  }

  // The damage may have hit the only mark that the version in flight had made yet.
  std::string unreported_difference(const Shelf& shelf, const Demand& demand) {
    std::string text;
    for (std::size_t index = scene_.acked; index <= scene_.in_flight; ++index) {
      text = tolerant_difference(scene_.history[index], shelf, demand);
      if (text.empty()) return retained_difference(scene_.history[index], shelf, demand);
    }
    return text;
  }

  // What is offered beside the newest version is as it was, or refuses; and nothing is offered that
  // is not retained. Damage in one of two copies has none of them dropped.
  std::string retained_difference(const Model& model, const Shelf& shelf, const Demand& demand) {
    const std::vector<VersionInfo> offered = shelf.versions();
    if (demand.nothing_lost && offered.size() != model.older.size() + 1) {
      return fmt::format("{} versions are offered, of {}", offered.size(), model.older.size() + 1);
    }
    for (std::size_t i = 0; i + 1 < offered.size(); ++i) {
      const std::uint64_t number = offered[i].version;
      if (number + 1 != offered[i + 1].version) return "there is a gap in the versions";
      const auto older = model.find(number);
      if (!older) return fmt::format("version {} is below the floor, and offered", number);
      const RetainedVersion version = shelf.at(number);
      for (const auto& [name, expected] : older->tensors) {
        std::vector<std::byte> bytes(expected.size(), kUnread);
        try {
          version.find(name).value().read(bytes);
        } catch (const Error& error) {
          if (error.code() == Errc::corrupt) continue;
          throw;
        }
        if (bytes != expected) return fmt::format("{} of version {} has wrong bytes", name, number);
      }
    }
    return {};
  }

  // As difference(), but a tensor whose bytes were hit may refuse to be read.
  std::string tolerant_difference(const Model& model, const Shelf& shelf, const Demand& demand) {
    const ShelfInfo info = shelf.info();
    if (info.version != model.version) {
      return fmt::format("version {} instead of {}, and no word of it", info.version,
                         model.version);
    }
    if (info.step != model.step) return "another step";
    const std::vector<std::string> names = shelf.names();
    if (names.size() != model.tensors.size()) return "tensors are missing";
    std::set<std::string> refused;
    for (const std::string& name : names) {
      const auto expected = model.tensors.find(name);
      if (expected == model.tensors.end()) return fmt::format("tensor {} never was", name);
      std::vector<std::byte> bytes(expected->second.size(), kUnread);
      try {
        const TensorRef tensor = shelf.find(name).value();
        if (tensor.info().size_bytes != bytes.size()) return fmt::format("layout of {}", name);
        tensor.read(bytes);
        if (bytes != expected->second) return fmt::format("tensor {} has wrong bytes", name);
      } catch (const Error& error) {
        // A root that could not be read when it was opened is a newer one later.
        const bool overtaken = error.code() == Errc::stale && unreadable_.once;
        if (error.code() != Errc::corrupt && !overtaken) {
          return fmt::format("reading {}: {}", name, error.what());
        }
        refused.insert(name);
      }
    }
    // What was hit is known for the version that the undamaged image shows.
    if (model.version == scene_.found.version) return unfounded_refusal(shelf, refused, demand);
    return {};
  }

  std::string unfounded_refusal(const Shelf& shelf, const std::set<std::string>& refused,
                                const Demand& demand) const {
    if (demand.mirror_whole && !refused.empty()) {
      return fmt::format("[{}] cannot be read, and lies on a mirror, too", fmt::join(refused, " "));
    }
    for (const std::string& name : refused) {
      if (!contains(demand.may_refuse, name)) {
        return fmt::format("tensor {} cannot be read, and none of its bytes was hit", name);
      }
    }
    if (demand.may_refuse.empty() || unreadable_.once) return {};
    std::set<std::string> listed;
    for (const Damage& damage : shelf.verify().damage) listed.insert(damage.tensor);
    if (listed == refused) return {};
    const bool all_listed =
        std::includes(listed.begin(), listed.end(), refused.begin(), refused.end());
    if (behaviour_.mirrored && all_listed) return {};  // the mirror was read
    return fmt::format("[{}] cannot be read, and verify() lists [{}]", fmt::join(refused, " "),
                       fmt::join(listed, " "));
  }

  Disk& disk_;
  Behaviour behaviour_;
  const FaultScene& scene_;
  Rng& rng_;
  Counts& counts_;
  const Survey there_;
  ReadFaults unreadable_;
  PageHistory written_;
  std::uint64_t incarnation_ = 0;  // of the last opening
};

}  // namespace

void explore_faults(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
                    Counts& counts) {
  FaultWalk(disk, behaviour, scene, rng, counts).run();
}

}  // namespace tensorshelf::crash
