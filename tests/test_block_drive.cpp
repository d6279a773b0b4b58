// The block medium over a drive that promises no more than drives do (sim_drive.hpp): random
// programs by seed, whose model knows which bytes may be where. At every wait what was waited for
// has really landed, at every barrier it is durable, and after a power loss nothing older is there.
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/copy_hash.hpp"
#include "base/planted.hpp"
#include "block_fixture.hpp"
#include "refused_call.hpp"
#include "sim_drive.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t MiB = 1024 * 1024;
constexpr std::uint64_t kSector = SimDrive::kSectorBytes;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
using ByteSpan = std::span<const std::byte>;

// What a page may hold: its last value, and older ones as far back as the drive may still have
// them.
struct PageVersion {
  std::uint64_t sequence;  // of its write; of a word's page, none until a barrier
  bool word;
  Bytes bytes;
};

class Model {
 public:
  std::uint64_t size_bytes() const { return pages_.size() * kPageBytes; }
  void grow(std::uint64_t size_bytes) {
    while (pages_.size() * kPageBytes < size_bytes) {
      pages_.push_back({{0, false, Bytes(kPageBytes)}});
    }
  }
  void write(std::uint64_t at, ByteSpan bytes, std::uint64_t sequence, bool word = false) {
    for (std::uint64_t done = 0; done < bytes.size(); done += kPageBytes) {
      PageVersion version{sequence, word, Bytes(kPageBytes)};
      const auto part = bytes.subspan(done, std::min(kPageBytes, bytes.size() - done));
      std::copy(part.begin(), part.end(), version.bytes.begin());
      pages_[(at + done) / kPageBytes].push_back(std::move(version));
    }
  }
  const Bytes& page(std::uint64_t at) const { return pages_[at / kPageBytes].back().bytes; }
  void waited(std::uint64_t sequence) { waited_ = std::max(waited_, sequence); }
  void store(std::uint64_t page_at, ByteSpan page) { write(page_at, page, kNever, true); }
  void words_landed() {
    for (auto& versions : pages_) {
      for (PageVersion& version : versions) {
        if (version.word) version.sequence = 0;
      }
    }
  }

  // What may be in the image of a page where all that was waited for is: that, or anything newer.
  // Of each sector for itself, where a newer write is under way.
  std::string agrees(ByteSpan image, bool at_barrier) {
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      const std::size_t oldest = at_barrier ? waited_index(pages_[p]) : 0;
      if (std::string wrong = page_agrees(image, p, oldest); !wrong.empty()) return wrong;
    }
    return "";
  }
  std::string landed(ByteSpan image) { return agrees(image, true); }

  // What a read may give once a failure was told: of each sector any value since the last barrier.
  bool may_be(std::uint64_t at, ByteSpan got) const {
    while (!got.empty()) {
      const std::uint64_t within = at % kPageBytes;
      const std::size_t size = std::min<std::size_t>(kSector - at % kSector, got.size());
      const Versions& versions = pages_[at / kPageBytes];
      const auto matches = [&](const PageVersion& version) {
        return std::memcmp(&version.bytes[within], got.data(), size) == 0;
      };
      if (std::none_of(versions.begin(), versions.end(), matches)) return false;
      at += size;
      got = got.subspan(size);
    }
    return true;
  }
  void settle() {
    for (auto& versions : pages_) {
      versions.erase(versions.begin(),
                     versions.begin() + static_cast<std::ptrdiff_t>(waited_index(versions)));
    }
  }

 private:
  using Versions = std::deque<PageVersion>;

  std::size_t waited_index(const Versions& versions) const {
    std::size_t index = 0;
    for (std::size_t i = 0; i < versions.size(); ++i) {
      if (versions[i].sequence <= waited_) index = i;
    }
    return index;
  }
  std::string page_agrees(ByteSpan image, std::size_t p, std::size_t oldest) const {
    for (std::size_t at = 0; at < kPageBytes; at += kSector) {
      const std::uint64_t place = p * kPageBytes + at;
      if (place + kSector > image.size()) return "the image ends at " + std::to_string(place);
      const auto matches = [&](const PageVersion& version) {
        return std::memcmp(&version.bytes[at], &image[place], kSector) == 0;
      };
      const auto begin = pages_[p].begin() + static_cast<std::ptrdiff_t>(oldest);
      if (std::any_of(begin, pages_[p].end(), matches)) continue;
      const bool older = std::any_of(pages_[p].begin(), begin, matches);
      return std::string(older ? "an older value" : "another value") + " at " +
             std::to_string(place) + " (page " + std::to_string(p) + ")";
    }
    return "";
  }

  std::vector<Versions> pages_;
  std::uint64_t waited_ = 0;
};

// One program on one medium; what went wrong is a text, for it may run in a child process.
class Program {
 public:
  Program(const Folder& folder, std::uint64_t seed, const DriveFaults& faults)
      : random_(seed), file_(folder.create("drive" + std::to_string(seed))) {
    Bytes found;
    if (below(2) == 0) {  // a file that is there, of holes as far as the real one goes
      found = pattern(below(64) * kPageBytes, seed);
      std::filesystem::resize_file(file_->path(), found.size());
      model_.grow(found.size());
      model_.write(0, found, 0);
    }
    drive_ = std::make_unique<SimDrive>(file_, found, seed + 1, faults);
    BlockTuning tuning;
    tuning.buffer_bytes = (1 + below(2)) * MiB;
    tuning.queue_depth = static_cast<unsigned>(1 + below(6));
    tuning.io_uring = false;
    tuning.direct = false;
    medium_ = make_block_medium(file_, {.block = tuning}, drive_->seam());
  }

  std::string run(unsigned operations) {
    try {
      if (found_bytes() > 0) grow(1 + below(found_bytes()));  // holes alone
      grow(found_bytes() + kPageBytes);
      for (unsigned n = 0; n < operations && wrong_.empty(); ++n) step();
      if (below(2) == 0) wait_for(last_);  // else it is destroyed with writes under way
      if (below(2) == 0) barrier();
    } catch (const Error& error) {
      met_ = error.what();
      const bool expected = error.code() == Errc::io && !error.remedy().empty();
      if (!expected) wrong_ = std::string("threw: ") + error.what();
    }
    if (!met_.empty() && wrong_.empty()) after_failure();
    medium_.reset();
    if (met_.empty()) expect(drive_->begun() == drive_->ended(), "begun and ended differ");
    for (const std::string& wrong : drive_->wrongs()) expect(false, wrong);
    if (wrong_.empty()) {  // nothing older than the last barrier left it
      const Bytes image =
          drive_->power_is_gone() ? drive_->left() : drive_->image_after_power_loss();
      note(model_.agrees(image, false), "after a power loss");
    }
    std::filesystem::remove(file_->path());
    return wrong_;
  }

  const SimDrive& drive() const { return *drive_; }
  bool met_failure() const { return !met_.empty(); }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  std::uint64_t found_bytes() const { return model_.size_bytes(); }
  void expect(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) wrong_ = what;
  }
  void note(const std::string& wrong, const std::string& where) {
    if (!wrong.empty()) expect(false, wrong + " " + where);
  }

  void step() {
    switch (below(16)) {
      case 0:
        return wait_for(tickets_.empty() ? last_ : tickets_[below(tickets_.size())]);
      case 1:
        wait_for(last_);
        return barrier();
      case 2:
        return barrier();  // of what happens to have been waited for
      case 3:
      case 4:
        return store_word();
      case 5:
      case 6:
        return read();
      case 7:
        if (below(6) == 0) return grow(model_.size_bytes() + 1 + below(48 * kPageBytes));
        return read();
      default:
        return write();
    }
  }

  void write() {
    const std::uint64_t pages = model_.size_bytes() / kPageBytes;
    const std::uint64_t place = below(3) > 0 && next_ < pages ? next_ : below(pages);
    const std::uint64_t most = std::min((pages - place) * kPageBytes, MiB);
    const std::uint64_t size =
        below(12) == 0 ? 1 + below(most) : 1 + below(std::min(most, 3 * kPageBytes));
    if (below(4) == 0) return write_lent(place, round_up(size, kPageBytes));
    const Bytes bytes = pattern(size, random_());
    try {
      last_ = medium_->write(place * kPageBytes, bytes, 0);
    } catch (...) {  // a part of it may lie there
      model_.write(place * kPageBytes, bytes, ~std::uint64_t{0});
      throw;
    }
    model_.write(place * kPageBytes, bytes, last_.sequence);
    tickets_.push_back(last_);
    next_ = place + round_up(size, kPageBytes) / kPageBytes;
  }

  // From a ring of pieces, each of which is lent again once it has been given back.
  void write_lent(std::uint64_t place, std::uint64_t size) {
    const std::span<std::byte> piece =
        lent_.bytes().subspan((lent_turn_++ % kLentPieces) * MiB, MiB).first(size);
    medium_->await_lent(piece);
    const Bytes bytes = pattern(size, random_());
    std::ranges::copy(bytes, piece.begin());
    try {
      last_ = medium_->write_lent(place * kPageBytes, piece, 0);
    } catch (...) {
      model_.write(place * kPageBytes, bytes, ~std::uint64_t{0});
      throw;
    }
    expect(last_.checksum == hash_bytes(bytes, 0), "another checksum of what was lent");
    model_.write(place * kPageBytes, bytes, last_.sequence);
    tickets_.push_back(last_);
    next_ = place + size / kPageBytes;
  }

  void wait_for(const Ticket& ticket) {
    medium_->wait(ticket);
    model_.waited(ticket.sequence);
    note(model_.landed(drive_->visible()), "behind a wait");
  }

  void barrier() {
    const std::uint64_t syncs = drive_->syncs();
    medium_->barrier();
    expect(drive_->syncs() == syncs + 1, "a barrier that is not one flush");
    model_.words_landed();
    note(model_.agrees(drive_->durable(), true), "behind a barrier");
    model_.settle();
    tickets_.clear();
  }

  void store_word() {
    // More pages than the medium keeps copies of, and some far more often than others.
    const std::uint64_t pages = model_.size_bytes() / kPageBytes;
    const std::uint64_t page = std::min(below(2) == 0 ? below(3) : below(14), pages - 1);
    const std::uint64_t at = page * kPageBytes + below(kPageBytes / 8) * 8;
    const std::uint64_t word = random_();
    Bytes whole = model_.page(at);
    std::memcpy(&whole[at % kPageBytes], &word, sizeof word);
    // Before the call: when the power goes inside, either may be there.
    model_.store(page * kPageBytes, whole);
    medium_->store_word(at, word);
    if (below(2) == 0) return;  // reading would send it off
    const Bytes there = read_back(*medium_, page * kPageBytes, kPageBytes);
    expect(there == whole || drive_->failure_told(), "a word's page is not what it should be");
  }

  void read() {
    const std::uint64_t at = below(model_.size_bytes());
    const std::uint64_t size = 1 + below(std::min(model_.size_bytes() - at, 5 * kPageBytes));
    Bytes got;
    try {
      got = read_back(*medium_, at, size);
    } catch (const Error&) {
      if (read_failed_ || !drive_->read_failed()) throw;
      read_failed_ = true;
      return;  // that is no failure of the medium
    }
    if (drive_->failure_told()) {  // what was staged is dropped, and the next call says so
      return expect(model_.may_be(at, got), "after a failure other bytes were read");
    }
    for (std::uint64_t i = 0; i < size; ++i) {
      if (got[i] == model_.page(at + i)[(at + i) % kPageBytes]) continue;
      return expect(false, "another byte was read at " + std::to_string(at + i));
    }
  }

  std::pair<std::uint64_t, std::uint64_t> on_file_system() const {
    struct stat status {};
    ::fstat(file_->fd(), &status);
    return {status.st_size, status.st_blocks};
  }

  void grow(std::uint64_t size_bytes) {
    const auto before = on_file_system();
    const std::uint64_t old = model_.size_bytes();
    const std::uint64_t landed = drive_->landed();
    in_growth_ = true;
    const std::uint64_t now = medium_->reserve(size_bytes);
    in_growth_ = false;
    expect(now >= size_bytes, "less room than was asked for");
    const bool changed = on_file_system() != before;
    // Before the first growth nothing else was written: what landed, filled holes.
    const bool filled = drive_->landed() != landed && last_.sequence == 0;
    expect(!(changed || filled) || drive_->settled(), "new room that is not durable");
    model_.grow(now);
    const auto all = drive_->visible();
    if (now > old) {
      expect(all.size() >= now, "new room that was not written");
      for (std::uint64_t at = old; at < now && wrong_.empty(); ++at) {
        expect(all[at] == std::byte{0}, "new room that is not zero");
      }
    }
  }

  // I8, as far as it is the medium's own: nothing that could lead to a commit goes on.
  void after_failure() {
    if (in_growth_ || drive_->read_failed()) return;  // what the guard remembers
    const std::uint64_t syncs = drive_->syncs();
    const std::uint64_t begun = drive_->begun();
    const auto refused = [](const std::function<void()>& call) {
      const auto error = error_of(call);
      return error && error->code() == Errc::io;
    };
    expect(refused([&] { medium_->barrier(); }), "a barrier after a failure");
    expect(refused([&] { medium_->wait(last_); }), "a wait after a failure");
    expect(refused([&] { medium_->store_word(0, 1); }), "a word after a failure");
    expect(refused([&] { medium_->write(0, Bytes(kPageBytes), 0); }), "a write after a failure");
    expect(drive_->syncs() == syncs, "a flush after a failure");
    expect(drive_->begun() == begun, "a device write after a failure");
    for (unsigned n = 0; n < 8; ++n) read();  // goes on
  }

  static constexpr unsigned kLentPieces = 3;

  std::mt19937_64 random_;
  std::shared_ptr<ShelfFile> file_;
  Model model_;
  PageMemory lent_{kLentPieces * MiB};  // outlives the medium
  std::uint64_t lent_turn_ = 0;
  std::unique_ptr<SimDrive> drive_;
  std::unique_ptr<Medium> medium_;
  std::vector<Ticket> tickets_;
  Ticket last_;
  std::uint64_t next_ = 0;
  bool in_growth_ = false;
  bool read_failed_ = false;
  std::string met_;
  std::string wrong_;
};

std::filesystem::path memory_folder() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::current_path();
}

}  // namespace

#ifdef TENSORSHELF_PLANTED_BUGS

// Built with them, over the medium as it is otherwise.
TEST_CASE("each planted bug of the block medium is found") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  CAPTURE(first);
  const auto fault = [&](std::uint64_t seed) {
    DriveFaults faults;
    faults.caches = seed % 2 == 0;
    faults.short_percent = seed % 3 == 0 ? 30 : 0;
    if (seed % 5 == 0) faults.fail_sync = 1 + seed % 7;
    return Program(folder, seed, faults).run(200);
  };
  for (const auto& [bug, name] :
       {std::pair{Bug::none, "none"}, std::pair{Bug::flush_left_out, "flush_left_out"},
        std::pair{Bug::words_not_drained, "words_not_drained"},
        std::pair{Bug::word_page_not_followed, "word_page_not_followed"},
        std::pair{Bug::flush_repeated, "flush_repeated"},
        std::pair{Bug::held_page_overtaken, "held_page_overtaken"},
        std::pair{Bug::cut_write_left, "cut_write_left"},
        std::pair{Bug::lent_not_awaited, "lent_not_awaited"}}) {
    INFO(name);
    std::string wrong;
    planted_bug = bug;
    const unsigned programs = bug == Bug::none ? 40 : 400;
    for (unsigned n = 0; n < programs && wrong.empty(); ++n) wrong = fault(first + n);
    planted_bug = Bug::none;
    CHECK(wrong.empty() == (bug == Bug::none));
  }
}

TEST_CASE("memory of a child's that is given back for its parent's is found missing") {
  planted_bug = Bug::child_unmaps;
  auto memory = std::make_unique<PageMemory>(4 * MiB);
  const std::string wrong =
      in_child([&] { return memory_of_a_child(std::move(memory)) == 0 ? std::string() : "gone"; });
  planted_bug = Bug::none;
  CHECK(wrong == "gone");
}

#else

TEST_CASE("any order of ends: what is waited for has landed, behind a barrier it is durable") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  for (std::uint64_t seed = first; seed < first + rounds(60); ++seed) {
    CAPTURE(seed);
    DriveFaults faults;
    faults.caches = seed % 3 == 0;
    faults.short_percent = seed % 3 == 0 ? 30 : 0;
    faults.untried_percent = seed % 5 == 0 ? 10 : 0;
    Program program(folder, seed, faults);
    REQUIRE(program.run(200) == "");
    REQUIRE_FALSE(program.met_failure());
  }
}

// Without fallocate the zeros themselves allocate, and what is found is written once more.
TEST_CASE("where there is no fallocate, room is durable all the same") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  CAPTURE(first);
  const std::string said = in_child([&]() -> std::string {
    if (!refuse_call(SYS_fallocate, EOPNOTSUPP)) return "no seccomp";
    unsigned failed = 0;  // less than a page came
    for (std::uint64_t seed = first; seed < first + 40; ++seed) {
      const bool short_calls = seed % 2 == 0;
      Program program(folder, seed, {.short_percent = short_calls ? 50u : 0u});
      const std::string wrong = program.run(60);
      if (!wrong.empty()) return wrong + ", seed " + std::to_string(seed);
      if (program.met_failure() && !short_calls) return "failed, seed " + std::to_string(seed);
      failed += program.met_failure();
    }
    return failed < 10 ? "" : std::to_string(failed) + " failed";
  });
  if (said == "no seccomp") {
    WARN("skipped: seccomp, which is not allowed here");
    return;
  }
  REQUIRE(said == "");
}

TEST_CASE("every device write cut short: all of it gets there") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  for (std::uint64_t seed = first; seed < first + rounds(20); ++seed) {
    CAPTURE(seed);
    Program program(folder, seed, {.short_percent = 100});
    REQUIRE(program.run(150) == "");
    REQUIRE_FALSE(program.met_failure());
  }
}

TEST_CASE("a power loss at any call leaves nothing older than the last barrier") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  unsigned cut = 0;
  for (std::uint64_t seed = first; seed < first + rounds(120); ++seed) {
    CAPTURE(seed);
    Program program(folder, seed,
                    {.short_percent = seed % 2 == 0 ? 20u : 0u, .cut_at_event = 1 + seed % 150});
    REQUIRE(program.run(200) == "");
    if (program.drive().power_is_gone()) ++cut;
  }
  REQUIRE(cut > rounds(60));
}

TEST_CASE("a failed write or flush is told, is final, and is never repeated") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  unsigned met = 0;
  for (std::uint64_t seed = first; seed < first + rounds(120); ++seed) {
    CAPTURE(seed);
    DriveFaults faults;
    faults.caches = seed % 3 == 0;
    faults.short_percent = 10;
    (seed % 2 == 0 ? faults.fail_write : faults.fail_sync) = 1 + seed % 20;
    Program program(folder, seed, faults);
    REQUIRE(program.run(200) == "");
    if (program.met_failure()) ++met;
  }
  REQUIRE(met > rounds(60));
}

TEST_CASE("a read that fails is told, and fails nothing else") {
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t first = fresh_seed();
  unsigned went_on = 0;
  for (std::uint64_t seed = first; seed < first + 60; ++seed) {
    CAPTURE(seed);
    DriveFaults faults;
    faults.caches = seed % 3 == 0;
    faults.short_percent = seed % 2 == 0 ? 20 : 0;
    faults.fail_read = 1 + seed % 30;
    Program program(folder, seed, faults);
    REQUIRE(program.run(200) == "");
    if (program.drive().read_failed() && !program.met_failure()) ++went_on;
  }
  REQUIRE(went_on > 20);
}

TEST_CASE("writers beside the committer: what each had waited for is behind the next barrier",
          "[threads]") {
  constexpr unsigned kWriters = 3;
  constexpr std::uint64_t kPages = 24;
  const Alarm alarm;
  const Folder folder(memory_folder());
  const std::uint64_t seed = fresh_seed();
  CAPTURE(seed);
  const auto file = folder.create();
  SimDrive drive(file, {}, seed, {.short_percent = 20});
  BlockTuning tuning;
  tuning.buffer_bytes = MiB;
  tuning.queue_depth = 4;
  tuning.io_uring = tuning.direct = false;
  const auto medium = make_block_medium(file, {.block = tuning}, drive.seam());
  medium->reserve(kWriters * kPages * kPageBytes);

  std::mutex mutex;
  std::vector<std::uint64_t> waited(kWriters * kPages);  // the round that each page had
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (unsigned w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      std::mt19937_64 random(seed + w + 1);
      std::map<std::uint64_t, std::uint64_t> written;
      for (std::uint64_t round = 1; !stop; ++round) {
        const std::uint64_t page = w * kPages + random() % kPages;
        const std::vector<std::uint64_t> words(kPageBytes / 8, round);
        const Ticket ticket = medium->write(page * kPageBytes, std::as_bytes(std::span(words)), 0);
        written[page] = round;
        if (random() % 4 != 0) continue;
        medium->wait(ticket);
        const std::lock_guard lock(mutex);
        for (const auto& [each, its_round] : written) waited[each] = its_round;
        written.clear();
      }
    });
  }
  std::string wrong;
  for (unsigned barrier = 0; barrier < 100 && wrong.empty(); ++barrier) {
    std::vector<std::uint64_t> least;
    {
      const std::lock_guard lock(mutex);
      least = waited;
    }
    medium->barrier();
    const Bytes durable = drive.durable_copy();
    for (std::uint64_t at = 0; at < durable.size(); at += kSector) {
      std::uint64_t round = 0;
      std::memcpy(&round, &durable[at], sizeof round);
      if (round < least[at / kPageBytes]) wrong = "an older value at " + std::to_string(at);
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  REQUIRE(wrong == "");
  REQUIRE(drive.wrongs().empty());
}

#endif
