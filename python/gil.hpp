// Leaving and taking the GIL, also while the interpreter ends.
//
// A thread that asks an ending interpreter for the GIL is made to exit by unwinding its stack, up
// to Python 3.13. Our frames, and pybind11's, hold references that may not be given back without
// the GIL, and a destructor that is unwound through ends the process with SIGABRT. So such a thread
// waits where it stands for the end of the process, as Python 3.14 makes it do.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <chrono>
#include <exception>

namespace tensorshelf::python {

// Waits in its destructor for good, unless what it guards returned or threw. Nothing is caught: the
// thread may be in a catch block, where errors are translated, and to catch the unwinding as well,
// which is no C++ exception, is std::terminate.
class StaysToTheEnd {
 public:
  StaysToTheEnd() = default;
  ~StaysToTheEnd() {
    const bool thrown = std::uncaught_exceptions() > uncaught_;
    while (!returned && !thrown) ::pause();  // leaving this would go on unwinding
  }
  StaysToTheEnd(const StaysToTheEnd&) = delete;
  StaysToTheEnd& operator=(const StaysToTheEnd&) = delete;

  bool returned = false;

 private:
  int uncaught_ = std::uncaught_exceptions();
};

// Calls what may be made to exit: what takes the GIL, or runs Python code, which may pass it on.
// Never inlined: as part of a function that may not throw, such as a destructor, it would be
// compiled without the way through ~StaysToTheEnd.
template <class Call>
[[gnu::noinline]] void or_wait_for_the_end(Call call) {
  StaysToTheEnd here;
  call();
  here.returned = true;
}

// The call alone is waited in, so that the arguments stay held.
inline pybind11::object call_python(pybind11::handle callable, const pybind11::tuple& arguments) {
  PyObject* result = nullptr;
  or_wait_for_the_end([&] { result = PyObject_CallObject(callable.ptr(), arguments.ptr()); });
  if (!result) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(result);
}

// Without the GIL for its lifetime.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  ~Unlocked() {
    or_wait_for_the_end([this] { PyEval_RestoreThread(thread_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* thread_;
};

// What the call returns.
template <class Call>
auto without_gil(Call call) {
  const Unlocked unlocked;
  return call();
}

// Deletes without the GIL what waits for threads in its destructor: they may want it.
struct DeletedUnlocked {
  template <class T>
  void operator()(T* object) const {
    const Unlocked unlocked;
    delete object;
  }
};

// With the GIL for its lifetime, in a thread that gave it up.
class Locked {
 public:
  Locked() {
    or_wait_for_the_end([this] { state_ = PyGILState_Ensure(); });
  }
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_{};
};

inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Waits without the GIL, and hears signals every 50 ms: `wait(time)` says whether it came to its
// end.
template <class Wait>
void wait_and_hear(Wait wait) {
  constexpr std::chrono::milliseconds kBetweenSignals(50);
  while (!without_gil([&] { return wait(kBetweenSignals); })) {
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

}  // namespace tensorshelf::python
