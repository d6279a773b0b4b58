// Everything at once: tensors are created (so that the medium grows under the writers), written,
// erased and committed in threads of their own, while readers (mode "r") open the shelf again and
// again. What a reader is shown is one acknowledged version or the one in flight, whole.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include <tensorshelf/shelf.hpp>

#include "media/pmem/medium.hpp"
#include "scratch.hpp"
#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kRounds = 40;
#else
constexpr std::uint64_t kRounds = 150;
#endif
constexpr std::uint64_t kCommits = 60;
constexpr std::size_t kSize = 200'000;

// A value that tells its round, and whether it is whole.
std::vector<std::byte> stamp(std::size_t size, std::uint64_t round) {
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at + sizeof round <= size; at += sizeof round) {
    std::memcpy(bytes.data() + at, &round, sizeof round);
  }
  return bytes;
}

std::uint64_t round_of(const std::vector<std::byte>& bytes) {
  std::uint64_t round = 0;
  std::memcpy(&round, bytes.data(), sizeof round);
  return bytes == stamp(bytes.size(), round) ? round : ~std::uint64_t{0};
}

// What went wrong in a thread: the assertions of the test framework are for one thread only.
class Complaints {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = text;
  }
  std::string first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  std::string first_;
};

struct Play {
  std::filesystem::path path;
  OpenOptions options;
  Complaints complaints = {};
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> acked = 0;
  std::atomic<std::uint64_t> opened = 0;

  template <typename Body>
  void guarded(const char* who, Body body) {
    try {
      body();
    } catch (const Error& error) {
      complaints.add(std::string(who) + ": " + std::string(code_name(error.code())) + ": " +
                     error.what());
    }
  }

  // x first, then y: in every version x is of the same round as y, or of the next.
  void write_pair(const TensorRef& x, const TensorRef& y) {
    TensorRef first = x;
    TensorRef second = y;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      first.write(stamp(kSize, round));
      second.write(stamp(kSize, round));
    }
  }

  // Eight bytes a time, so that chunks are merged and copied forward.
  void write_parts(TensorRef tensor) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t at = round * 40'009 % (2 * kMiB) / 8 * 8;
      tensor.write(std::as_bytes(std::span(&round, 1)), at);
    }
  }

  void create_and_erase(Shelf& shelf) {
    for (std::uint64_t round = 1; round <= kRounds / 2; ++round) {
      const std::uint64_t size = 20'000 + round * 77'773 % (2 * kMiB);
      make(shelf, "c" + std::to_string(round), static_cast<std::int64_t>(size / 8 * 8))
          .write(stamp(size / 8 * 8, round));
      if (round > 3) shelf.erase("c" + std::to_string(round - 3));
    }
  }

  void commit(Shelf& shelf) {
    for (std::uint64_t round = 1; round <= kCommits; ++round) {
      const Commit commit =
          round % 2 == 0 ? shelf.persist(round) : shelf.persist_async(round).get();
      acked = commit.version;
    }
  }

  void read_one(const Shelf& shelf) {
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    for (const std::string& name : shelf.names()) {
      if (name == "p") {
        value(shelf.find(name).value());  // checked by its checksums
        continue;
      }
      const std::uint64_t round = round_of(value(shelf.find(name).value()));
      if (round > kRounds) complaints.add("'" + name + "' is torn");
      if (name == "x") x = round;
      if (name == "y") y = round;
    }
    if (x != y && x != y + 1) {
      complaints.add("x is of round " + std::to_string(x) + " and y of " + std::to_string(y));
    }
  }

  void read() {
    OpenOptions reading = options;
    reading.mode = Mode::read;
    while (!done) {
      const std::uint64_t before = acked;
      const Shelf shelf = Shelf::open(path, reading);
      ++opened;
      const ShelfInfo info = shelf.info();
      if (info.version < before) {
        complaints.add("version " + std::to_string(info.version) + " after " +
                       std::to_string(before));
      }
      if (info.recovery.degraded) complaints.add("degraded, with no damage done");
      try {
        read_one(shelf);
      } catch (const Error& error) {
        if (error.code() != Errc::stale) throw;  // overtaken: that is what it has to say
      }
    }
  }
};

}  // namespace

TEST_CASE("create, erase, write, commit and read in threads of their own") {
  const std::string tier = GENERATE(as<std::string>{}, "pmem", "block");
  if (tier == "pmem" && (!pmem_supported() || !std::filesystem::is_directory("/dev/shm"))) {
    WARN("no tmpfs to map, or a build without libpmem2");
    return;
  }
  const scratch::Directory directory(tier == "pmem" ? std::filesystem::path("/dev/shm")
                                                    : std::filesystem::current_path());
  Play play{directory / "a.shelf", {.tier = tier}};
  std::map<std::string, std::vector<std::byte>> last;
  {
    Shelf shelf = Shelf::open(play.path, play.options);
    const TensorRef x = make(shelf, "x", kSize);
    const TensorRef y = make(shelf, "y", kSize);
    const TensorRef p = make(shelf, "p", 2 * kMiB + 1000);
    shelf.persist(0);
    play.acked = 1;
    std::thread reader([&] { play.guarded("reader", [&] { play.read(); }); });
    std::vector<std::thread> writers;
    writers.emplace_back([&] { play.guarded("pair", [&] { play.write_pair(x, y); }); });
    writers.emplace_back([&] { play.guarded("parts", [&] { play.write_parts(p); }); });
    writers.emplace_back([&] { play.guarded("creator", [&] { play.create_and_erase(shelf); }); });
    writers.emplace_back([&] { play.guarded("committer", [&] { play.commit(shelf); }); });
    for (std::thread& thread : writers) thread.join();
    play.done = true;
    reader.join();
    REQUIRE(play.complaints.first() == "");
    REQUIRE(play.opened > 0);
    shelf.persist(kRounds);
    for (const std::string& name : shelf.names()) last[name] = value(shelf.find(name).value());
    REQUIRE(round_of(last.at("x")) == kRounds);
    REQUIRE(round_of(last.at("y")) == kRounds);
    REQUIRE(last.size() == 3 + 3);
  }
  OpenOptions checking = play.options;
  checking.verify = Verify::on_open;
  const Shelf shelf = Shelf::open(play.path, checking);
  REQUIRE(shelf.names().size() == last.size());
  for (const auto& [name, bytes] : last) REQUIRE((value(shelf.find(name).value()) == bytes));
}
