// A shelf of which one byte is another, each page in turn and many random ones: it opens as it was,
// and each tensor reads right, is healed, or is reported by name. Never wrong bytes.
#include <map>
#include <random>
#include <set>

#include "kept_versions.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kFlips = 10'000;
constexpr unsigned kSecond[] = {1};
constexpr unsigned kBoth[] = {0, 1};

using Image = std::vector<std::byte>;
using Values = std::map<std::string, Image>;

// Of two versions that are retained, on as many media.
struct Damaged {
  std::vector<std::shared_ptr<Medium>> media;
  std::vector<Image> images;
  Values older, newest;
  std::uint64_t healed = 0;
  std::uint64_t reported = 0;

  explicit Damaged(unsigned count) {
    for (unsigned i = 0; i < count; ++i) media.emplace_back(make_memory_medium(0, 64 * kMiB));
    Shelf::format(*media[0], {.keep = 1});
    Shelf shelf = open();
    fill(shelf, count);
    shelf.close();
    for (const auto& medium : media) {
      images.emplace_back(medium->size());
      medium->read(0, images.back());
    }
  }

  Shelf open(Mode mode = Mode::update) const {
    std::vector<std::unique_ptr<Medium>> also;
    for (std::size_t i = 1; i < media.size(); ++i) {
      also.push_back(std::make_unique<SharedMedium>(media[i], false));
    }
    return Shelf::open(std::make_unique<SharedMedium>(media[0], true), std::move(also),
                       {.mode = mode});
  }

  void put(Shelf& shelf, const std::string& name, std::int64_t size, int stamp,
           std::span<const unsigned> on) {
    if (!shelf.find(name)) shelf.create(name, DType::uint8, std::array{size}, on);
    newest[name] = pattern(static_cast<std::size_t>(size), stamp);
    shelf.find(name)->write(newest[name]);
  }

  void fill(Shelf& shelf, unsigned count) {
    const auto there = count > 1 ? std::span<const unsigned>(kSecond) : std::span<const unsigned>();
    put(shelf, "small", 100, 1, {});
    put(shelf, "still", 20'000, 2, {});
    put(shelf, "twice", 20'000, 7, {});
    put(shelf, "there", 30'000, 3, there);
    if (count > 1) put(shelf, "stripes", kMiB + 100, 4, kBoth);
    shelf.persist(1);
    older = newest;
    put(shelf, "small", 100, 5, {});
    put(shelf, "twice", 20'000, 7, {});  // what another slot has
    put(shelf, "there", 30'000, 6, there);
    shelf.rename("still", "calm");
    newest["calm"] = newest["still"];
    newest.erase("still");
    shelf.persist(2);
  }

  void show_all() const {
    for (std::size_t i = 0; i < media.size(); ++i) {
      for (std::uint64_t at = 0; at < images[i].size(); at += kPageBytes) {
        media[i]->write(at, std::span(images[i]).subspan(at, kPageBytes), 0);
      }
    }
  }

  // What is read, or that it is refused as damaged.
  template <typename Tensor>
  bool reads(const Tensor& tensor, const Image& expected) {
    Image found(expected.size());
    try {
      tensor.read(found);
    } catch (const Error& error) {
      REQUIRE(error.code() == Errc::corrupt);
      return false;
    }
    REQUIRE((found == expected));
    return true;
  }

  std::set<std::string> refused(const Shelf& shelf) {
    REQUIRE(shelf.names().size() == newest.size());
    std::set<std::string> names;
    for (const auto& [name, expected] : newest) {
      if (!reads(shelf.find(name).value(), expected)) names.insert(name);
    }
    return names;
  }

  void look(Shelf& shelf) {
    REQUIRE(shelf.step() == 2);
    REQUIRE_FALSE(shelf.info().recovery.degraded);
    REQUIRE(numbers(shelf).size() == 2);
    const auto unread = refused(shelf);
    for (const auto& [name, expected] : older) {
      reads(shelf.at(1).find(name).value(), expected);
    }
    const VerifyReport report = shelf.heal();
    std::set<std::string> named;
    for (const Damage& damage : report.damage) named.insert(damage.tensor);
    REQUIRE(unread == named);
    reported += unread.size();
    healed += report.healed_as.has_value();
    const auto left = refused(shelf);
    REQUIRE(left.size() == unread.size() - (report.healed_as ? 1 : 0));
  }

  void flip(std::size_t medium, std::uint64_t at, unsigned bit) {
    CAPTURE(medium, at, bit);
    const std::uint64_t page = at / kPageBytes * kPageBytes;
    Image bytes(images[medium].begin() + static_cast<std::ptrdiff_t>(page),
                images[medium].begin() + static_cast<std::ptrdiff_t>(page + kPageBytes));
    bytes[at - page] ^= std::byte{1} << bit;
    media[medium]->write(page, bytes, 0);
    {
      const Shelf reader = open(Mode::read);
      refused(reader);
    }
    {
      Shelf shelf = open();
      look(shelf);
    }
    show_all();
  }
};

}  // namespace

TEST_CASE("one byte that is another costs no metadata, and no tensor in silence") {
  const unsigned count = GENERATE(1U, 2U);
  const auto seed = std::random_device()();
  CAPTURE(count, seed);
  Damaged damaged(count);
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> ends;
  std::uint64_t total = 0;
  for (const Image& image : damaged.images) ends.push_back(total += image.size());
  for (std::size_t medium = 0; medium < count; ++medium) {
    const std::uint64_t pages = std::min<std::uint64_t>(damaged.images[medium].size(), kMiB);
    for (std::uint64_t page = 0; page < pages; page += kPageBytes) {
      damaged.flip(medium, page + random() % 64, static_cast<unsigned>(random() % 8));
    }
  }
  const std::uint64_t flips = count == 1 ? kFlips : kFlips / 20;  // it is larger
  for (std::uint64_t i = 0; i < flips; ++i) {
    const std::uint64_t at = random() % total;
    const std::size_t medium = at < ends[0] ? 0 : 1;
    damaged.flip(medium, medium == 0 ? at : at - ends[0], static_cast<unsigned>(random() % 8));
  }
  CHECK(damaged.reported > 0);
  CHECK(damaged.healed > 0);
}
