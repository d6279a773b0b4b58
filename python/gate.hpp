// Keeps an assignment whole against persist() and against other assignments to the same tensor.
//
// The store orders single writes. One assignment may be several (a value converted in blocks, or a
// part that is read, changed and written back), and must not be cut in two by another thread's
// persist() or lose another thread's update. So an assignment holds the stripe of its tensor's
// name, and persist() holds the whole gate.
//
// Entering and leaving are calls of native code: Ctrl-C, which strikes between two steps of Python
// code, cannot come between taking a stripe and entering its with block, nor within leaving it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

namespace tensorshelf::python {

// All calls need the GIL, and give it up only while they wait. A wait hears Ctrl-C. enter() and
// enter_alone() throw Errc::unsupported where this thread is inside already (a signal handler, or a
// value whose conversion assigns): it would see, or overwrite, half a value. In a forked child they
// do nothing: the store refuses there, and who was inside at the fork will never leave.
class Gate {
 public:
  Gate();
  void enter(std::string_view name);
  void leave(std::string_view name);
  void enter_alone();
  void leave_alone();

  // Assignments are numbered, so that a handle can tell one that came after it.
  std::uint64_t assignments() const { return assignments_; }
  // True when the last assignment to the tensor was made after that number, and by this thread:
  // what another thread does has no order with what this one looks up.
  bool assigned_since(std::string_view name, std::uint64_t number) const;
  void forget(std::string_view name);  // of a tensor that is gone

  bool changed = false;  // something was assigned, created or deleted since the last persist()

 private:
  static constexpr unsigned kStripes = 8;
  using Thread = std::thread::id;

  struct Assigned {
    std::uint64_t number;
    Thread thread;
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
  void wait(std::unique_lock<std::mutex>& lock, Free free);
  bool no_stripe_owned() const;

  unsigned forks_;    // that this process was the child of when the gate was made
  std::mutex mutex_;  // never held while the GIL is asked for
  std::condition_variable freed_;
  std::array<Thread, kStripes> owners_{};
  std::uint64_t assignments_ = 0;  // this and the next are guarded by the GIL
  std::unordered_map<std::string, Assigned, NameHash, std::equal_to<>>
      last_;        // by names of tensors
  Thread alone_{};  // holds the gate, or waits for the stripes: nobody else comes in
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
  explicit AloneScope(Gate& gate) : gate_(gate) { gate_.enter_alone(); }
  ~AloneScope() { gate_.leave_alone(); }
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  Gate& gate_;
};

}  // namespace tensorshelf::python
