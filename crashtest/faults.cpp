#include "faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace tensorshelf::crash {
namespace {

enum class Damage { flip_bit, zero_page };

class FaultWalk {
 public:
  FaultWalk(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
            Counts& counts)
      : disk_(disk), behaviour_(behaviour), scene_(scene), rng_(rng), counts_(counts) {}

  void run() {
    const std::vector<std::uint64_t> pages = pages_read();
    for (const std::uint64_t page : pages) {
      for (const Damage damage : {Damage::flip_bit, Damage::zero_page}) {
        with({{page, damage, rng_.below(8)}}, !scene_.settled);
      }
    }
    for (std::size_t a = 0; a < pages.size(); ++a) {
      for (std::size_t b = a + 1; b < pages.size(); ++b) {
        const Damage damage = rng_.one_in(4) ? Damage::zero_page : Damage::flip_bit;
        // Never the same bit in both copies: then they agree, and no second copy can tell.
        const std::uint64_t bit = rng_.below(8);
        const std::uint64_t other = (bit + 1 + rng_.below(7)) % 8;
        with({{pages[a], damage, bit}, {pages[b], damage, other}}, true);
      }
    }
  }

 private:
  struct Fault {
    std::uint64_t page;
    Damage damage;
    std::uint64_t bit = 0;  // of a byte, for a flip
  };

  Shelf open(Log& log, ReadSet* reads) {
    ++counts_.recoveries;
    return Shelf::open(std::make_unique<RecordingMedium>(disk_, log, behaviour_, reads),
                       {.mode = Mode::update});
  }

  std::vector<std::uint64_t> pages_read() {
    const Disk::Mark mark = disk_.mark();
    ReadSet reads;
    Log log;
    {
      const Shelf shelf = open(log, &reads);
      difference(scene_.found, shelf);  // reads every tensor
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

  void apply(const Fault& fault) {
    static constexpr std::array<std::byte, kPageBytes> zeros = {};
    if (fault.damage == Damage::zero_page) return disk_.write(fault.page, zeros);
    // Structs keep their fields at the head of the page, and roots their version word first of all.
    constexpr std::array<std::uint64_t, 4> ranges = {8, 64, kPageBytes, kPageBytes};
    const std::uint64_t at = fault.page + rng_.below(ranges[rng_.below(ranges.size())]);
    const std::array flipped = {disk_.bytes()[at] ^ (std::byte{1} << fault.bit)};
    disk_.write(at, flipped);
  }

  void with(const std::vector<Fault>& faults, bool may_lose) {
    const Disk::Mark mark = disk_.mark();
    for (const Fault& fault : faults) apply(fault);
    const std::string text = outcome(may_lose);
    disk_.rollback(mark);
    if (text.empty()) return;
    std::string places;
    for (const Fault& fault : faults) {
      places += fmt::format(" {} at {:#x}",
                            fault.damage == Damage::zero_page ? "zeros" : "bit flip", fault.page);
    }
    throw std::runtime_error(fmt::format("damage ({} ): {}", places, text));
  }

  // Empty when the damaged shelf did what it may.
  std::string outcome(bool may_lose) {
    Log log;
    try {
      const Shelf shelf = open(log, nullptr);
      const bool degraded = shelf.info().recovery.degraded;
      if (!degraded) return unreported_difference(shelf);
      if (!may_lose) return "one damaged page made the shelf fall back to an older version";
      return degraded_difference(shelf);
    } catch (const Error& error) {
      if (!may_lose) return fmt::format("one damaged page lost the shelf: {}", error.what());
      const bool honest = error.code() == Errc::corrupt || error.code() == Errc::not_a_shelf ||
                          error.code() == Errc::truncated || error.code() == Errc::newer_format ||
                          error.code() == Errc::unsupported;
      if (honest) return {};
      return fmt::format("an error that does not fit ({}): {}", code_name(error.code()),
                         error.what());
    }
  }

  // An older version was verified when it was fallen back to, so all of it must be readable.
  std::string degraded_difference(const Shelf& shelf) const {
    const std::uint64_t version = shelf.info().version;
    try {
      for (const Model& model : scene_.history) {
        if (model.version == version) return difference(model, shelf);
      }
    } catch (const Error& error) {
      return fmt::format("degraded to version {}, which cannot be read: {}", version, error.what());
    }
    return fmt::format("degraded to version {}, which never was", version);
  }

  // The damage may have hit the only mark that the version in flight had made yet.
  std::string unreported_difference(const Shelf& shelf) const {
    std::string text;
    for (std::size_t index = scene_.acked; index <= scene_.in_flight; ++index) {
      text = tolerant_difference(scene_.history[index], shelf);
      if (text.empty()) return {};
    }
    return text;
  }

  // As difference(), but a tensor may refuse to be read.
  static std::string tolerant_difference(const Model& model, const Shelf& shelf) {
    const ShelfInfo info = shelf.info();
    if (info.version != model.version) {
      return fmt::format("version {} instead of {}, and no word of it", info.version,
                         model.version);
    }
    if (info.step != model.step) return "another step";
    const std::vector<std::string> names = shelf.names();
    if (names.size() != model.tensors.size()) return "tensors are missing";
    for (const std::string& name : names) {
      const auto expected = model.tensors.find(name);
      if (expected == model.tensors.end()) return fmt::format("tensor {} never was", name);
      std::vector<std::byte> bytes(expected->second.size());
      try {
        const TensorRef tensor = shelf.find(name).value();
        if (tensor.info().size_bytes != bytes.size()) return fmt::format("layout of {}", name);
        tensor.read(bytes);
        if (bytes != expected->second) return fmt::format("tensor {} has wrong bytes", name);
      } catch (const Error& error) {
        if (error.code() != Errc::corrupt) throw;
      }
    }
    return {};
  }

  Disk& disk_;
  const Behaviour& behaviour_;
  const FaultScene& scene_;
  Rng& rng_;
  Counts& counts_;
};

}  // namespace

void explore_faults(Disk& disk, const Behaviour& behaviour, const FaultScene& scene, Rng& rng,
                    Counts& counts) {
  FaultWalk(disk, behaviour, scene, rng, counts).run();
}

}  // namespace tensorshelf::crash
