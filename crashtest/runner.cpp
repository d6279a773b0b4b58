#include "runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>
#include <thread>

#include "rng.hpp"

namespace tensorshelf::crash {

void mark(Log& log, Mark kind, std::uint64_t number) {
  const char* name = kind == Mark::began ? "BEGAN" : kind == Mark::acked ? "ACKED" : "OPENED";
  log.mark(number, static_cast<std::uint64_t>(kind), name);
}

std::vector<Expected> expectations(const Recording& recording) {
  std::vector<Expected> all;
  Expected now{.incarnation = recording.incarnation};
  for (const Event& event : recording.log.events) {
    if (event.kind == EventKind::mark) {
      switch (static_cast<Mark>(event.sequence)) {
        case Mark::began:
          now.in_flight = event.at;
          break;
        case Mark::acked:
          now.acked = now.in_flight = event.at;
          break;
        case Mark::opened:
          now.incarnation = event.at;
          break;
      }
    }
    all.push_back(now);
  }
  return all;
}

Runner::Runner(Disk& disk, const Behaviour& behaviour)
    : disk_(disk), behaviour_(behaviour), serial_(0) {
  {
    RecordingMedium medium(disk_, recording_.log, behaviour_);
    Shelf::format(medium);
  }
  recording_.history.push_back(working_);
  mark(recording_.log, Mark::acked, 0);
  open();
}

Runner::Runner(Disk& disk, const Behaviour& behaviour, Model start, std::uint64_t incarnation)
    : disk_(disk),
      behaviour_(behaviour),
      working_(std::move(start)),
      serial_(mix(disk.fingerprint())),  // no stamp of the run that crashed comes again
      incarnation_(incarnation) {
  recording_.history.push_back(working_);
  recording_.incarnation = incarnation;
  open();
}

Runner::Runner(Disk& disk, const Behaviour& behaviour, Recording begun, std::uint64_t incarnation)
    : disk_(disk),
      behaviour_(behaviour),
      recording_(std::move(begun)),
      acked_(recording_.history.size() - 1),
      serial_(mix(disk.fingerprint())),
      incarnation_(incarnation) {
  open();
  mark(recording_.log, Mark::acked, acked_);  // who has seen it will not do without it
}

void Runner::open() {
  leases_.clear();
  if (shelf_) {
    shelf_.reset();
    recording_.log.die();
  }
  shelf_ = Shelf::open(std::make_unique<RecordingMedium>(disk_, recording_.log, behaviour_),
                       {.mode = Mode::update});
  working_ = recording_.history.back();
  check("after opening");
  const std::uint64_t incarnation = shelf_->info().incarnation;
  if (incarnation <= incarnation_) {
    throw std::runtime_error(fmt::format("incarnation {} was given out twice", incarnation));
  }
  incarnation_ = incarnation;
  mark(recording_.log, Mark::opened, incarnation);
}

void Runner::check(const char* when) const {
  const std::string text = difference(working_, *shelf_);
  if (!text.empty()) throw std::runtime_error(fmt::format("{}, without a crash: {}", when, text));
}

void Runner::assign(const std::string& name, std::uint64_t offset, std::uint64_t size,
                    bool in_thread) {
  std::vector<std::byte>& tensor = working_.tensors.at(name);
  const std::span<std::byte> range = std::span(tensor).subspan(offset, size);
  const std::vector<std::byte> before(range.begin(), range.end());
  stamp(range, name, ++serial_, offset);
  try {
    write(name, range, offset, in_thread);
  } catch (const Error& error) {
    const bool pinned = std::any_of(leases_.begin(), leases_.end(), [&](const Leased& leased) {
      return leased.name == name && leased.lease.in_place();
    });
    if (error.code() != Errc::leased || !pinned) throw;
    std::copy(before.begin(), before.end(), range.begin());
  }
}

void Runner::write(const std::string& name, std::span<const std::byte> range, std::uint64_t offset,
                   bool in_thread) {
  TensorRef target = shelf_->find(name).value();
  if (!in_thread) return target.write(range, offset);
  std::exception_ptr failure;
  std::thread([&] {
    try {
      target.write(range, offset);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

void Runner::lease(const std::string& name, bool committed) {
  const Model& model = committed ? recording_.history.back() : working_;
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
}

void Runner::refuse(const std::string& name, std::int64_t size) {
  try {
    shelf_->create(name, DType::uint8, std::array{size});
  } catch (const Error& error) {
    if (error.code() != Errc::full) throw;
    return;
  }
  throw std::runtime_error(fmt::format("{} found room beyond the medium", name));
}

void Runner::persist(bool with_step, bool async) {
  const std::size_t index = recording_.history.size();
  const std::optional<std::uint64_t> stated = with_step ? std::optional(index * 10) : std::nullopt;
  if (stated) working_.step = stated;  // without one, the last one stays
  mark(recording_.log, Mark::began, index);
  const Commit commit = [&] {
    try {
      return async ? shelf_->persist_async(stated).get() : shelf_->persist(stated);
    } catch (...) {  // it may have been flipped all the same
      recording_.history.push_back(working_);
      ++recording_.history.back().version;
      throw;
    }
  }();
  mark(recording_.log, Mark::acked, index);
  acked_ = index;
  if (commit.version <= working_.version) {
    throw std::runtime_error(
        fmt::format("persist() returned version {} after {}", commit.version, working_.version));
  }
  if (commit.step != working_.step) throw std::runtime_error("persist() returned another step");
  working_.version = commit.version;
  recording_.history.push_back(working_);
}

void Runner::apply(const Op& op) {
  const auto create = [&](const std::string& name, std::uint64_t size) {
    const std::array shape = {static_cast<std::int64_t>(size)};
    shelf_->create(name, DType::uint8, shape);
    working_.tensors[name].assign(size, std::byte{0});
  };
  switch (op.verb) {
    case Verb::create:
      return create(op.name, op.first);
    case Verb::assign:
      return assign(op.name, 0, working_.tensors.at(op.name).size(), false);
    case Verb::thread:
      return assign(op.name, 0, working_.tensors.at(op.name).size(), true);
    case Verb::part:
      return assign(op.name, op.first, op.second, false);
    case Verb::persist:
      return persist(true, false);
    case Verb::quiet:
      return persist(false, false);
    case Verb::async:
      return persist(true, true);
    case Verb::reopen:
      return open();
    case Verb::erase:
      shelf_->erase(op.name);
      working_.tensors.erase(op.name);
      return;
    case Verb::replace: {
      const std::array shape = {static_cast<std::int64_t>(op.first)};
      shelf_->replace(op.name, DType::uint8, shape);
      working_.tensors[op.name].assign(op.first, std::byte{0});
      return;
    }
    case Verb::many:
      for (std::uint64_t i = 0; i < op.first; ++i) {
        const std::string name = fmt::format("m{}", i);
        create(name, op.second);
        assign(name, 0, op.second, false);
      }
      return;
    case Verb::named:
      for (std::uint64_t i = 0; i < op.first; ++i) {
        create(long_name(i, op.second), 8);
        assign(long_name(i, op.second), 0, 8, false);
      }
      return;
    case Verb::all:
      for (const auto& [name, bytes] : working_.tensors) assign(name, 0, bytes.size(), false);
      return;
    case Verb::refuse:
      return refuse(op.name, static_cast<std::int64_t>(op.first));
    case Verb::lease:
      return lease(op.name, false);
    case Verb::hold:
      return lease(op.name, true);
    case Verb::drop:
      return leases_.clear();
  }
}

void Runner::run(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    apply(op);
    check_leases();
  }
  check("at the end");
}

bool Runner::medium_failed() const {
  const auto& events = recording_.log.events;
  return behaviour_.fails_at < events.size() && events[behaviour_.fails_at].kind == EventKind::lost;
}

bool Runner::run_failing(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    try {
      apply(op);
      check_leases();
    } catch (const Error& error) {
      if (!medium_failed()) throw;
      if (error.code() != Errc::io && error.code() != Errc::failed) {
        throw std::runtime_error(fmt::format("the medium failed, and the store says {}: {}",
                                             code_name(error.code()), error.what()));
      }
      if (shelf_) check_failed_shelf();
      shelf_.reset();
      return true;
    }
    if (medium_failed()) throw std::runtime_error("a failure of the medium is not told (I8)");
  }
  return false;
}

void Runner::check_failed_shelf() {
  for (int attempt = 0;; ++attempt) {
    try {
      shelf_->persist();
      throw std::runtime_error("after a failure of the medium it goes on to commit (I8)");
    } catch (const Error& error) {
      if (error.code() == Errc::failed) break;
      // What a commit in the background threw is thrown once more, by the next call.
      if (attempt == 0 && error.code() == Errc::io) continue;
      throw std::runtime_error(fmt::format("after a failure it says {}", error.what()));
    }
  }
  for (const auto& [name, bytes] : recording_.history[acked_].tensors) {
    const std::optional<TensorRef> tensor = shelf_->find(name);
    if (!tensor || tensor->info().size_bytes != bytes.size()) continue;  // erased, replaced
    std::vector<std::byte> found(bytes.size(), kUnread);
    try {
      tensor->read_committed(found);
    } catch (const Error& error) {
      if (error.code() == Errc::unknown_name) continue;  // replaced
      throw;
    }
    if (found != bytes) {
      throw std::runtime_error(fmt::format("after a failure, {} is not as committed (I8)", name));
    }
  }
}

Recording Runner::finish() {
  leases_.clear();
  if (shelf_) shelf_->close();
  shelf_.reset();
  return std::move(recording_);
}

}  // namespace tensorshelf::crash
