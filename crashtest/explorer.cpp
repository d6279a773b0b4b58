#include "explorer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "beside.hpp"
#include "child.hpp"
#include "faults.hpp"
#include "survey.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::size_t kMaxDepth = 2;  // a crash, and one in what follows it

std::vector<Op> random_work(const Model& model, const Model* prepared, const Shape& shape,
                            Rng& rng) {
  std::vector<Op> ops;
  if (prepared != nullptr) {
    if (rng.one_in(2)) ops.push_back({Verb::reopen});
    const bool commit = rng.one_in(2);
    ops.push_back({commit ? Verb::resolve : Verb::abandon});
    auto rest = random_work(commit ? *prepared : model, nullptr, shape, rng);
    ops.insert(ops.end(), rest.begin(), rest.end());
    return ops;
  }
  std::vector<std::pair<std::string, std::uint64_t>> alive;
  for (const auto& [name, bytes] : model.tensors) alive.emplace_back(name, bytes.size());
  const std::uint64_t commits = 1 + rng.below(2);
  for (std::uint64_t commit = 0; commit < commits; ++commit) {
    if (rng.one_in(2)) {
      const std::string name = fmt::format("w{}", commit);
      ops.push_back({Verb::create, name, 24});
      alive.emplace_back(name, 24);
    }
    for (std::size_t i = 0; i < alive.size(); ++i) {
      const auto& [name, size] = alive[i];
      const std::uint64_t choice = rng.below(alive.size() > 4 ? 8 : 4);
      if (choice == 0 || size == 0) ops.push_back({Verb::assign, name});
      if (choice == 1 && size != 0) {
        const std::uint64_t at = rng.below(size);
        ops.push_back({Verb::part, name, at, 1 + rng.below(size - at)});
      }
      if (choice == 2 && rng.one_in(4)) {
        ops.push_back({Verb::erase, name});
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(i--));
      }
    }
    const std::uint64_t way = shape.stated ? rng.below(4) : 3;
    if (way == 0) ops.push_back({Verb::launch});
    if (way == 1) ops.push_back({Verb::discard});
    if (way == 1) ops.push_back({Verb::rollback, {}, 1});
    if (way == 1) break;  // what is alive now is another question
    if (way >= 2 && rng.one_in(4)) {
      ops.push_back({Verb::prepare});
      if (rng.one_in(2)) ops.push_back({Verb::reopen});
      ops.push_back({rng.one_in(4) ? Verb::abandon : Verb::resolve});
      if (ops.back().verb == Verb::abandon) break;
    } else if (way >= 2) {
      ops.push_back({Verb::persist, {}});
    }
    if (rng.one_in(2)) ops.push_back({Verb::reopen, {}});
  }
  return ops;
}

// The version that the shelf shows; or none, and why.
const Model* match(const Recording& recording, const Expected& expected, const Shelf& shelf,
                   std::string& why, bool newest_alone = false) {
  const std::size_t end = std::min(expected.in_flight + 1, recording.history.size());
  for (std::size_t index = expected.acked; index < end; ++index) {
    const Model& model = recording.history[index];
    std::string text;
    try {
      text = newest_alone ? newest_difference(model, shelf) : difference(model, shelf);
    } catch (const Error& error) {
      text = error.what();
    }
    if (text.empty()) return &model;
    why +=
        fmt::format("\n  is not the one {} ({}): {}",
                    index == expected.acked ? "acknowledged" : "in flight", summary(model), text);
  }
  return nullptr;
}

// What is prepared beside the version that is shown.
std::optional<std::size_t> match_prepared(const Recording& recording, const Expected& expected,
                                          const Model& model,
                                          const std::optional<Prepared>& shown) {
  auto index = expected.prepared;
  if (index && recording.prepared[*index].version <= model.version) index.reset();  // committed
  if (!shown && !expected.surely_prepared) index.reset();
  const std::string text = prepared_difference(recording, index, shown);
  if (!text.empty()) throw Violation(text);
  return index;
}

// A word, and not one of many that are stored over themselves in one page.
bool ends_words(const Log& log, std::size_t event) {
  const auto page_of = [&](std::size_t index) -> std::optional<std::uint64_t> {
    if (index >= log.events.size() || !is<WordEvent>(log.events[index])) return std::nullopt;
    return stored(log.events[index])->at / kPageBytes;
  };
  const auto page = page_of(event);
  return page && page != page_of(event + 1);
}

std::size_t next_mark(const Log& log, std::size_t event) {
  while (!is<MarkEvent>(log.events[event])) ++event;
  return event;
}

}  // namespace

Behaviour Explorer::behaviour() const {
  const std::uint64_t second = shape_.media != 2 ? 0
                               : shape_.mirrored ? kMirrorBytes
                                                 : kSecondBytes;
  return {.personality = settings_.personality,
          .max_size_bytes = kDiskBytes + second,
          .bugs = settings_.bugs,
          .granule_bytes = settings_.granule_bytes,
          .second_bytes = second,
          .mirrored = shape_.mirrored,
          .seed = settings_.seed};
}

// The first medium is lost, and its mirror shows what it showed.
void Explorer::read_mirror(const Recording& recording, const Expected& expected,
                           const Model* known) {
  if (!shape_.mirrored) return;
  // One whose filling is done again is none before that ends.
  if (!survey(disk_.bytes(), kMirrorBytes).second_serves) return;
  ++counts_.recoveries;
  Log log;
  Recorded media = recorded(disk_, log, behaviour());
  std::string why;
  try {
    const Shelf shelf = Shelf::open(std::move(media.mirrors.front().medium), {.mode = Mode::read});
    // Before somebody has opened the shelf again, and seen what the first has, the mirror may have
    // what was there before, and of older versions what is left.
    const bool opening = before_ && expected.incarnation == before_->expected.incarnation;
    if (known != nullptr) {
      why = difference(*known, shelf);
      if (!why.empty()) why = fmt::format("\n  is not {}: {}", summary(*known), why);
    } else if (match(recording, expected, shelf, why, opening) != nullptr ||
               (opening &&
                match(before_->recording, before_->expected, shelf, why, true) != nullptr)) {
      why.clear();
    }
    if (!why.empty()) {
      for (const std::string& note : shelf.info().recovery.notes) why += "\n  note: " + note;
    }
    if (!shelf.verify().damage.empty()) why += "\n  it is damaged";
  } catch (const Error& error) {
    why += fmt::format("\n  {}", error.what());
  }
  if (!why.empty()) throw Violation("the mirror alone shows a state that never was" + why);
}

Explorer::Found Explorer::recover(const Recording& recording, const Expected& expected,
                                  ReadSet& reads, const Behaviour& medium) {
  ++counts_.recoveries;
  Log log;
  Recorded media = recorded(disk_, log, medium, &reads);
  Shelf shelf = Shelf::open(std::move(media.first), std::move(media.also), std::move(media.mirrors),
                            {.mode = Mode::update});
  std::string why;
  const Model* model = match(recording, expected, shelf, why);
  if (model == nullptr) throw Violation("recovery shows a state that never was" + why);
  const ShelfInfo info = shelf.info();
  if (info.recovery.version != model->version) {
    throw Violation("recovery reports another version than it shows");
  }
  // A root of an attempt, turned to garbage in flight, cannot be told from a damaged newer one.
  if (info.recovery.degraded && !settings_.trash) throw Violation("degraded, with no damage done");
  // In doubt nobody knows what a later attempt has written over: it goes with what it was over.
  auto prepared = info.recovery.degraded
                      ? std::nullopt
                      : match_prepared(recording, expected, *model, info.recovery.prepared);
  if (info.keep != model->keep || info.in_flight != model->in_flight) {
    throw Violation(fmt::format("the split is {} + {}", info.keep, info.in_flight));
  }
  if (info.incarnation <= expected.incarnation) {
    throw Violation(fmt::format("incarnation {} was given out before (I5)", info.incarnation));
  }
  if (!shelf.verify().damage.empty()) throw Violation("verify() finds damage, with none done");
  shelf.close();
  const std::string damage = survey(disk_.bytes(), medium.second_bytes).damage;
  if (!damage.empty()) throw Violation("after recovery " + damage);
  Found found{*model, info.incarnation, prepared, std::move(log)};
  if (info.recovery.degraded) found.model.older.clear();  // for good
  read_mirror(recording, expected, &found.model);
  return found;
}

void Explorer::read_only(const Recording& recording, const Found& found) {
  const Model& model = found.model;
  ++counts_.recoveries;
  Log log;
  Recorded media = recorded(disk_, log, behaviour());
  Shelf shelf = Shelf::open(std::move(media.first), std::move(media.also), std::move(media.mirrors),
                            {.mode = Mode::read});
  const std::string text = difference(model, shelf);
  if (!text.empty()) throw Violation("opened for reading: " + text);
  const std::string prepared = prepared_difference(recording, found.prepared, shelf.prepared());
  if (!prepared.empty()) throw Violation("opened for reading: " + prepared);
  shelf.close();
  if (!log.events.empty()) throw Violation("opened for reading, and it wrote");
}

namespace {

// What follows begins in the state that was found.
Recording found_state(const Recording& before, const Model& model,
                      std::optional<std::size_t> prepared, const Expected& expected) {
  Recording after;
  after.history.push_back(model);
  after.incarnation = expected.incarnation;
  after.prepared = before.prepared;
  after.first_prepared = prepared;
  after.surely_prepared = expected.surely_prepared;
  return after;
}

}  // namespace

// What such an opening may find is what was there before, as well.
void Explorer::walk_behind(const Before& before, const Recording& after, std::size_t depth,
                           std::size_t first_event) {
  const Before* const outer = std::exchange(before_, &before);
  walk(after, depth, first_event);
  before_ = outer;
}

void Explorer::crash_in_recovery(const Recording& recording, Found found, const Expected& expected,
                                 std::size_t depth) {
  Recording after = found_state(recording, found.model, found.prepared, expected);
  after.log = std::move(found.log);
  mark(after.log, Mark::opened, found.incarnation);
  if (found.prepared) mark(after.log, Mark::prepared, *found.prepared);
  walk_behind({recording, expected}, after, depth + 1, 0);
}

void Explorer::work_on(const Recording& recording, const Found& found, const Expected& expected,
                       std::size_t depth) {
  const Disk::Mark image = disk_.mark();
  const Model* const prepared = found.prepared ? &recording.prepared[*found.prepared] : nullptr;
  Runner runner(disk_, behaviour(), found_state(recording, found.model, found.prepared, expected),
                expected.incarnation, found.prepared, shape_.placement);
  runner.run(random_work(found.model, prepared, shape_, rng_));
  const Recording after = runner.finish();
  disk_.rollback(image);
  walk_behind({recording, expected}, after, depth + 1, 0);
}

void Explorer::open_image(const Scene& image_scene, ReadSet& reads) {
  const auto& [recording, expected, depth, event, settled] = image_scene;
  const Disk::Mark image = disk_.mark();
  read_mirror(recording, expected, nullptr);
  Found found = recover(recording, expected, reads, behaviour());
  disk_.rollback(image);
  if (rng_.one_in(settings_.reader_one_in)) read_only(recording, found);
  if (depth + 1 >= kMaxDepth) return;
  if (rng_.one_in(settled ? settings_.settled_fault_one_in : settings_.fault_one_in)) {
    const FaultScene scene{recording.history,
                           expected.acked,
                           expected.in_flight,
                           found.model,
                           expected.incarnation,
                           settled,
                           recording.log,
                           event,
                           found.prepared ? &recording.prepared[*found.prepared] : nullptr};
    explore_faults(disk_, behaviour(), scene, rng_, counts_);
  }
  if (rng_.one_in(settings_.work_one_in)) work_on(recording, found, expected, depth);
  if (rng_.one_in(settings_.recovery_one_in)) {
    crash_in_recovery(recording, std::move(found), expected, depth);
  }
}

// Events before the first are taken as they are, with no crash after them.
void Explorer::walk(const Recording& recording, std::size_t depth, std::size_t first_event) {
  const std::vector<Expected> expected = expectations(recording);
  const WalkOptions options{.personality = settings_.personality,
                            .trash = settings_.trash,
                            .cap = depth == 0 ? settings_.cap : settings_.deep_cap,
                            .from_event = first_event};
  const auto context = [&](std::size_t event) {  // the one in flight only adds to what is allowed
    const Expected& now = expected[event];
    const std::uint64_t prepared = now.prepared ? 2 * *now.prepared + 2 + now.surely_prepared : 0;
    return mixed(now.acked + mixed(prepared)) ^ now.incarnation;
  };
  const auto visit = [&](const CrashPoint& point, ReadSet& reads) {
    note_position("opening an image", depth, point.event);
    try {
      open_image({recording, expected[point.event], depth, point.event, point.image.empty()},
                 reads);
    } catch (const std::exception& error) {
      throw Violation(fmt::format("{}\n  crash at depth {} after event {}:\n{}", error.what(),
                                  depth, point.event, describe(recording.log, point)));
    }
  };
  walk_images(disk_, recording.log, options, context, rng_, counts_, visit);
}

namespace {

// What the next process begins with: it found `shown` of those that it may find. Until it has
// opened the shelf a power loss may leave another one of them, where it is unsure what the medium
// has. So they come first, and what was found last.
std::vector<Model> history_of(const Recording& recording, const Expected& expected,
                              std::size_t shown, const Model& found, bool unsure) {
  const auto at = [&](std::size_t index) {
    return recording.history.begin() + static_cast<std::ptrdiff_t>(index);
  };
  std::vector<Model> history(recording.history.begin(), at(shown));
  if (unsure) history.insert(history.end(), at(shown + 1), at(expected.in_flight + 1));
  history.push_back(found);
  return history;
}

}  // namespace

// The process dies after the event, the machine lives: another process sees what was handed on, and
// of the rest what chance leaves. It opens the shelf and works, and then the power fails. Where a
// flush had failed, what it lost is seen or not, by chance again.
void Explorer::live_on(const Recording& recording, std::size_t event) {
  ++counts_.deaths;
  const Disk::Mark empty = disk_.mark();
  const Expected expected = expectations(recording)[event];
  Recording begun;
  const Log& log = recording.log;
  begun.log.events.assign(log.events.begin(),
                          log.events.begin() + static_cast<std::ptrdiff_t>(event + 1));
  begun.log.bytes = log.bytes;
  begun.log.second_bytes = log.second_bytes;
  HeldPages held;
  for (std::size_t seen = 0; seen <= event; ++seen) {
    held.note(begun.log, seen, disk_);
    log.replay(log.events[seen], disk_);
  }
  const bool pmem = settings_.personality == Personality::pmem;
  begun.log.events.emplace_back(pmem ? DeathEvent{} : held.end(begun.log, disk_, rng_.next()));
  const bool failed = !pmem && any_failure(begun.log.events);
  const Unsure left = failed ? Unsure(begun.log, disk_.capacity_bytes(),
                                      Unsure::What::no_barrier_will_cover, rng_.next())
                             : Unsure();
  const Disk::Mark visible = disk_.mark();
  ReadSet reads;
  Unsure unsure = left;
  Behaviour medium = behaviour();
  medium.unsure = &unsure;
  const Found found = recover(recording, expected, reads, medium);
  disk_.rollback(visible);
  unsure = left;  // the next process reads as this one did
  std::size_t shown = expected.acked;
  while (recording.history[shown].version != found.model.version) ++shown;
  if (left.empty()) mark(begun.log, Mark::last, shown);  // what is not seen now was never flipped
  begun.history = history_of(recording, expected, shown, found.model, !left.empty());
  begun.incarnation = recording.incarnation;
  begun.prepared = recording.prepared;
  begun.first_prepared = recording.first_prepared;
  begun.surely_prepared = recording.surely_prepared;
  const Model* const prepared = found.prepared ? &recording.prepared[*found.prepared] : nullptr;
  Runner runner(disk_, medium, std::move(begun), expected.incarnation, found.prepared,
                shape_.placement);
  runner.run(random_work(found.model, prepared, shape_, rng_));
  const Recording both = runner.finish();
  disk_.rollback(empty);
  walk_behind({recording, expected}, both, kMaxDepth - 1, event + 1);
}

void Explorer::die_after_each(const Recording& recording, std::size_t first_event) {
  for (std::size_t event = first_event; event < recording.log.events.size(); ++event) {
    if (!ends_words(recording.log, event) && !rng_.one_in(settings_.death_one_in)) continue;
    note_position("dying and living on", 0, event);
    live_on(recording, event);
  }
}

// The medium has no room for what was asked, is longer perhaps, and has room for less; or it cannot
// be made shorter. Nothing failed.
void Explorer::run_out_once(const std::vector<Op>& ops, std::size_t event) {
  const Disk::Mark empty = disk_.mark();
  note_position("running out of room", 0, event);
  Behaviour full = behaviour();
  full.full_at = event;
  Runner runner(disk_, full, shape_);
  runner.run(ops);
  const Recording recording = runner.finish();
  disk_.rollback(empty);
  walk(recording, kMaxDepth - 1, event);
}

// A call that fails, in turn each that the workload makes; of writes and waits, which are many,
// some.
void Explorer::fail_each(const std::vector<Op>& ops, const Recording& clean,
                         std::size_t first_event) {
  const Disk::Mark empty = disk_.mark();
  for (std::size_t event = first_event; event < clean.log.events.size(); ++event) {
    const Event& call = clean.log.events[event];
    const bool many = is<WriteEvent>(call) || is<WaitEvent>(call);
    if (is<MarkEvent>(call) || is<DeathEvent>(call)) continue;
    if (many && !rng_.one_in(settings_.failure_one_in)) continue;
    if (is<GrowthEvent>(call) || is<CutEvent>(call)) run_out_once(ops, event);
    if (is<CutEvent>(call)) continue;  // which is no failure of the medium
    note_position("failing a call of the medium", 0, event);
    Behaviour failing = behaviour();
    failing.fails_at = event;
    failing.tells_late = is<WriteEvent>(call) && event % 2 == 0;
    Runner runner(disk_, failing, shape_);
    const bool failed = runner.run_failing(ops);
    const Recording recording = runner.finish();
    disk_.rollback(empty);
    if (!failed) throw Violation("a call that was told to fail did not");
    ++counts_.failures;
    walk(recording, kMaxDepth - 1, event);
    live_on(recording, recording.log.events.size() - 1);
  }
}

void Explorer::explore(std::string_view program) {
  const Disk::Mark empty = disk_.mark();
  rng_ = Rng(settings_.seed);
  try {
    note_position("running the workload", 0, 0);
    const std::vector<Op> ops = parse(program);
    shape_ = shape_of(ops);
    Runner runner(disk_, behaviour(), shape_);
    runner.run(ops);
    const Recording recording = runner.finish();
    disk_.rollback(empty);
    // What precedes the first mark of the workload is format(): there is no shelf to keep yet.
    const std::size_t first = next_mark(recording.log, 0);
    walk(recording, 0, first);
    die_after_each(recording, first);
    fail_each(ops, recording, next_mark(recording.log, first + 1));  // it is open from there on
    explore_readers(disk_, recording, {behaviour(), first, settings_.readers}, rng_, counts_);
  } catch (const Violation&) {
    disk_.rollback(empty);
    throw;
  } catch (const std::exception& error) {
    disk_.rollback(empty);
    throw Violation(error.what());
  }
}

}  // namespace tensorshelf::crash
