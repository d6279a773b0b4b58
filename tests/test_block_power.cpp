// The whole store over a drive that promises no more than drives do (sim_drive.hpp): random
// programs by seed, and at a random call of the drive, also while the shelf is opened again, the
// power goes, or a write or flush fails. What is found, after a power loss or by the next process,
// is the version that was acknowledged, or the one in flight, whole (I1, I2), and stays (I12). The
// explorer asks the same of a medium of its own; here the block medium itself is below.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>

#include <tensorshelf/shelf.hpp>

#include "block_fixture.hpp"
#include "sim_drive.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

using Tensors = std::map<std::string, Bytes>;

std::filesystem::path memory_folder() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::current_path();
}

class Rig {
 public:
  explicit Rig(std::uint64_t seed) : random_(seed), folder_(memory_folder()) {
    file_ = folder_.create();
    drive_ = std::make_unique<SimDrive>(file_, Bytes{}, random_());
    Shelf::format(*make_medium());
  }

  void run(unsigned lives) {
    for (unsigned life = 0; life < lives; ++life) {
      INFO("life " << life);
      live();
      if (drive_->power_is_gone()) {
        ++cuts;
      } else if (drive_->failure_told()) {
        ++failures;
        if (drive_->unsure()) ++unsure;
      }
      next_life();
    }
    drive_->go_on({});
    Shelf shelf = Shelf::open(make_medium());
    compare(shelf);
    CHECK(shelf.verify().damage.empty());
  }

  unsigned cuts = 0;
  unsigned failures = 0;
  unsigned unsure = 0;       // of them, those after which reads may give this or that
  std::uint64_t cached = 0;  // writes through the page cache

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  std::unique_ptr<Medium> make_medium() {
    BlockTuning tuning;
    tuning.buffer_bytes = kChunkBytes;
    tuning.queue_depth = static_cast<unsigned>(1 + below(5));
    tuning.io_uring = false;
    tuning.direct = false;
    return make_block_medium(file_, {.block = tuning}, drive_->seam());
  }

  // Opens, works, and ends by a power loss or a failure, or as a process does that is killed.
  void live() {
    std::optional<Shelf> shelf;
    try {
      shelf.emplace(Shelf::open(make_medium()));
      compare(*shelf);
      for (std::uint64_t n = 3 + below(30); n > 0; --n) step(*shelf);
    } catch (const Error& error) {
      INFO(error.what());
      REQUIRE((drive_->power_is_gone() || drive_->failure_told()));
      if (shelf && !drive_->power_is_gone()) check_failed(*shelf);
    }
    shelf.reset();
    for (const std::string& wrong : drive_->wrongs()) {
      INFO(wrong);
      CHECK(drive_->wrongs().empty());
    }
  }

  // I8: it commits no more, what is committed stays readable, and what is not is told as lost.
  void check_failed(Shelf& shelf) {
    const auto check = [&](const std::string& name, const Bytes& expected, auto read, auto& told) {
      const auto tensor = shelf.find(name);
      if (!tensor || tensor->info().size_bytes != expected.size()) return;  // erased, or anew
      Bytes value(expected.size(), std::byte{0xAA});
      const auto error = error_of([&] { read(*tensor, value); });
      INFO(name << ": " << (error ? error->what() : "read"));
      REQUIRE(
          (error ? std::count(told.begin(), told.end(), error->code()) == 1 : value == expected));
    };
    const auto committed = [](const TensorRef& tensor, Bytes& value) {
      tensor.read_committed(value);
    };
    const auto staged = [](const TensorRef& tensor, Bytes& value) { tensor.read(value); };
    const std::array for_committed = {Errc::unknown_name};
    const std::array for_staged = {Errc::io, Errc::failed, Errc::spoiled};
    for (const auto& [name, value] : live_) check(name, value, staged, for_staged);
    REQUIRE(code_of([&] { shelf.persist(); }) == Errc::failed);
    for (const auto& [name, value] : acknowledged_) check(name, value, committed, for_committed);
  }

  // The same drive, with what it has not settled yet; or after a power loss one with what that
  // left.
  void next_life() {
    DriveFaults faults;
    faults.short_percent = below(2) == 0 ? 20 : 0;
    faults.caches = below(2) == 0;
    const std::uint64_t at = 1 + below(below(3) == 0 ? 8 : 120);
    switch (below(3)) {
      case 0:
        faults.fail_write = at;
        break;
      case 1:
        faults.fail_sync = 1 + at / 8;
        break;
      default:
        faults.cut_at_event = at;
    }
    cached += drive_->cached();
    if (!drive_->power_is_gone() && below(2) == 0) return drive_->go_on(faults);
    const Bytes image = drive_->power_is_gone() ? drive_->left() : drive_->image_after_power_loss();
    std::filesystem::resize_file(file_->path(), image.size());
    drive_ = std::make_unique<SimDrive>(file_, image, random_(), faults);
  }

  void step(Shelf& shelf) {
    const std::string name = "t" + std::to_string(below(6));
    auto found = shelf.find(name);
    switch (below(8)) {
      case 0:
      case 1:
        return persist(shelf);
      case 2:
        if (found && below(3) == 0) {
          shelf.erase(name);
          live_.erase(name);
          return;
        }
        [[fallthrough]];
      default:
        if (!found) {
          const std::uint64_t size = below(4) == 0 ? 1 + below(2'500'000) : 1 + below(20'000);
          shelf.create(name, DType::uint8, {{static_cast<std::int64_t>(size)}});
          live_[name] = Bytes(size);
          return;
        }
        Bytes& value = live_[name];
        const std::uint64_t at = below(3) == 0 ? below(value.size()) : 0;
        const Bytes part =
            pattern(at == 0 ? value.size() : 1 + below(value.size() - at), random_());
        found->write(part, at);
        std::copy(part.begin(), part.end(), value.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  void persist(Shelf& shelf) {
    in_flight_ = live_;
    shelf.persist();
    acknowledged_ = *std::exchange(in_flight_, std::nullopt);
  }

  // The acknowledged version or the one in flight; from here on it is the acknowledged one.
  void compare(Shelf& shelf) {
    Tensors there;
    for (const std::string& name : shelf.names()) {
      const auto tensor = shelf.find(name);
      Bytes value(tensor->info().size_bytes, std::byte{0xAA});
      tensor->read(value);
      there[name] = value;
    }
    REQUIRE((there == acknowledged_ || (in_flight_ && there == *in_flight_)));
    CHECK_FALSE(shelf.info().recovery.degraded);
    // Opening made durable what it accepted: from here on this is the one.
    in_flight_.reset();
    acknowledged_ = live_ = there;
  }

  std::mt19937_64 random_;
  Folder folder_;
  std::shared_ptr<ShelfFile> file_;
  std::unique_ptr<SimDrive> drive_;
  Tensors live_;          // as this process has it
  Tensors acknowledged_;  // as it must be after any loss
  std::optional<Tensors> in_flight_;
};

}  // namespace

TEST_CASE("whatever call of the drive the power goes at, or fails, what was acknowledged stays") {
  const std::uint64_t first = fresh_seed();
  constexpr unsigned kRounds = 40;  // under sanitizers, too: what is counted below needs them
  unsigned cuts = 0;
  unsigned failures = 0;
  unsigned unsure = 0;
  std::uint64_t cached = 0;
  for (std::uint64_t seed = first; seed < first + kRounds; ++seed) {
    CAPTURE(seed);
    Rig rig(seed);
    rig.run(8);
    cuts += rig.cuts;
    failures += rig.failures;
    unsure += rig.unsure;
    cached += rig.cached;
  }
  REQUIRE(cuts > kRounds);
  REQUIRE(failures > kRounds);
  REQUIRE(unsure > kRounds / 4);
  REQUIRE(cached > 20 * kRounds);
}

namespace {

constexpr std::uint64_t kSize = 20'000;

// A shelf of one tensor, at version 1, on a drive that one process after the other opens.
class Reopened {
 public:
  Reopened(std::uint64_t seed, bool caches)
      : caches_(caches), file_(folder_.create()), drive_(file_, {}, seed) {
    Shelf::format(*medium());
    Shelf shelf = open();
    shelf.create("w", DType::uint8, {{kSize}}).write(pattern(kSize, 1));
    shelf.persist();
  }
  Shelf open() {
    drive_.go_on({.caches = caches_});
    return Shelf::open(medium());
  }
  void fail_next_write() { drive_.go_on({.fail_write = 1}); }
  // Of what the call does the flush after so many others fails.
  void fail_flush(std::uint64_t others, const std::function<void()>& call) {
    drive_.fail_sync_after(others);
    REQUIRE(code_of(call) == Errc::io);
  }

 private:
  std::unique_ptr<Medium> medium() {
    BlockTuning tuning;
    tuning.direct = tuning.io_uring = false;
    return make_block_medium(file_, {.block = tuning}, drive_.seam());
  }

  const bool caches_;
  const Folder folder_{memory_folder()};
  std::shared_ptr<ShelfFile> file_;
  SimDrive drive_;
};

Bytes value_of(const Shelf& shelf) {
  Bytes bytes(kSize);
  shelf.find("w")->read(bytes);
  return bytes;
}

}  // namespace

// A chunk that is written through the page cache, and read around it.
TEST_CASE("what a failed flush has lost of an attempt is told as that, and not as damage") {
  const std::uint64_t first = fresh_seed();
  unsigned lost = 0;
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    CAPTURE(seed);
    Reopened there(seed, true);
    Shelf shelf = there.open();
    TensorRef tensor = shelf.find("w").value();
    tensor.write(pattern(kSize, 2));
    there.fail_flush(0, [&] { shelf.persist(); });
    for (unsigned n = 0; n < 8; ++n) {
      Bytes value(kSize);
      const auto error = error_of([&] { tensor.read(value); });
      if (!error) {
        REQUIRE((value == pattern(kSize, 2)));
        continue;
      }
      ++lost;
      CHECK(error->code() == Errc::failed);
      CHECK(error->os_error() == EIO);
      CHECK(contains(error->remedy(), "Reopen the shelf"));
    }
    Bytes value(kSize);
    tensor.read_committed(value);
    REQUIRE((value == pattern(kSize, 1)));
  }
  REQUIRE(lost > 20);
}

// It is on its way when what it wrote is read, and nobody has waited for it.
TEST_CASE("what a failed write has lost of an attempt is told as that by who reads it first") {
  const bool by_assigning = GENERATE(false, true);  // a part of a chunk: the rest of it is read
  const std::uint64_t first = fresh_seed();
  unsigned lost = 0;
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    CAPTURE(seed);
    Reopened there(seed, false);
    Shelf shelf = there.open();
    TensorRef tensor = shelf.find("w").value();
    tensor.write(pattern(kSize, 2));
    there.fail_next_write();
    Bytes value(kSize);
    const auto error = error_of([&] {
      if (by_assigning) return tensor.write(pattern(10, 3), 5);
      tensor.read(value);
    });
    if (error) {
      ++lost;
      CHECK(error->code() == Errc::io);
      CHECK(error->os_error() == EIO);
      const auto later = code_of([&] { tensor.read(value); });
      CHECK((later == Errc::failed || (by_assigning && later == Errc::spoiled)));
    }
    CHECK(code_of([&] { shelf.persist(); }) == (error ? Errc::failed : Errc::io));
    tensor.read_committed(value);
    REQUIRE((value == pattern(kSize, 1)));
  }
  REQUIRE(lost > 10);
}

// Its last flush failed: it is there or not, as its words are read.
TEST_CASE("whether a version is there is what the first opening found") {
  const std::uint64_t first = fresh_seed();
  unsigned found = 0;
  unsigned missed = 0;
  for (std::uint64_t seed = first; seed < first + 120; ++seed) {
    CAPTURE(seed);
    Reopened there(seed, seed % 2 == 0);
    {
      Shelf shelf = there.open();
      shelf.find("w")->write(pattern(kSize, 2));
      there.fail_flush(1, [&] { shelf.persist(); });
    }
    std::uint64_t version = 0;
    {
      Shelf shelf = there.open();
      version = shelf.info().version;
      shelf.find("w")->write(pattern(kSize, 3));
    }
    ++(version == 1 ? missed : found);
    for (unsigned n = 0; n < 8; ++n) {
      Shelf shelf = there.open();
      REQUIRE(shelf.info().version == version);
      REQUIRE((value_of(shelf) == pattern(kSize, version)));
    }
  }
  REQUIRE(found > 0);
  REQUIRE(missed > 0);
}

// The first flush of its mark failed.
TEST_CASE("whether something is prepared is what the first opening found") {
  const bool before = GENERATE(true, false);  // something was, and was abandoned
  const std::uint64_t first = fresh_seed();
  unsigned found = 0;
  unsigned missed = 0;
  for (std::uint64_t seed = first; seed < first + 120; ++seed) {
    CAPTURE(seed, before);
    Reopened there(seed, seed % 2 == 0);
    {
      Shelf shelf = there.open();
      if (before) {
        shelf.prepare();
        shelf.resolve(Decision::abandon);
      }
      shelf.find("w")->write(pattern(kSize, 2));
      there.fail_flush(1, [&] { shelf.prepare(2, "this one"); });
    }
    bool prepared = false;
    {
      Shelf shelf = there.open();
      prepared = shelf.prepared().has_value();
      if (!prepared) shelf.find("w")->write(pattern(kSize, 3));
    }
    ++(prepared ? found : missed);
    for (unsigned n = 0; n < 8; ++n) {
      Shelf shelf = there.open();
      REQUIRE(shelf.prepared().has_value() == prepared);
      REQUIRE(shelf.info().recovery.repaired_copies == 0);  // each mark is whole in both copies
      REQUIRE((value_of(shelf) == pattern(kSize, 1)));
    }
    Shelf shelf = there.open();
    if (!prepared) continue;
    shelf.resolve(Decision::commit);
    REQUIRE((value_of(shelf) == pattern(kSize, 2)));
  }
  REQUIRE(found > 0);
  REQUIRE(missed > 0);
}
