// Calls of the store's into Python, while it works or waits.
#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

// A Python callable as a Progress. Ctrl-C and the callable's own errors stop the work by the way.
Progress progress_of(const py::object& callable) {
  if (callable.is_none()) return {};
  const py::handle borrowed = callable;  // the caller's frame holds it for as long as this is used
  return [borrowed](std::uint64_t done, std::uint64_t total) {
    const Locked locked;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    call_python(borrowed, py::make_tuple(done, total));
  };
}

OnDamage on_damage_of(const py::object& callable) {
  if (callable.is_none()) return {};
  const py::handle borrowed = callable;
  return [borrowed](const Damage& found) {
    const Locked locked;
    call_python(borrowed, py::make_tuple(to_dict(found)));
  };
}

Progress progress_or_signals(const py::object& callable) {
  if (!callable.is_none()) return progress_of(callable);
  return [](std::uint64_t, std::uint64_t) { heed_signals(); };
}

// Ctrl-C, within a wait of the store. Where the interpreter ends, who is waited for may be a thread
// that takes no step any more.
void heed_signals() {
  if (PyGILState_GetThisThreadState() == nullptr) return;  // a thread of the shelf's own
  if (interpreter_is_ending()) {
    throw Error(Errc::unsupported, "the interpreter ends, and another thread is in the way",
                "Join the threads that use the shelf, and close it, before the program ends.");
  }
  const Locked locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace tensorshelf::python
