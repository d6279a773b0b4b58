// Assignments of several writes (assignment_block.hpp), to tensors that are there or are made.
#include "assignment_block.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace tensorshelf::python {

void bind_assignment(py::module_& m, py::class_<Shelf>& shelf) {
  py::class_<AssignmentBlock>(m, "Assignment")
      .def(py::init([](const TensorRef& tensor, Session* session) {
             return std::make_unique<AssignmentBlock>(
                 [own = TensorRef(tensor)]() mutable { return own.assign(); }, tensor, session);
           }),
           py::arg("tensor"), py::arg("session"), py::keep_alive<1, 3>())
      .def("__enter__",
           [](py::object self) {
             self.cast<AssignmentBlock&>().enter();
             return self;
           })
      .def("__exit__", [](AssignmentBlock& block, const py::object& kind,
                          const py::args&) { block.leave(!kind.is_none()); })
      .def("_write", &AssignmentBlock::write, py::arg("source"), py::arg("offset") = 0)
      .def(
          "_write_from_device",
          [](AssignmentBlock& block, std::uintptr_t address, std::uint64_t nbytes,
             std::uint64_t offset, std::uintptr_t stream, int device, const AxisTuples& axes) {
            block.write_from_device(device_bytes(address, nbytes, stream, device, axes), offset);
          },
          py::kw_only(), py::arg("address"), py::arg("nbytes"), py::arg("offset"),
          py::arg("stream"), py::arg("device"), py::arg("axes"))
      .def("_read_into", &AssignmentBlock::read_into, py::arg("target"), py::arg("offset") = 0);
  shelf.def(
      "create_with",
      [](Shelf& owner, Session& session, const std::string& name, const std::string& dtype,
         std::vector<std::int64_t> shape) {
        auto begin = [&owner, name, element = dtype_of(dtype), shape = std::move(shape)] {
          return owner.create_with(name, element, shape);
        };
        return std::make_unique<AssignmentBlock>(std::move(begin), std::nullopt, &session);
      },
      py::arg("session"), py::arg("name"), py::arg("dtype"), py::arg("shape"),
      py::keep_alive<0, 1>(), py::keep_alive<0, 2>());
}

}  // namespace tensorshelf::python
