// One assignment of several writes, as `with` holds it: done where its block ends well, undone
// where an exception leaves it. Entering and leaving are native calls, as gate.hpp says.
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tensorshelf/cuda.hpp>

#include "bindings.hpp"
#include "gate.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

class AssignmentBlock {
 public:
  // No gate where the caller is inside it already.
  AssignmentBlock(const TensorRef& tensor, Gate* gate, std::string name)
      : tensor_(tensor), gate_(gate), name_(std::move(name)) {}

  void enter() {
    auto scope = gate_ == nullptr ? nullptr : std::make_unique<AssignmentScope>(*gate_, name_);
    {
      Unlocked unlocked;
      assignment_.reset(new Assignment(tensor_.assign()));  // which cannot be moved
    }
    scope_ = std::move(scope);
  }

  void leave(const py::object& error) {
    const auto scope = std::move(scope_);
    Unlocked unlocked;
    const auto assignment = std::move(assignment_);
    if (assignment && error.is_none()) assignment->done();
  }

  void write(py::handle source, std::uint64_t offset) {
    Buffer buffer(source, PyBUF_C_CONTIGUOUS);
    Unlocked unlocked;
    under_way().write(buffer.bytes(), offset);
  }

  void write_from_device(std::uintptr_t address, std::uint64_t nbytes, std::uint64_t offset,
                         std::uintptr_t stream, int device) {
    Unlocked unlocked;
    tensorshelf::write_from_device(under_way(), device_bytes(address, nbytes, stream, device),
                                   offset);
  }

  void read_into(py::handle target, std::uint64_t offset) const {
    Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
    Unlocked unlocked;
    tensor_.read(buffer.bytes(), offset);
  }

 private:
  Assignment& under_way() const {
    if (!assignment_) throw std::logic_error("an assignment outside its block");
    return *assignment_;
  }

  TensorRef tensor_;
  Gate* gate_;
  std::string name_;
  std::unique_ptr<AssignmentScope> scope_;
  std::unique_ptr<Assignment> assignment_;  // ends before the scope does
};

}  // namespace

void bind_assignment(py::module_& m) {
  py::class_<AssignmentBlock>(m, "Assignment")
      .def(py::init<const TensorRef&, Gate*, std::string>(), py::arg("tensor"), py::arg("gate"),
           py::arg("name"), py::keep_alive<1, 3>())
      .def("__enter__",
           [](py::object self) {
             self.cast<AssignmentBlock&>().enter();
             return self;
           })
      .def("__exit__", [](AssignmentBlock& block, const py::object& kind,
                          const py::args&) { block.leave(kind); })
      .def("_write", &AssignmentBlock::write, py::arg("source"), py::arg("offset") = 0)
      .def("_write_from_device", &AssignmentBlock::write_from_device, py::kw_only(),
           py::arg("address"), py::arg("nbytes"), py::arg("offset"), py::arg("stream"),
           py::arg("device"))
      .def("_read_into", &AssignmentBlock::read_into, py::arg("target"), py::arg("offset") = 0);
}

}  // namespace tensorshelf::python
