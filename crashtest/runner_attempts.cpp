// The runner's part with attempts in flight, and with versions that stay.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "runner.hpp"
#include "tests/asleep.hpp"

namespace tensorshelf::crash {

namespace {

// Whoever waits cannot be joined.
[[noreturn]] void die_waiting(const char* what) {
  std::fprintf(stderr, "%s waits, and nothing is on its way that could end it\n", what);
  std::abort();
}

}  // namespace

// A call that may have to wait until an attempt has landed.
void Runner::beside(const std::function<void()>& call) {
  if (flights_.empty()) return call();
  std::exception_ptr failure;
  testing::Waiter waiter([&] {
    Lead::walk_free();
    try {
      call();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  std::exception_ptr landing;
  while (waiter.waits()) {
    if (flights_.empty()) die_waiting("a call");
    try {
      land([&] { waiter.waits(); });
    } catch (...) {
      if (!landing) landing = std::current_exception();
      let_all_fail();
    }
  }
  waiter.join();
  if (landing) std::rethrow_exception(landing);
  if (failure) std::rethrow_exception(failure);
}

void Runner::launch() {
  if (refused_commit([this] { shelf_->persist_async(); })) return;
  const std::size_t index = recording_.history.size();
  if (flights_.size() >= working_.in_flight) land();
  const Model next = next_version(true);
  mark(recording_.log, Mark::began, index);
  recording_.history.push_back(next);
  const std::shared_future<Commit> commit = shelf_->persist_async(next.step);
  const auto ended = [commit] {
    return commit.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  flights_.push_back({index, ended, [commit] { return commit.get(); }});
  working_ = next;
  changed_ = false;
  if (flights_.size() == 1) go_to(Phase::frozen);
}

// Returns when it waits there, or has failed.
void Runner::go_to(Phase phase) {
  lead_->let_go_to(phase);
  while (!lead_->waits() && !flights_.front().ended()) std::this_thread::yield();
  if (!lead_->waits()) land();
}

// `settle` is called before anything is noted: who waits for it may be writing now.
void Runner::land(const std::function<void()>& settle) {
  const Flight flight = flights_.front();
  flights_.pop_front();
  lead_->let_go_to(Phase::landed);
  const Commit commit = flight.commit();
  const Model& model = recording_.history[flight.index];
  if (commit.version != model.version || commit.step != model.step) {
    throw std::runtime_error(fmt::format("version {} landed as {}", model.version, commit.version));
  }
  if (!flights_.empty()) go_to(Phase::frozen);
  if (settle) settle();
  mark(recording_.log, Mark::acked, flight.index);
  acked_ = flight.index;
  if (const std::string text = offered_difference(model, *shelf_); !text.empty()) {
    throw std::runtime_error("landed: " + text);
  }
}

void Runner::land_all() {
  while (!flights_.empty()) land();
}

// After a failure no attempt that was on its way may be acknowledged, but one whose last barrier
// was asked for before.
void Runner::let_all_fail() {
  bool may_land = lead_->waits() && lead_->here() == Phase::flipped;
  lead_->let_go();
  for (; !flights_.empty(); flights_.pop_front(), may_land = false) {
    const std::size_t index = flights_.front().index;
    try {
      flights_.front().commit();
    } catch (const Error& error) {
      if (error.code() == Errc::failed || error.code() == Errc::io) continue;
      throw;
    }
    if (!may_land) throw std::runtime_error("a version was acknowledged after a failure (I8)");
    mark(recording_.log, Mark::acked, index);
    acked_ = index;
  }
}

// ---- versions -----------------------------------------------------------------------------------

void Runner::discard() {
  const Model& before = prepared_ ? recording_.prepared[*prepared_] : recording_.history.back();
  working_.tensors = before.tensors;
  working_.step = before.step;
  changed_ = false;
}

// Refused over what is not committed.
void Runner::roll_back(std::uint64_t versions) {
  const std::uint64_t target = working_.version - versions;
  if (prepared_) {
    return expect(Errc::unresolved, [&] { shelf_->rollback(target); });
  }
  if (changed_ || !flights_.empty()) {
    try {
      shelf_->rollback(target);
    } catch (const Error& error) {
      if (error.code() != Errc::uncommitted) throw;
      return;
    }
    throw std::runtime_error("a rollback over what is not committed");
  }
  const auto old = working_.find(target);
  if (!old) {
    try {
      shelf_->rollback(target);
    } catch (const Error& error) {
      if (error.code() != Errc::stale) throw;
      return;
    }
    throw std::runtime_error("a rollback to what is not retained");
  }
  const std::shared_ptr<const Model> kept = old;
  const std::size_t index = recording_.history.size();
  Model next = next_version(false);
  next.tensors = kept->tensors;
  next.step = kept->step;
  mark(recording_.log, Mark::began, index);
  recording_.history.push_back(next);
  const Commit commit = shelf_->rollback(target);
  mark(recording_.log, Mark::acked, index);
  acked_ = index;
  if (commit.version != next.version || commit.step != next.step) {
    throw std::runtime_error(fmt::format("the rollback became version {}", commit.version));
  }
  working_ = std::move(next);
}

// As many versions of what is there as it takes, of which nobody hears before the end. Over what is
// not committed there is none: it waits for no one here.
void Runner::compact() {
  const auto call = [this] { shelf_->compact(std::chrono::seconds(0)); };
  if (prepared_) return expect(Errc::unresolved, call);
  land_all();
  const std::uint64_t version = working_.version;
  mark(recording_.log, Mark::began, recording_.history.size() - 1);  // and more, as is known then
  const std::size_t began = recording_.log.events.size() - 1;
  const auto account = [&](bool failed) {
    const std::uint64_t made = shelf_->version() - version;
    if (changed_ && made > 0) throw std::runtime_error("what was half assigned is committed");
    for (std::uint64_t i = 0; i < made; ++i) {
      working_ = next_version(false);
      recording_.history.push_back(working_);
    }
    acked_ = recording_.history.size() - 1;
    if (failed && !changed_) recording_.history.push_back(next_version(false));  // as in persist()
    std::get<MarkEvent>(recording_.log.events[began]).number = recording_.history.size() - 1;
    if (!failed) mark(recording_.log, Mark::acked, acked_);
  };
  try {
    call();
  } catch (const Error& error) {
    const bool waits = changed_ && (error.code() == Errc::uncommitted ||
                                    (transaction_ && error.code() == Errc::transaction));
    const bool held = (error.code() == Errc::pinned && !pinned_.empty()) ||
                      (error.code() == Errc::leased && !leases_.empty());
    // No failure of the medium's, which goes on: it could not be made shorter.
    const bool stays = error.code() == Errc::io && !medium_failed();
    account(!waits && !held && !stays);
    if (!waits && !held && !stays) throw;
    return;
  }
  account(false);
}

void Runner::apply_versions(const Op& op) {
  switch (op.verb) {
    case Verb::launch:
      return launch();
    case Verb::go:
      return flights_.empty() ? void() : go_to(static_cast<Phase>(op.first));
    case Verb::land:
      return flights_.empty() ? void() : land();
    case Verb::discard:
      shelf_->discard();
      return discard();
    case Verb::begin:
      transaction_.emplace(shelf_->transaction());
      return;
    case Verb::commit:
      land_all();
      persist(true, [this](auto step) { return transaction_->commit(step); });
      if (!prepared_) transaction_.reset();
      return;
    case Verb::forget:
      transaction_.reset();
      return discard();
    case Verb::rollback:
      return roll_back(op.first);
    case Verb::rename: {
      auto renamed = working_.tensors.extract(op.name);
      renamed.key() = fmt::format("r{}", op.first);
      beside([&] { shelf_->rename(op.name, renamed.key()); });
      working_.tensors.insert(std::move(renamed));
      changed_ = true;
      return;
    }
    case Verb::resize:
      beside([&] { shelf_->resize(op.name, static_cast<std::int64_t>(op.first)); });
      working_.tensors[op.name].resize(op.first, std::byte{0});
      changed_ = true;
      return;
    case Verb::move:
      beside([&] { shelf_->move(op.name, std::array{static_cast<unsigned>(op.first)}); });
      changed_ = true;
      return;
    case Verb::remove:
      beside([&] { shelf_->remove_medium(1); });
      changed_ = true;
      return;
    case Verb::compact:
      return compact();
    case Verb::reserve:
      return beside([&] { shelf_->reserve(op.first); });
    case Verb::pin:
      land_all();
      return pinned_.add(disk_, behaviour_, recording_.history[acked_]);
    case Verb::unpin:
      return pinned_.clear();
    case Verb::prepare:
      return prepare();
    case Verb::resolve:
      return resolve();
    case Verb::abandon:
      return abandon();
    case Verb::split:
      return open(static_cast<unsigned>(op.first), static_cast<unsigned>(op.second));
    default:
      return;  // what the shelf is, was said before it was made
  }
}

}  // namespace tensorshelf::crash
