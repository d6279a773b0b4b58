// Versions that readers hold: media/pins.hpp, and what a writer makes of it.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "asleep.hpp"
#include "kept_versions.hpp"
#include "media/pins.hpp"
#include "media/pmem/medium.hpp"
#include "memory_pins.hpp"
#include "refused_call.hpp"
#include "scratch.hpp"
#include "store/state/unknown_pins.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBytes = 5000;

// A shelf in a file, on a mapped medium and on a drive; several tests open it anew.
struct Place {
  scratch::Directory directory{
      GENERATE(as<std::filesystem::path>{}, "/dev/shm", std::filesystem::temp_directory_path())};
  std::filesystem::path path = directory / "pinned.shelf";
  OpenOptions options;

  explicit Place(unsigned in_flight, unsigned keep = 0) {
    options.in_flight = in_flight;
    options.keep = keep;
    options.placement = Placement::whole;
    options.pin_timeout = 20ms;
  }
  Shelf writer() const { return Shelf::open(path, options); }
  Shelf writer(OnPin on_pin) const {
    OpenOptions other = options;
    other.on_pin = on_pin;
    return Shelf::open(path, other);
  }
  Shelf reader() const {
    OpenOptions reading;
    reading.mode = Mode::read;
    return Shelf::open(path, reading);
  }
};

void commit_to(Shelf& shelf, unsigned last) {
  while (shelf.version() < last) commit(shelf, static_cast<unsigned>(shelf.version()) + 1);
}

bool has(const Shelf& shelf, std::uint64_t version) {
  return value_at(shelf, version, "w") == pattern(kBytes, static_cast<unsigned>(version));
}

std::string text_of(const std::function<void()>& call) {
  const auto error = error_of(call);
  REQUIRE(error);
  return error->what();
}

}  // namespace

TEST_CASE("a version that a reader holds stays as it is, and its writer goes on") {
  const Place place(2);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  make(writer, "goes", kBytes).write(pattern(kBytes, 90));
  make(writer, "changes", kBytes).write(pattern(kBytes, 91));
  commit_to(writer, 4);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin();
  CHECK(pin->version() == 4);
  writer.erase("goes");
  writer.replace("changes", DType::uint8, std::vector<std::int64_t>{3}).write(pattern(3, 92));
  for (unsigned version = 5; version < 30; ++version) {
    make(writer, "new" + std::to_string(version), kBytes).write(pattern(kBytes, version));
    commit_to(writer, version);
    CHECK(has(reader, 4));
    CHECK((value_at(reader, 4, "goes") == pattern(kBytes, 90)));
    CHECK((value_at(reader, 4, "changes") == pattern(kBytes, 91)));
    if (version % 10 == 0) REQUIRE(reader.refresh());
  }
  CHECK(numbers(writer) == std::vector<std::uint64_t>{29});  // it is the reader's
  CHECK(code_of([&] { writer.at(4); }) == Errc::stale);
  const std::uint64_t free_bytes = writer.free_bytes();
  pin.reset();
  commit_to(writer, 31);
  CHECK(numbers(writer) == std::vector<std::uint64_t>{31});
  CHECK(writer.free_bytes() > free_bytes);  // what was erased came back
}

TEST_CASE("a writer without a slot to spare waits for who holds a version, and names it") {
  const Place place(1);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin(3);
  commit_to(writer, 4);
  TensorRef w = writer.find("w").value();
  const std::string text = text_of([&] { w.write(pattern(kBytes, 5)); });
  CHECK(contains(text, "version 3 of " + place.path.string()));
  CHECK(contains(text, "pid " + std::to_string(::getpid()) + ", for "));
  CHECK(code_of([&] { w.write(pattern(kBytes, 5)); }) == Errc::pinned);
  CHECK(code_of([&] { writer.persist(); }) == Errc::pinned);  // the manifest has no room either
  CHECK(has(reader, 3));
  pin.reset();
  commit_to(writer, 9);
  CHECK((value(w) == pattern(kBytes, 9)));
}

TEST_CASE("a wait for a reader ends when it lets go, and can be given up") {
  Place place(1);
  std::atomic<int> calls = 0;
  std::atomic<bool> gives_up = false;
  place.options.pin_timeout = 1h;
  place.options.while_waiting = [&] {
    ++calls;
    if (gives_up) throw std::runtime_error("given up");
  };
  Shelf writer = place.writer();
  commit_to(writer, 3);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin();
  commit_to(writer, 4);
  gives_up = true;
  CHECK_THROWS_WITH(writer.find("w")->write(pattern(kBytes, 5)), "given up");
  gives_up = false;
  std::thread lets_go([&] {
    for (const int before = calls; calls < before + 3;) std::this_thread::yield();
    pin.reset();
  });
  writer.find("w")->write(pattern(kBytes, 5));
  lets_go.join();
  writer.persist();
  CHECK(has(writer, 5));
}

TEST_CASE("a wait for a user's pin counts from when nothing else is waited for") {
  constexpr auto kPatience = 1s;
  Place place(1);
  std::optional<VersionPin> user;
  std::optional<VersionPin> copy;
  std::optional<std::chrono::steady_clock::time_point> begun;
  std::function<void()> look = [] {};
  place.options.pin_timeout = kPatience;
  place.options.while_waiting = [&] { look(); };
  Shelf writer = place.writer();
  commit_to(writer, 3);
  user.emplace(writer.pin());
  commit_to(writer, 4);
  int looks_behind = 0;
  look = [&] {
    if (!begun) {  // behind the first look, which the user's pin alone was waited for
      begun = std::chrono::steady_clock::now();
      copy.emplace(writer.pin(4, PinnedFor::copy));
    }
    if (std::chrono::steady_clock::now() - *begun < kPatience + 300ms) return;
    copy.reset();
    if (++looks_behind == 3) user.reset();
  };
  const auto error = error_of([&] { writer.find("w")->write(pattern(kBytes, 5)); });
  look = [] {};
  copy.reset();  // for closing waits for them
  user.reset();
  CHECK_FALSE(error);
  commit_to(writer, 5);
  CHECK(has(writer, 5));
}

TEST_CASE("a writer that outruns goes on, and the reader hears of it") {
  const Place place(1);
  Shelf writer = place.writer(OnPin::outrun);
  commit_to(writer, 3);
  Shelf reader = place.reader();
  const VersionPin pin = reader.pin();
  commit_to(writer, 9);
  CHECK(code_of([&] { value_at(reader, 3, "w"); }) == Errc::stale);
}

TEST_CASE("what its writer has given up is not held") {
  const Place place(1);
  Shelf writer = place.writer();
  commit_to(writer, 1);
  Shelf reader = place.reader();
  commit_to(writer, 5);
  CHECK(code_of([&] { reader.pin(1); }) == Errc::stale);
  const VersionPin pin = reader.pin();  // goes on to the newest
  CHECK(pin.version() == 5);
  CHECK(has(reader, 5));
  commit_to(writer, 6);
  CHECK(code_of([&] { writer.find("w")->write(pattern(kBytes, 7)); }) == Errc::pinned);
}

TEST_CASE("the newest version can be held beside a writer that never rests") {
  Place place(2);
  place.options.pin_timeout = 1h;
  Shelf writer = place.writer();
  commit_to(writer, 1);
  Shelf reader = place.reader();
  std::atomic<bool> ends = false;
  std::thread writes([&] {
    for (unsigned version = 2; !ends; ++version) {
      writer.find("w")->write(pattern(kBytes, version));
      writer.persist();
    }
  });
  for (unsigned i = 0; i < rounds(100); ++i) {
    const VersionPin pin = reader.pin();
    for (int times = 0; times < 3; ++times) {
      if (!has(reader, pin.version())) FAIL_CHECK("version " << pin.version() << " changed");
    }
  }
  ends = true;
  writes.join();
}

TEST_CASE("an opening waits for who holds a version that it does not know") {
  const Place place(2);
  std::optional<Shelf> writer(place.writer());
  commit_to(*writer, 3);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin();
  writer.reset();
  writer.emplace(place.writer());  // 3 is retained: it knows of it
  commit_to(*writer, 6);
  CHECK(has(reader, 3));
  writer.reset();
  CHECK(contains(text_of([&] { place.writer(); }), "version 3 of "));
  CHECK(code_of([&] { place.writer(); }) == Errc::pinned);
  CHECK(has(reader, 3));
  {
    Shelf outruns = place.writer(OnPin::outrun);
    commit_to(outruns, 9);
    CHECK(code_of([&] { value_at(reader, 3, "w"); }) == Errc::stale);
  }
  pin.reset();
  CHECK(place.writer().version() == 9);
  OpenOptions wrong = place.options;
  wrong.pin_timeout = std::chrono::duration<double>(-1);
  CHECK(code_of([&] { Shelf::open(place.path, wrong); }) == Errc::bad_argument);
}

TEST_CASE("an opening knows of no version right before or behind those that it found") {
  for (const std::uint64_t held : {4U, 5U, 6U, 7U}) {
    CAPTURE(held);
    const auto pins = std::make_shared<SharedPins>();
    pins->versions.insert(held);
    PinnedMedium medium(memory_of(kMiB), pins);
    const auto error = error_of([&] {
      await_unknown_pins(medium, {OnPin::wait, 0s, Patience(), "the shelf"}, 5, 6);
    });
    CHECK(error.has_value() == (held < 5 || held > 6));
    if (error) CHECK(error->code() == Errc::pinned);
  }
}

TEST_CASE("who holds a version is shown its bytes in place") {
  const Place place(2);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  Shelf reader = place.reader();
  const auto leased = [&] { return reader.at(3).find("w").value().lease(); };
  CHECK_FALSE(leased().in_place());  // nobody holds it
  std::optional<VersionPin> pin = reader.pin();
  std::optional<Lease> lease = leased();
  CHECK(lease->in_place() == reader.info().promises.mapped);
  pin.reset();  // the lease holds it on
  commit_to(writer, 20);
  CHECK(
      (std::vector<std::byte>(lease->bytes().begin(), lease->bytes().end()) == pattern(kBytes, 3)));
  writer.close();
  if (!lease->in_place()) return;
  CHECK(contains(text_of([&] { place.writer(OnPin::outrun); }), "shown in place"));
  CHECK(code_of([&] { place.writer(OnPin::outrun); }) == Errc::pinned);
  CHECK(code_of([&] { place.writer(); }) == Errc::pinned);
  lease.reset();
  Shelf outruns = place.writer(OnPin::outrun);
  REQUIRE(reader.refresh());
  const VersionPin again = reader.pin();
  CHECK_FALSE(reader.at(again.version()).find("w").value().lease().in_place());
}

TEST_CASE("what a process holds goes with it") {
  const Place place(1);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  int ready[2] = {};
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Shelf reader = place.reader();
    const VersionPin pin = reader.pin();
    const bool told = ::write(ready[1], "x", 1) == 1;
    while (told) ::pause();
    ::_exit(1);
  }
  char x = 0;
  REQUIRE(::read(ready[0], &x, 1) == 1);
  commit_to(writer, 4);
  CHECK(contains(text_of([&] { writer.find("w")->write(pattern(kBytes, 5)); }),
                 "pid " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  commit_to(writer, 9);
  CHECK(has(writer, 9));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a child that lets go what it inherited leaves its parent's pin") {
  const Place place(2);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin();
  std::optional<Lease> lease = reader.at(3).find("w").value().lease();
  pin.reset();
  const bool in_place = lease->in_place();
  CHECK(scratch::exited_well(scratch::in_child([&] {
    lease.reset();
    return true;
  })));
  if (!in_place) return;
  commit_to(writer, 20);
  CHECK(
      (std::vector<std::byte>(lease->bytes().begin(), lease->bytes().end()) == pattern(kBytes, 3)));
}

TEST_CASE("what a reader has let go is room for the next tensor") {
  Place place(2);
  place.options.max_size_bytes = 40 * kMiB;
  Shelf writer = place.writer();
  make(writer, "large", 8 * kMiB).write(pattern(8 * kMiB, 1));
  commit_to(writer, 1);
  Shelf reader = place.reader();
  std::optional<VersionPin> pin = reader.pin();
  writer.erase("large");
  commit_to(writer, 2);
  CHECK(code_of([&] { make(writer, "next", 8 * kMiB); }) == Errc::full);
  pin.reset();
  make(writer, "next", 8 * kMiB).write(pattern(8 * kMiB, 2));
  commit_to(writer, 3);
}

TEST_CASE("a shelf can be closed while a commit waits for a reader") {
  Place place(1);
  std::atomic<unsigned> looks_taken = 0;
  place.options.pin_timeout = 1h;
  place.options.while_waiting = [&] { ++looks_taken; };
  for (unsigned round = 0; round < rounds(40); ++round) {
    std::optional<Shelf> writer(place.writer());
    commit_to(*writer, static_cast<unsigned>(writer->version()) + 1);
    Shelf reader = place.reader();
    std::optional<VersionPin> pin = reader.pin();
    writer->persist();
    std::thread waits([&] {
      const auto error = error_of([&] { writer->persist(); });
      if (!error || error->code() != Errc::closed) std::abort();
    });
    std::vector<std::thread> looks;  // so that who closes is in line while the other waits its turn
    for (int i = 0; i < 3; ++i) {
      looks.emplace_back([&] {
        while (!error_of([&] { static_cast<void>(writer->versions()); })) {
        }
      });
    }
    const unsigned seen = looks_taken;
    while (looks_taken < seen + 1 + round % 4) std::this_thread::yield();
    writer->close();
    waits.join();
    for (std::thread& each : looks) each.join();
    pin.reset();
  }
}

TEST_CASE("a write that views alone keep from a slot says so, whoever holds versions besides") {
  Place place(2);
  place.options.pin_timeout = 1h;
  place.options.tier = "pmem";
  place.options.while_waiting = [] { throw std::runtime_error("it waits"); };
  if (!pmem_supported() || place.path.parent_path().parent_path() != "/dev/shm") return;
  Shelf writer = place.writer();
  commit_to(writer, 1);
  Shelf reader = place.reader();
  const bool own = GENERATE(true, false);
  const VersionPin pin = own ? writer.pin() : reader.pin();
  std::vector<Lease> leases;
  const auto lease = [&] { leases.push_back(writer.find("w")->lease()); };
  lease();
  for (unsigned version = 2; version <= 3; ++version) {  // one in each of three slots
    commit_to(writer, version);
    lease();
  }
  CHECK(code_of([&] { writer.find("w")->write(pattern(kBytes, 4)); }) == Errc::leased);
  leases.erase(leases.begin());  // of the version that is held
  CHECK_THROWS_WITH(writer.find("w")->write(pattern(kBytes, 4)), "it waits");
  leases.erase(leases.begin());
  commit_to(writer, 4);
  CHECK(has(own ? writer : reader, 1));
}

TEST_CASE(
    "what the file system does not answer counts as held, and what it has no locks for does not") {
  const auto [error, held] = GENERATE(table<int, bool>({{EIO, true},
                                                        {ENOLCK, true},
                                                        {EINTR, true},
                                                        {EINVAL, false},
                                                        {ENOSYS, false},
                                                        {EOPNOTSUPP, false}}));
  CAPTURE(error);
  const Place place(2);
  place.writer();
  const auto pins = make_pin_table(std::make_shared<ShelfFile>(ShelfFile::open(place.path, true)));
  CHECK(in_child([&]() -> std::string {
          if (!refuse_call(SYS_fcntl, error)) return "no seccomp";
          if (pins->any_readers() != held) return "readers";
          if (pins->find(3, 7) != (held ? std::optional<std::uint64_t>(3) : std::nullopt)) {
            return "a version";
          }
          if (pins->holder(3).pid != 0) return "a holder";
          return pins->is_outrun() == held ? "" : "outrun";
        }) == "");
}

TEST_CASE("a version whose home is gone is not held") {
  const Kept kept({.keep = 1, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf writer = kept.open();
  commit_to(writer, 2);
  const auto pins = std::make_shared<SharedPins>();
  Shelf reader =
      Shelf::open(std::make_unique<PinnedMedium>(kept.medium, pins), kept.options(Mode::read));
  CHECK(reader.pin(1).version() == 1);
  const std::vector<std::byte> zeros(kPageBytes);
  for (unsigned copy = 0; copy < format::kCopies; ++copy) {
    kept.medium->wait(kept.medium->write(format::root_at(format::home_of(1, 3), copy), zeros, 0));
  }
  CHECK(code_of([&] { reader.pin(1); }) == Errc::stale);
  CHECK(pins->versions.empty());
  CHECK(reader.pin(2).version() == 2);
}

TEST_CASE("a version on its way is waited for, however long a reader may be") {
  const Kept kept({.keep = 0, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  const auto pins = std::make_shared<SharedPins>();
  std::atomic<int> looks = 0;
  OpenOptions options = kept.options();
  options.pin_timeout = 0ms;
  options.while_waiting = [&] { ++looks; };
  const auto held = std::make_shared<HeldMedium>(kept.medium, kept.doors);
  Shelf shelf = Shelf::open(std::make_unique<PinnedMedium>(held, pins), options);
  commit_to(shelf, 1);
  pins->versions.insert(1);
  commit_to(shelf, 2);
  shelf.find("w")->write(pattern(kBytes, 3));
  kept.doors->barrier.shut();
  auto third = shelf.persist_async(3);
  kept.doors->barrier.await_someone();
  std::optional<Error> error;
  std::thread assigns(
      [&] { error = error_of([&] { shelf.find("w")->write(pattern(kBytes, 4)); }); });
  while (looks < 5) std::this_thread::yield();
  kept.doors->barrier.open();
  assigns.join();
  third.get();
  CHECK_FALSE(error);
  shelf.persist();
  CHECK(has(shelf, 4));
  pins->versions.clear();
}

TEST_CASE("a version that this process holds takes one slot, and not all that follow it") {
  const Kept kept({.keep = 1, .in_flight = 2, .mapped = true, .placement = Placement::by_chunk});
  Shelf shelf = kept.open();
  commit_to(shelf, 3);
  std::optional<VersionPin> pin = shelf.pin();
  commit_to(shelf, 20);
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{3, 19, 20});
  CHECK(has(shelf, 3));
  pin.reset();
  CHECK(numbers(shelf) == std::vector<std::uint64_t>{19, 20});
}

TEST_CASE("where nothing can be locked, a version is copied out all the same") {
  struct Unlockable final : ForwardingMedium {
    struct Pins final : MemoryPins {
      Pins() : MemoryPins(std::make_shared<SharedPins>()) {}
      std::chrono::steady_clock::time_point appear() override {
        throw Error(Errc::io, "no locks here", "go elsewhere");
      }
    };
    using ForwardingMedium::ForwardingMedium;
    PinTable* pins() override { return &pins_; }
    Pins pins_;
  };
  const Kept kept({.keep = 0, .in_flight = 1, .mapped = true, .placement = Placement::whole});
  Shelf writer = kept.open();
  commit_to(writer, 1);
  Shelf reader = Shelf::open(std::make_unique<Unlockable>(kept.medium), kept.options(Mode::read));
  CHECK(code_of([&] { reader.pin(); }) == Errc::io);
  const scratch::Directory directory;
  const auto path = directory / "copy.shelf";
  reader.snapshot(path);
  CHECK((value(*Shelf::open(path).find("w")) == pattern(kBytes, 1)));
  CHECK(reader.versions().size() == 1);
}

namespace {

// Of one file: a writer's table of pins, and two of readers.
struct Tables {
  scratch::Directory directory{"/dev/shm"};
  std::array<std::unique_ptr<PinTable>, 3> of;

  Tables() {
    const auto path = directory / "file";
    scratch::put(path, "some bytes");
    for (bool writable = true; auto& table : of) {
      table = make_pin_table(
          std::make_shared<ShelfFile>(ShelfFile::open(path, std::exchange(writable, false))));
    }
  }
};

}  // namespace

TEST_CASE("a table of pins tells who holds what") {
  const Tables tables;
  const auto& [writer, reader, other] = tables.of;
  const auto find = [&] { return writer->find(0, format::kMaxVersion); };
  CHECK_FALSE(find());
  CHECK_FALSE(writer->any_readers());
  const auto heard_at = reader->appear();
  CHECK(reader->appear() == heard_at);
  CHECK(heard_at > std::chrono::steady_clock::now());
  std::this_thread::sleep_until(heard_at);
  CHECK(writer->any_readers());
  CHECK_FALSE(reader->any_readers());
  CHECK(writer->holder(7).pid == 0);
  CHECK(contains(text_of([&] { throw_pinned("run.shelf", *writer, 7, "its slot is needed"); }),
                 "held by a reader, and its slot"));
  reader->take(7);
  reader->take(7);
  reader->take(8);
  other->take(8);
  other->take(1000);
  CHECK(find() == 7);
  CHECK(writer->find(8, 8) == 8);
  CHECK(writer->find(9, 2000) == 1000);
  CHECK(writer->find(9, 999) == std::nullopt);
  CHECK(writer->find(9, 8) == std::nullopt);
  CHECK(writer->holder(1000).pid == static_cast<std::uint64_t>(::getpid()));
  CHECK(writer->holder(1000).since_seconds > 1'700'000'000);
  other->take(1000 + 64);  // whose holder's name lies where that of 1000 does
  other->drop(1000 + 64);
  CHECK(writer->holder(1000).pid == static_cast<std::uint64_t>(::getpid()));
  reader->drop(7);
  CHECK(find() == 7);
  reader->drop(7);
  reader->drop(8);
  CHECK(find() == 8);  // that of the other
  CHECK_FALSE(other->find(0, 999));
  other->drop(8);
  CHECK(find() == 1000);
  reader->take(500);
  reader->take_all();
  CHECK(find() == 0);
  CHECK(writer->find(7, format::kMaxVersion) == 7);
  reader->drop_all();
  CHECK(find() == 500);
  CHECK(writer->find(501, format::kMaxVersion) == 1000);
  reader->drop(500);
  CHECK(find() == 1000);
  other->drop(1000);
  CHECK_FALSE(find());
  CHECK(reader->take_firm());
  CHECK(reader->take_firm());
  CHECK_FALSE(writer->outrun());
  reader->drop_firm();
  CHECK_FALSE(writer->outrun());
  reader->drop_firm();
  CHECK(writer->outrun());
  CHECK_FALSE(other->take_firm());
  CHECK(writer->outrun());
}

TEST_CASE("a table of pins gives back what it took, and nothing in a child") {
  const Tables tables;
  const auto& [writer, reader, other] = tables.of;
  reader->take_all();
  reader->take(5);
  reader->drop(5);
  CHECK(writer->find(5, 5) == 5);
  CHECK(writer->holder(5).pid == 0);
  CHECK(scratch::exited_well(scratch::in_child([&] {
    reader->drop_all();
    return true;
  })));
  CHECK(writer->find(5, 5) == 5);
  reader->drop_all();
  CHECK_FALSE(writer->find(0, format::kMaxVersion));
  REQUIRE(reader->take_firm());
  CHECK(scratch::exited_well(scratch::in_child([&] {
    reader->drop_firm();
    return true;
  })));
  CHECK_FALSE(writer->outrun());
  CHECK(other->take_firm());
}

TEST_CASE("a version that is let go is not shown in place") {
  const Place place(2);
  Shelf writer = place.writer();
  commit_to(writer, 3);
  Shelf reader = place.reader();
  { const VersionPin pin = reader.pin(); }
  CHECK_FALSE(reader.at(3).find("w").value().lease().in_place());
}

TEST_CASE("who waits for a slot is woken, though its version was held here and elsewhere") {
  const std::shared_ptr<Medium> medium = memory_of(64 * kMiB);
  const auto pins = std::make_shared<SharedPins>();
  Shelf::format(*medium, {.keep = 0, .in_flight = 1});
  const auto open = [&](Mode mode) {
    return Shelf::open(std::make_unique<PinnedMedium>(medium, pins),
                       {.mode = mode, .placement = Placement::by_chunk, .pin_timeout = 1h});
  };
  Shelf shelf = open(Mode::update);
  commit(shelf, 1);
  Shelf reader = open(Mode::read);
  std::optional<VersionPin> elsewhere(reader.pin());
  std::optional<VersionPin> here;
  std::atomic<int> stage = 0;
  std::thread holder([&] {  // which is there till the end: another one may have its id
    here.emplace(shelf.pin(1));
    stage = 1;
    stage.notify_all();
    stage.wait(1);
    here.reset();
    stage = 3;
    stage.notify_all();
    stage.wait(3);
  });
  stage.wait(0);
  commit(shelf, 2);
  Waiter writer([&] { shelf.find("w")->write(pattern(5000, 3)); });
  REQUIRE(writer.waits());
  stage = 2;
  stage.notify_all();
  stage.wait(2);
  elsewhere.reset();
  writer.join();
  stage = 4;
  stage.notify_all();
  holder.join();
  shelf.persist();
  CHECK((value(*shelf.find("w")) == pattern(5000, 3)));
}
