// In front of the store's own locks: waits here hear Ctrl-C, and end with the interpreter.
//
// The store keeps an assignment whole (I13), and lets what ends an attempt wait for it. So that the
// wait is here, an assignment holds the stripe of its tensor's name, and what ends an attempt holds
// the whole gate; but not while it waits for a transaction of another thread, whose assignments
// need their stripes, or for versions on their way. A stripe is held also where the store has no
// assignment: while a tensor is created and gets its value.
//
// Entering and leaving are calls of native code: Ctrl-C, which strikes between two steps of Python
// code, cannot come between taking a stripe and entering its with block, nor within leaving it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::python {

// All calls need the GIL, and give it up only while they wait. A wait hears Ctrl-C, but for
// enter_to_end(). They throw Errc::unsupported where this thread is inside already (a signal
// handler, or a value whose conversion assigns): it would see, or overwrite, half a value. In a
// forked child they do nothing: the store refuses there, and who was inside at the fork will never
// leave.
class Gate {
 public:
  explicit Gate(unsigned in_flight);
  void enter(std::string_view name);
  void leave(std::string_view name);
  void enter_alone(const char* what);
  void enter_to_end(const char* what);  // also beside a transaction of another; deaf to Ctrl-C
  void leave_alone();

  // Until fewer versions are on their way than may be: what freezes another would wait in the gate.
  void await_room();
  void note_on_its_way(const std::shared_future<Commit>& commit) {
    on_their_way_.push_back(commit);
  }

  // From begin() to end() no other thread enters alone. The gate has it, so that nothing but end()
  // discards it, which waits for whoever is inside. All three within one of the two above.
  void begin(Transaction&& transaction);
  Transaction& transaction() { return *transaction_; }
  void end();

  // Assignments are numbered, so that a handle can tell one that came after it.
  std::uint64_t assignments() const { return assignments_; }
  // True when the last assignment to the tensor was made after that number, and by this thread:
  // what another thread does has no order with what this one looks up.
  bool assigned_since(std::string_view name, std::uint64_t number) const;
  void forget(std::string_view name);  // of a tensor that is gone

  // What became of the assignments so far; within enter_alone(). Where values come back, that is
  // an assignment of theirs by this thread.
  void persisted();
  void discarded();
  void rolled_back();

  bool changed = false;  // something was assigned, created or deleted since the last persist()

 private:
  static constexpr unsigned kStripes = 8;
  using Thread = std::thread::id;

  struct Assigned {
    std::uint64_t number = 0;
    Thread thread = {};
    bool gone = false;  // deleted since, and not persisted so
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };

  static unsigned stripe_of(std::string_view name);
  bool in_child() const;
  void refuse_inside(const char* what) const;
  template <class Free>
  void wait(std::unique_lock<std::mutex>& lock, Free free, bool heeding = true);
  void wait_for_stripes(std::unique_lock<std::mutex>& lock, bool heeding);
  bool no_stripe_owned() const;

  unsigned forks_;    // that this process was the child of when the gate was made
  std::mutex mutex_;  // never held while the GIL is asked for
  std::condition_variable freed_;
  std::array<Thread, kStripes> owners_{};
  Thread alone_{};        // holds the gate, or waits for the stripes: nobody else comes in
  Thread transacting_{};  // whose transaction it is
  std::optional<Transaction> transaction_;

  // Guarded by the GIL.
  std::uint64_t assignments_ = 0;
  std::uint64_t persisted_ = 0;  // of which these are in a version, or dropped
  Assigned all_;                 // a rollback
  std::unordered_map<std::string, Assigned, NameHash, std::equal_to<>>
      last_;  // by names of tensors
  bool some_gone_ = false;
  std::deque<std::shared_future<Commit>> on_their_way_;
  const unsigned in_flight_;  // at most
};

// For the length of a block of native code. The name must outlive it.
class AssignmentScope {
 public:
  AssignmentScope(Gate& gate, std::string_view name) : gate_(gate), name_(name) {
    gate_.enter(name_);
  }
  ~AssignmentScope() { gate_.leave(name_); }
  AssignmentScope(const AssignmentScope&) = delete;
  AssignmentScope& operator=(const AssignmentScope&) = delete;

 private:
  Gate& gate_;
  std::string_view name_;
};

class AloneScope {
 public:
  AloneScope(Gate& gate, const char* what) : gate_(gate) { gate_.enter_alone(what); }
  ~AloneScope() { gate_.leave_alone(); }
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  Gate& gate_;
};

class EndScope {
 public:
  EndScope(Gate& gate, const char* what) : gate_(gate) { gate_.enter_to_end(what); }
  ~EndScope() { gate_.leave_alone(); }
  EndScope(const EndScope&) = delete;
  EndScope& operator=(const EndScope&) = delete;

 private:
  Gate& gate_;
};

}  // namespace tensorshelf::python
