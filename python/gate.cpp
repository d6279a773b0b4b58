#include "gate.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

unsigned forks = 0;

}  // namespace

// Cheaper than asking for the process number at each assignment.
unsigned forks_so_far() {
  static const int counting = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  if (counting != 0) throw std::bad_alloc();
  return forks;
}

Gate::Gate(unsigned in_flight) : forks_(forks_so_far()), in_flight_(in_flight) {}

bool Gate::in_child() const { return forks != forks_; }

unsigned Gate::stripe_of(std::string_view name) {
  return std::hash<std::string_view>{}(name) % kStripes;
}

void Gate::enter(std::string_view name) {
  if (in_child()) return;
  const unsigned index = stripe_of(name);
  std::unique_lock lock(mutex_);
  refuse_inside("a tensor was assigned");
  wait(lock, [&] { return alone_ == Thread{} && owners_[index] == Thread{}; });
  const Thread me = std::this_thread::get_id();
  const Assigned now{assignments_ + 1, me, false};
  if (const auto found = last_.find(name); found != last_.end()) {
    found->second = now;
  } else {
    last_.emplace(name, now);  // may throw: nothing has changed before it
  }
  ++assignments_;
  owners_[index] = me;
  changed = true;
}

bool Gate::assigned_since(std::string_view name, std::uint64_t number) const {
  const auto later = [&](const Assigned& last) {
    return !last.gone && last.number > number && last.thread == std::this_thread::get_id();
  };
  const auto found = last_.find(name);
  return later(all_) || (found != last_.end() && later(found->second));
}

// Not before it is persisted: discard() may bring it back.
void Gate::forget(std::string_view name) {
  const auto found = last_.find(name);
  if (found != last_.end()) found->second.gone = some_gone_ = true;
}

void Gate::persisted() {
  if (std::exchange(some_gone_, false)) {
    std::erase_if(last_, [](const auto& item) { return item.second.gone; });
  }
  persisted_ = assignments_;
  changed = false;
}

void Gate::discarded() {
  const Assigned now{assignments_ + 1, std::this_thread::get_id(), false};
  for (auto& [name, last] : last_) {
    if (last.number > persisted_) last = now;
  }
  some_gone_ = false;
  persisted_ = ++assignments_;
  changed = false;
}

void Gate::rolled_back() {
  all_ = {++assignments_, std::this_thread::get_id(), false};
  persisted();
}

void Gate::leave(std::string_view name) {
  if (in_child()) return;
  std::lock_guard lock(mutex_);
  owners_[stripe_of(name)] = Thread{};
  freed_.notify_all();
}

// In its own transaction a thread does come in: the store says that it may not.
void Gate::enter_alone(const char* what) {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  refuse_inside(what);
  const Thread me = std::this_thread::get_id();
  wait(lock,
       [&] { return alone_ == Thread{} && (transacting_ == Thread{} || transacting_ == me); });
  wait_for_stripes(lock, true);
}

void Gate::enter_to_end(const char* what) {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  refuse_inside(what);
  wait(
      lock, [&] { return alone_ == Thread{}; }, false);
  wait_for_stripes(lock, false);
}

void Gate::wait_for_stripes(std::unique_lock<std::mutex>& lock, bool heeding) {
  alone_ = std::this_thread::get_id();  // from now on no stream of assignments can keep it waiting
  try {
    wait(
        lock, [&] { return no_stripe_owned(); }, heeding);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    alone_ = Thread{};
    freed_.notify_all();
    throw;
  }
}

void Gate::leave_alone() {
  if (in_child()) return;
  std::lock_guard lock(mutex_);
  alone_ = Thread{};
  freed_.notify_all();
}

void Gate::await_room() {
  const auto landed = [](const std::shared_future<Commit>& commit, int milliseconds) {
    return commit.wait_for(std::chrono::milliseconds(milliseconds)) == std::future_status::ready;
  };
  while (!in_child() && !interpreter_is_ending()) {
    while (!on_their_way_.empty() && landed(on_their_way_.front(), 0)) on_their_way_.pop_front();
    if (on_their_way_.size() < in_flight_) return;
    {
      const auto first = on_their_way_.front();  // others may take it away meanwhile
      Unlocked unlocked;
      landed(first, 50);
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void Gate::begin(Transaction&& transaction) {
  transaction_.emplace(std::move(transaction));
  std::lock_guard lock(mutex_);
  transacting_ = std::this_thread::get_id();
}

void Gate::end() {
  {
    Unlocked unlocked;
    transaction_.reset();  // discards what was not committed
  }
  if (in_child()) return;
  std::lock_guard lock(mutex_);
  transacting_ = Thread{};
}

bool Gate::no_stripe_owned() const {
  return std::all_of(owners_.begin(), owners_.end(), [](Thread id) { return id == Thread{}; });
}

void Gate::refuse_inside(const char* what) const {
  const Thread me = std::this_thread::get_id();
  if (alone_ != me && std::find(owners_.begin(), owners_.end(), me) == owners_.end()) return;
  throw Error(Errc::unsupported,
              std::string(what) + " from inside an assignment or a persist() of the same thread",
              "In a signal handler, set a flag, and do it in the main loop.");
}

// Wakes now and then so that Ctrl-C is heard; the handler that it calls may come here itself.
// Once the interpreter ends, no other thread takes a step of Python, nor leaves what it holds.
template <class Free>
void Gate::wait(std::unique_lock<std::mutex>& lock, Free free, bool heeding) {
  while (!free() && !interpreter_is_ending()) {
    lock.unlock();
    {
      Unlocked unlocked;
      std::unique_lock waiting(mutex_);
      freed_.wait_for(waiting, std::chrono::milliseconds(50), free);
    }
    if (heeding && PyErr_CheckSignals() != 0) throw py::error_already_set();
    lock.lock();
  }
}

namespace {

// What `with gate.assigning(name):` holds.
class Assigning {
 public:
  Assigning(Gate& gate, std::string name) : gate_(gate), name_(std::move(name)) {}
  void enter() { gate_.enter(name_); }
  void leave(const py::args&) { gate_.leave(name_); }

 private:
  Gate& gate_;
  std::string name_;
};

}  // namespace

void bind_gate(py::module_& m) {
  py::class_<Assigning>(m, "Assigning")
      .def("__enter__", &Assigning::enter)
      .def("__exit__", &Assigning::leave);
  py::class_<Gate>(m, "Gate")
      .def(py::init<unsigned>(), py::arg("in_flight"))
      .def_readwrite("changed", &Gate::changed)
      .def_property_readonly("assignments", &Gate::assignments)
      .def("assigned_since", &Gate::assigned_since, py::arg("name"), py::arg("number"))
      .def("forget", &Gate::forget, py::arg("name"))
      .def(
          "assigning",
          [](Gate& gate, std::string name) { return Assigning(gate, std::move(name)); },
          py::arg("name"), py::keep_alive<0, 1>());
}

}  // namespace tensorshelf::python
