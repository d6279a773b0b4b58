#include "pin_plays.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "folder.hpp"
#include "model.hpp"
#include "tests/memory_pins.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::int64_t kSize = 5000;

// A writer in memory, and a reader of its version 1.
struct PinPlay {
  std::shared_ptr<Medium> memory = testing::memory_of(std::uint64_t{64} << 20);
  std::shared_ptr<testing::SharedPins> pins = std::make_shared<testing::SharedPins>();
  Shelf writer;
  Shelf reader;

  explicit PinPlay(OnPin on_pin, unsigned in_flight = 1, unsigned keep = 0)
      : writer(formatted(on_pin, in_flight, keep)), reader(opened(Mode::read, OnPin::wait)) {}

  Shelf formatted(OnPin on_pin, unsigned in_flight, unsigned keep) const {
    Shelf::format(*memory, {.keep = keep, .in_flight = in_flight});
    Shelf shelf = opened(Mode::update, on_pin);
    shelf.create("a", DType::uint8, std::array{kSize});
    commit(shelf, 1);
    return shelf;
  }
  Shelf opened(Mode mode, OnPin on_pin, std::chrono::seconds patience = {}) const {
    return Shelf::open(std::make_unique<testing::PinnedMedium>(memory, pins),
                       {.mode = mode, .on_pin = on_pin, .pin_timeout = patience});
  }
  // The writer anew; without patience for who holds a version.
  Shelf reopened(std::function<void()> while_waiting) {
    writer.close();
    return Shelf::open(std::make_unique<testing::PinnedMedium>(memory, pins),
                       {.pin_timeout = {}, .while_waiting = std::move(while_waiting)});
  }
  static void commit(Shelf& shelf, std::uint64_t serial) {
    shelf.find("a")->write(stamped(kSize, serial));
    shelf.persist(serial);
  }
};

// What is shown in place of a version that a reader holds stays, whatever the writer does.
std::string problem_in_place(PinPlay& play) {
  const VersionPin pin = play.reader.pin(1);
  const Lease lease = play.reader.at(1).find("a")->lease();
  for (std::uint64_t serial = 2; serial < 5; ++serial) PinPlay::commit(play.writer, serial);
  const auto expected = stamped(kSize, 1);
  const bool same =
      std::equal(expected.begin(), expected.end(), lease.bytes().begin(), lease.bytes().end());
  return same ? "" : "a writer wrote over what a reader shows in place";
}

}  // namespace

std::string what_is_given_up_is_not_held() {
  PinPlay play(OnPin::wait, 3);  // four homes: that of version 1 is not used again yet
  for (std::uint64_t serial = 2; serial < 5; ++serial) PinPlay::commit(play.writer, serial);
  try {
    const VersionPin pin = play.reader.pin(1);
  } catch (const Error& error) {
    if (error.code() == Errc::stale) return "";
    throw;
  }
  return "a reader holds a version that was written over before";
}

// On a file, whose pins a writer looks for now and then alone.
std::string what_is_held_beside_a_restless_writer_stays() {
  const Folder folder("/dev/shm");  // where a commit takes a fraction of the time between two looks
  Shelf writer = Shelf::open(folder.shelf(), {.keep = 10});  // so that a reader is fast enough
  writer.create("a", DType::uint8, std::array{kSize});
  PinPlay::commit(writer, 1);
  std::atomic<bool> ends = false;
  std::thread writes([&] {
    for (std::uint64_t serial = 2; !ends; ++serial) PinPlay::commit(writer, serial);
  });
  std::string problem;
  // Rounds in which the writer was faster show nothing: beside other work most are such.
  int held_rounds = 0;
  const auto limit = [&] { return held_rounds == 0 ? 20000 : 2000; };
  for (int rounds = 0; rounds < limit() && held_rounds < 50 && problem.empty(); ++rounds) {
    try {
      Shelf reader = Shelf::open(folder.shelf(), {.mode = Mode::read});
      const VersionPin pin = reader.pin();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++held_rounds;
      const RetainedVersion held = reader.at(pin.version());
      std::vector<std::byte> bytes(kSize);
      held.find("a")->read(bytes);
      if (bytes != stamped(kSize, held.info().step.value())) problem = "it shows another's bytes";
    } catch (const Error& error) {
      // Else the writer was always faster, before anything was held.
      if (error.code() != Errc::stale) problem = error.what();
    }
  }
  ends = true;
  writes.join();
  if (problem.empty() && held_rounds == 0) return "no reader of 20,000 was fast enough to hold one";
  return problem;
}

// By one opening, the second time when its writer has gone on; and then the first of the pins ends.
std::string what_is_held_can_be_held_twice() {
  PinPlay play(OnPin::wait, 3);
  std::optional<VersionPin> first = play.reader.pin(1);
  for (std::uint64_t serial = 2; serial < 4; ++serial) PinPlay::commit(play.writer, serial);
  const VersionPin second = play.reader.pin(1);
  first.reset();
  for (std::uint64_t serial = 4; serial < 7; ++serial) PinPlay::commit(play.writer, serial);
  std::vector<std::byte> bytes(kSize);
  play.reader.at(1).find("a")->read(bytes);
  return bytes == stamped(kSize, 1) ? "" : "a version that is held shows another's bytes";
}

// By another thread than the one that needs its slot, which waits within the gate.
std::string own_pins_are_waited_for_so_long() {
  PinPlay play(OnPin::wait);
  int looks = 0;
  Shelf writer = play.reopened([&] {
    if (++looks > 1000) throw std::runtime_error("a write waits for a pin of its own process");
  });
  std::optional<VersionPin> pin;
  std::thread([&] { pin.emplace(writer.pin()); }).join();
  PinPlay::commit(writer, 2);
  try {
    writer.find("a")->write(stamped(kSize, 3));
    return "a write took a slot of a version that its own process holds";
  } catch (const Error& error) {
    if (error.code() != Errc::pinned) throw;
  } catch (const std::runtime_error& without_end) {
    return without_end.what();
  }
  pin.reset();
  PinPlay::commit(writer, 3);
  return "";
}

// Though the patience with users is none.
std::string what_copies_is_waited_for() {
  PinPlay play(OnPin::wait);
  std::optional<VersionPin> pin;
  int looks = 0;
  Shelf writer = play.reopened([&] {
    if (++looks == 20) pin.reset();
  });
  pin.emplace(writer.pin({}, PinnedFor::copy));
  PinPlay::commit(writer, 2);
  try {
    PinPlay::commit(writer, 3);
  } catch (const Error& error) {
    pin.reset();  // else closing waits for it
    if (error.code() == Errc::pinned) return "a write did not wait for a copy";
    throw;
  }
  return "";
}

std::string newest_is_held_where_none_is_said() {
  PinPlay play(OnPin::wait, 1, 2);  // so that the one that is shown could be held
  PinPlay::commit(play.writer, 2);
  const VersionPin pin = play.reader.pin();
  return pin.version() == play.writer.version() ? "" : "an older version is held for the newest";
}

std::string nothing_is_shown_in_place_to_who_is_outrun() {
  PinPlay play(OnPin::outrun);
  return problem_in_place(play);
}

// A reader that verifies holds the version at its begin, and goes on meanwhile to one that is
// written over before it comes to the second tensor.
std::string what_is_overtaken_in_verify_is_no_damage() {
  PinPlay play(OnPin::wait, 3);
  TensorRef last = play.writer.create("b", DType::uint8, std::array{kSize});
  const auto commit = [&](std::uint64_t serial) {
    last.write(stamped(kSize, serial));
    PinPlay::commit(play.writer, serial);
  };
  commit(2);
  play.reader.refresh();
  const VersionPin pin = play.reader.pin();
  bool went_on = false;
  const auto go_on = [&](std::uint64_t, std::uint64_t) {
    if (std::exchange(went_on, true)) return;
    commit(3);
    play.reader.refresh();
    for (std::uint64_t serial = 4; serial < 10; ++serial) commit(serial);
  };
  try {
    if (play.reader.verify(go_on).damage.empty()) return "nothing was written over";
  } catch (const Error& error) {
    if (error.code() == Errc::stale) return "";
    throw;
  }
  return "what the writer wrote over passes for damage";
}

// A reader that showed something in place keeps a writer from outrunning, and is gone at once.
std::string who_was_refused_once_outruns_at_last() {
  PinPlay play(OnPin::outrun);
  play.writer.close();
  play.pins->refusals = 1;
  play.writer = play.opened(Mode::update, OnPin::outrun, std::chrono::minutes(1));
  return problem_in_place(play);
}

}  // namespace tensorshelf::crash
