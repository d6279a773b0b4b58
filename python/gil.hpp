// Leaving and taking the GIL, also while the interpreter ends.
//
// A thread that asks an ending interpreter for the GIL is made to exit by unwinding its stack, up
// to Python 3.13. Our frames, and pybind11's, hold references that may not be given back without
// the GIL, and a destructor that is unwound through ends the process with SIGABRT. So such a thread
// waits where it stands for the end of the process, as Python 3.14 makes it do.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace tensorshelf::python {

// Calls what may be made to exit: what takes the GIL, or runs Python code, which may pass it on.
template <class Call>
auto or_wait_for_the_end(Call call) {
#ifdef __GLIBCXX__
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    while (true) ::pause();  // leaving this block would go on unwinding
  }
#else
  return call();
#endif
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

// With the GIL for its lifetime, in a thread that gave it up.
class Locked {
 public:
  Locked() : state_(or_wait_for_the_end([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace tensorshelf::python
