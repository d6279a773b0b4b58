#include "session.hpp"

#include <optional>
#include <utility>

#include "shared.hpp"
#include "tensor_buffer.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

std::uint64_t Session::note(std::uint64_t tensor) {
  last_[tensor] = {assignments_ + 1, std::this_thread::get_id(), false};
  return ++assignments_;
}

bool Session::assigned_since(std::uint64_t tensor, std::uint64_t number) const {
  const auto later = [&](const Assigned& last) {
    return !last.gone && last.number > number && last.thread == std::this_thread::get_id();
  };
  const auto found = last_.find(tensor);
  return later(all_) || (found != last_.end() && later(found->second));
}

// Not before it is persisted: discard() may bring it back.
void Session::forget(std::uint64_t tensor) {
  const auto found = last_.find(tensor);
  if (found != last_.end()) found->second.gone = some_gone_ = true;
}

void Session::persisted() {
  if (std::exchange(some_gone_, false)) {
    std::erase_if(last_, [](const auto& item) { return item.second.gone; });
  }
  persisted_ = assignments_;
}

void Session::discarded() {
  const Assigned now{assignments_ + 1, std::this_thread::get_id(), false};
  for (auto& [tensor, last] : last_) {
    if (last.number > persisted_) last = now;
    last.gone = false;  // it is there again
  }
  some_gone_ = false;
  persisted_ = ++assignments_;
  edits_.clear();
}

void Session::rolled_back() {
  all_ = {++assignments_, std::this_thread::get_id(), false};
  persisted();
  edits_.clear();
}

void Session::saved() {
  all_ = {++assignments_, std::this_thread::get_id(), false};
  persisted();
}

void Session::resolved(Decision decision, bool found) {
  const bool shown_already = decision == Decision::commit && !found;
  if (!shown_already) rolled_back();
}

std::uint64_t Session::assign_whole(TensorRef& tensor, std::span<const std::byte> bytes) {
  std::optional<Unlocked> unlocked(std::in_place);
  Assignment assignment = tensor.assign();
  unlocked.reset();
  if (!edits_.empty()) return 0;
  const std::uint64_t number = note(tensor.id());
  unlocked.emplace();
  assignment.write(bytes, 0);
  assignment.done();
  return number;
}

std::uint64_t Session::assign_array(TensorRef& tensor, py::handle array, std::string_view dtype) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();  // Ctrl-C
    PyErr_Clear();
    return 0;
  }
  const Buffer buffer(view);
  return has_layout(view, tensor, dtype) ? assign_whole(tensor, buffer.bytes()) : 0;
}

void Session::replace(Shelf& shelf, const std::string& name, DType dtype,
                      std::span<const std::int64_t> shape, std::span<const std::byte> bytes) {
  std::uint64_t made = 0;
  {
    Unlocked unlocked;
    Assignment assignment = shelf.replace_with(name, dtype, shape);
    made = assignment.tensor_id();
    assignment.write(bytes, 0);
    assignment.done();
  }
  note(made);
}

void Session::end(std::shared_ptr<Transaction> transaction) {
  if (transaction_ == transaction) transaction_.reset();
  if (!transaction) return;
  Unlocked unlocked;
  transaction.reset();
}

void bind_session(py::module_& m) {
  py::class_<Session>(m, "Session")
      .def(py::init<>())
      .def_property_readonly("assignments", &Session::assignments)
      .def_property_readonly("edits", &Session::edits)
      .def_property_readonly("remembered", &Session::remembered)
      .def("assigned_since", &Session::assigned_since, py::arg("tensor"), py::arg("number"))
      .def("forget", &Session::forget, py::arg("tensor"))
      .def("in_transaction", &Session::in_transaction);
}

}  // namespace tensorshelf::python
