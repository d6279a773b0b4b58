#include "runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "format/layout.hpp"
#include "rng.hpp"
#include "tests/asleep.hpp"
#include "tests/format_2.hpp"

namespace tensorshelf::crash {

void mark(Log& log, Mark kind, std::uint64_t number) {
  static constexpr std::array names = {"",          "BEGAN",    "ACKED",      "OPENED", "LAST",
                                       "PREPARING", "PREPARED", "ABANDONING", "DECIDED"};
  const auto index = static_cast<std::uint64_t>(kind);
  log.events.emplace_back(MarkEvent{.number = number, .kind = index, .name = names[index]});
}

std::vector<Expected> expectations(const Recording& recording) {
  std::vector<Expected> all;
  Expected now{.incarnation = recording.incarnation,
               .prepared = recording.first_prepared,
               .surely_prepared = recording.surely_prepared};
  for (const Event& event : recording.log.events) {
    if (const auto* mark = std::get_if<MarkEvent>(&event)) {
      switch (static_cast<Mark>(mark->kind)) {
        case Mark::began:
          now.in_flight = mark->number;
          break;
        case Mark::acked:
          now.acked = mark->number;
          now.in_flight = std::max(now.in_flight, now.acked);
          break;
        case Mark::last:
          now.in_flight = mark->number;
          break;
        case Mark::opened:
          now.incarnation = mark->number;
          break;
        case Mark::preparing:
        case Mark::abandoning:
        case Mark::prepared:
          now.prepared = mark->number;
          now.surely_prepared = static_cast<Mark>(mark->kind) == Mark::prepared;
          break;
        case Mark::decided:
          now.prepared.reset();
          break;
      }
    }
    all.push_back(now);
  }
  return all;
}

Runner::Runner(Disk& disk, const Behaviour& behaviour, const Shape& shape)
    : disk_(disk), behaviour_(behaviour), serial_(0), placement_(shape.placement) {
  {
    Recorded media = recorded(disk_, recording_.log, behaviour_);
    Shelf::format(*media.first, {.keep = shape.keep, .in_flight = shape.in_flight});
    if (shape.format_version == 2) {
      testing::make_format_2(*media.first, 1 + shape.keep + shape.in_flight);
    }
    // The second is added before anything is explored: what is lost of that is refused by name.
    if (behaviour_.second_bytes != 0) {
      Shelf::open(std::move(media.first), std::move(media.also), std::move(media.mirrors),
                  {.mode = Mode::update});
    }
  }
  working_.keep = shape.keep;
  working_.in_flight = shape.in_flight;
  recording_.history.push_back(working_);
  mark(recording_.log, Mark::acked, 0);
  open();
}

Runner::Runner(Disk& disk, const Behaviour& behaviour, Recording begun, std::uint64_t incarnation,
               std::optional<std::size_t> prepared, std::optional<Placement> placement)
    : disk_(disk),
      behaviour_(behaviour),
      recording_(std::move(begun)),
      acked_(recording_.history.size() - 1),
      serial_(mixed(disk.fingerprint())),  // no stamp of the run that crashed comes again
      incarnation_(incarnation),
      placement_(placement),
      prepared_(prepared) {
  open();
  mark(recording_.log, Mark::acked, acked_);  // who has seen it will not do without it
}

Runner::~Runner() {
  if (lead_) lead_->let_go();  // closing waits for what is in flight
}

void Runner::open(std::optional<unsigned> keep, std::optional<unsigned> in_flight) {
  Lead::walk_free();
  land_all();
  leases_.clear();
  transaction_.reset();
  pipeline_.reset();
  if (shelf_) {
    shelf_.reset();
    recording_.log.events.emplace_back(DeathEvent{});
  }
  if (pinned_.hold_before(recording_.history.back().floor())) {  // which nobody knows any more
    expect(Errc::pinned, [&] { open_once(keep, in_flight); });
    recording_.log.events.emplace_back(DeathEvent{});
    pinned_.check();
    pinned_.clear();
  }
  shelf_ = open_once(keep, in_flight);
  working_ = recording_.history.back();
  changed_ = false;
  check("after opening");
  const ShelfInfo info = shelf_->info();
  if (info.recovery.degraded) working_.older.clear();  // for good
  if (info.keep != keep.value_or(working_.keep)) {
    throw std::runtime_error(fmt::format("opened with keep={}", info.keep));
  }
  working_.keep = info.keep;
  working_.in_flight = info.in_flight;
  if (info.incarnation <= incarnation_) {
    throw std::runtime_error(fmt::format("incarnation {} was given out twice", info.incarnation));
  }
  incarnation_ = info.incarnation;
  mark(recording_.log, Mark::opened, incarnation_);
  note_prepared();
}

Shelf Runner::open_once(std::optional<unsigned> keep, std::optional<unsigned> in_flight) {
  lead_ = std::make_shared<Lead>();
  watch_ = std::make_shared<FeedWatch>();
  Recorded media = recorded(disk_, recording_.log, behaviour_);
  for (auto& each : media.also) each = watched(std::move(each), watch_);
  for (auto& [of, each] : media.mirrors) each = watched(std::move(each), watch_);
  return Shelf::open(pinned_.seen_by_all(watched(led(std::move(media.first), lead_), watch_)),
                     std::move(media.also), std::move(media.mirrors),
                     {.mode = Mode::update,
                      .keep = keep,
                      .in_flight = in_flight,
                      .placement = placement_,
                      .place = place_on_both(behaviour_),
                      .threads = 2,
                      .keep_unchanged = true,
                      .pin_timeout = std::chrono::seconds(0)});
}

void Runner::check(const char* when) const {
  std::string text = difference(working_, *shelf_);
  if (text.empty() && working_.floor() > 0) {
    try {
      shelf_->at(working_.floor() - 1);
      text = "a version below the floor can be read";
    } catch (const Error& error) {
      if (error.code() != Errc::stale) throw;
    }
  }
  if (!text.empty()) throw std::runtime_error(fmt::format("{}, without a crash: {}", when, text));
}

void Runner::assign(const std::string& name, std::uint64_t offset, std::uint64_t size, How how) {
  std::vector<std::byte> bytes(size);
  stamp(bytes, name, ++serial_, offset);
  put(name, offset, bytes, how);
}

void Runner::assign_same(const std::string& name) {
  const auto& before = recording_.history.back().tensors;
  const auto was = before.find(name);
  const std::size_t size = working_.tensors.at(name).size();
  if (was == before.end() || was->second.size() != size) return assign(name, 0, size);
  put(name, 0, was->second);
}

void Runner::put(const std::string& name, std::uint64_t offset, std::span<const std::byte> bytes,
                 How how) {
  std::vector<std::byte>& tensor = working_.tensors.at(name);
  const std::span<std::byte> range = std::span(tensor).subspan(offset, bytes.size());
  const std::vector<std::byte> before(range.begin(), range.end());
  std::copy(bytes.begin(), bytes.end(), range.begin());
  try {
    beside([&] { write(name, range, offset, how); });
    changed_ = true;
  } catch (const Error& error) {
    const bool pinned = std::any_of(leases_.begin(), leases_.end(), [&](const Leased& leased) {
      return leased.name == name && leased.lease.in_place();
    });
    const bool held = (error.code() == Errc::unresolved && prepared_) ||  // it has the slot
                      (error.code() == Errc::pinned && !pinned_.empty());
    if (!held && (error.code() != Errc::leased || !pinned)) throw;
    std::copy(before.begin(), before.end(), range.begin());
  }
}

void Runner::write(const std::string& name, std::span<const std::byte> range, std::uint64_t offset,
                   How how) {
  TensorRef target = shelf_->find(name).value();
  if (how == How::here) return target.write(range, offset);
  if (how == How::lent) return lend(target, range, offset);
  in_another_thread([&] { target.write(range, offset); });
}

// The lender changes the bytes as soon as they are no longer lent.
void Runner::lend(TensorRef& target, std::span<const std::byte> range, std::uint64_t offset) {
  lender_.resize(range.size() / kPageBytes + 1);
  const auto all = std::as_writable_bytes(std::span(lender_)).first(range.size());
  std::ranges::copy(range, all.begin());
  Assignment assignment = target.assign();
  try {
    assignment.write_lent(all, offset);
  } catch (...) {
    assignment.await_lent(all);
    throw;
  }
  assignment.await_lent(all);
  std::ranges::fill(all, std::byte{0xEE});
  assignment.done();
}

void Runner::undo(const Op& op) {
  std::vector<std::byte> bytes(op.second);
  stamp(bytes, op.name, ++serial_, op.first);
  const auto all = std::span(bytes);
  TensorRef tensor = shelf_->find(op.name).value();
  beside([&] {
    Assignment assignment = tensor.assign();
    assignment.write(all.first(all.size() / 2), op.first);
    assignment.write(all.subspan(all.size() / 2), op.first + all.size() / 2);
  });
  const auto spoiled = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      if (error.code() == Errc::spoiled) return true;
      throw;
    }
    return false;
  };
  std::vector<std::byte> found(working_.tensors.at(op.name).size());
  if (!spoiled([&] { tensor.read(found); })) return;
  if (flights_.empty() && !spoiled([&] { shelf_->persist(); })) {
    throw std::runtime_error("what an assignment spoiled is committed (I13)");
  }
  assign(op.name, 0, found.size());
}

void Runner::lease(const std::string& name, bool committed) {
  const Model& model = committed ? recording_.history[acked_] : working_;
  const TensorRef tensor = shelf_->find(name).value();
  leases_.push_back(
      {name, committed ? tensor.lease_committed() : tensor.lease(), model.tensors.at(name)});
}

void Runner::check_leases() const {
  for (const Leased& leased : leases_) {
    const auto bytes = leased.lease.bytes();
    if (!std::equal(bytes.begin(), bytes.end(), leased.bytes.begin(), leased.bytes.end())) {
      throw std::runtime_error(
          fmt::format("what a lease of {} shows has changed (I3)", leased.name));
    }
  }
  pinned_.check();
}

void Runner::refuse(const std::string& name, std::int64_t size) {
  try {
    beside([&] { shelf_->create(name, DType::uint8, std::array{size}); });
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    return;
  }
  throw std::runtime_error(fmt::format("{} found room beyond the medium", name));
}

// What the attempt that is open becomes.
Model Runner::next_version(bool with_step) const {
  Model next = working_;
  if (with_step) next.step = recording_.history.size() * 10;  // without one, the last one stays
  Model before = recording_.history.back();
  before.older = working_.older;
  next.older = before.retained_by_next(next.keep);
  ++next.version;
  return next;
}

void Runner::persist(bool with_step, const CommitCall& call) {
  if (refused_commit([&] { call({}); })) return;
  const std::size_t index = recording_.history.size();
  Model next = next_version(with_step);
  const std::optional<std::uint64_t> stated = with_step ? next.step : std::nullopt;
  mark(recording_.log, Mark::began, index);
  recording_.history.push_back(next);  // also where it fails: it may have been flipped all the same
  const Commit commit = call(stated);
  mark(recording_.log, Mark::acked, index);
  acked_ = index;
  if (commit.version != next.version) {
    throw std::runtime_error(
        fmt::format("persist() returned version {} after {}", commit.version, working_.version));
  }
  if (commit.step != next.step) throw std::runtime_error("persist() returned another step");
  working_ = std::move(next);
  changed_ = false;
}

// ---- all operations -----------------------------------------------------------------------------

void Runner::apply(const Op& op) {
  const auto create = [&](const std::string& name, std::uint64_t size) {
    const std::array shape = {static_cast<std::int64_t>(size)};
    beside([&] { shelf_->create(name, DType::uint8, shape); });
    working_.tensors[name].assign(size, std::byte{0});
    changed_ = true;
  };
  const CommitCall commit = [this](auto step) { return shelf_->persist(step); };
  if (refused(op)) return;
  switch (op.verb) {
    case Verb::create:
      return create(op.name, op.first);
    case Verb::assign:
      return assign(op.name, 0, working_.tensors.at(op.name).size());
    case Verb::thread:
      return assign(op.name, 0, working_.tensors.at(op.name).size(), How::in_thread);
    case Verb::lend:
      return assign(op.name, 0, working_.tensors.at(op.name).size(), How::lent);
    case Verb::part:
      return assign(op.name, op.first, op.second);
    case Verb::same:
      return assign_same(op.name);
    case Verb::undo:
      return undo(op);
    case Verb::persist:
      land_all();
      return persist(true, commit);
    case Verb::quiet:
      land_all();
      return persist(false, commit);
    case Verb::async:
      land_all();
      return persist(true, [this](auto step) {
        const auto done = shelf_->persist_async(step);
        lead_->let_go_to(Phase::landed);
        return done.get();
      });
    case Verb::reopen:
      return open();
    case Verb::erase:
      shelf_->erase(op.name);
      working_.tensors.erase(op.name);
      changed_ = true;
      return;
    case Verb::replace: {
      const std::array shape = {static_cast<std::int64_t>(op.first)};
      beside([&] { shelf_->replace(op.name, DType::uint8, shape); });
      working_.tensors[op.name].assign(op.first, std::byte{0});
      changed_ = true;
      return;
    }
    case Verb::many:
      for (std::uint64_t i = 0; i < op.first; ++i) {
        const std::string name = fmt::format("m{}", i);
        create(name, op.second);
        assign(name, 0, op.second);
      }
      return;
    case Verb::named:
      for (std::uint64_t i = 0; i < op.first; ++i) {
        create(long_name(i, op.second), 8);
        assign(long_name(i, op.second), 0, 8);
      }
      return;
    case Verb::all:
      for (const auto& [name, bytes] : working_.tensors) assign(name, 0, bytes.size());
      return;
    case Verb::refuse:
      return refuse(op.name, static_cast<std::int64_t>(op.first));
    case Verb::lease:
      return lease(op.name, false);
    case Verb::hold:
      return lease(op.name, true);
    case Verb::drop:
      return leases_.clear();
    case Verb::feed:
    case Verb::offer:
    case Verb::fly:
    case Verb::tear:
    case Verb::fall:
      return feed(op);
    default:
      return apply_versions(op);
  }
}

void Runner::run(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    apply(op);
    check_leases();
  }
  land_all();
  if (transaction_) apply({.verb = Verb::forget});
  check("at the end");
}

bool Runner::medium_failed() const {
  const auto& events = recording_.log.events;
  return behaviour_.fails_at < events.size() && is<FailureEvent>(events[behaviour_.fails_at]);
}

void Runner::end_failed() {
  let_all_fail();
  transaction_.reset();
  pipeline_.reset();
  if (shelf_) check_failed_shelf();
  shelf_.reset();
}

bool Runner::run_failing(std::vector<Op> ops) {
  ops.insert(ops.end(), format::kMaxSlots, {.verb = Verb::land});
  for (const Op& op : ops) {
    const std::size_t acked = acked_;
    try {
      apply(op);
      check_leases();
    } catch (const Error& error) {
      if (!medium_failed()) throw;
      if (error.code() != Errc::io && error.code() != Errc::failed) {
        throw std::runtime_error(fmt::format("the medium failed, and the store says {}: {}",
                                             code_name(error.code()), error.what()));
      }
      end_failed();
      return true;
    }
    if (!medium_failed()) continue;
    if (behaviour_.tells_late && op.verb == Verb::reopen) return true;  // to nobody: it was closed
    // One that is told late may be told by no call but a commit, unless that was refused.
    const bool committed = op.verb == Verb::persist && acked_ != acked;
    if (!behaviour_.tells_late || committed) {
      throw std::runtime_error("a failure of the medium is not told (I8)");
    }
  }
  if (!medium_failed()) return false;
  end_failed();
  return true;
}

void Runner::check_failed_shelf() {
  for (int attempt = 0;; ++attempt) {
    try {
      if (prepared_) {
        shelf_->resolve(Decision::commit);
      } else {
        shelf_->persist();
      }
      throw std::runtime_error("after a failure of the medium it goes on to commit (I8)");
    } catch (const Error& error) {
      if (error.code() == Errc::failed) break;
      // What a commit in the background threw is thrown once more, by the next call.
      if (attempt == 0 && error.code() == Errc::io) continue;
      throw std::runtime_error(fmt::format("after a failure it says {}", error.what()));
    }
  }
  for (const std::string& name : shelf_->names()) {
    std::vector<std::byte> staged(shelf_->find(name).value().info().size_bytes, kUnread);
    try {
      shelf_->find(name).value().read(staged);
    } catch (const Error& error) {
      if (error.code() != Errc::corrupt) continue;
      throw std::runtime_error(
          fmt::format("what a failed medium lost is told as damage: {}", error.what()));
    }
  }
  const Model& committed = recording_.history[acked_];
  for (const auto& [name, bytes] : committed.tensors) {
    std::vector<std::byte> found(bytes.size(), kUnread);
    shelf_->at(committed.version).find(name).value().read(found);
    if (found != bytes) {
      throw std::runtime_error(fmt::format("after a failure, {} is not as committed (I8)", name));
    }
    const std::optional<TensorRef> tensor = shelf_->find(name);
    if (!tensor || tensor->info().size_bytes != bytes.size()) continue;  // erased, replaced
    try {
      tensor->read_committed(found);
    } catch (const Error& error) {
      if (error.code() == Errc::unknown_name) continue;  // replaced
      throw;
    }
    const bool committed_so = std::ranges::any_of(
        committed.tensors, [&](const auto& each) { return each.second == found; });
    if (!committed_so) {  // by this name, or by that which it had then
      throw std::runtime_error(fmt::format("after a failure, {} is not as committed (I8)", name));
    }
  }
}

Recording Runner::finish() {
  pinned_.clear();
  leases_.clear();
  transaction_.reset();
  pipeline_.reset();
  if (shelf_) shelf_->close();
  shelf_.reset();
  return std::move(recording_);
}

}  // namespace tensorshelf::crash
