// One assignment of several writes, as `with` holds it: done where its block ends well, undone
// where an exception leaves it. Entering and leaving are native calls: Ctrl-C, which strikes
// between two steps of Python code, cannot come between beginning an assignment and entering its
// block.
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/cuda.hpp>

#include "bindings.hpp"
#include "session.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

class AssignmentBlock {
 public:
  using Begin = std::function<Assignment()>;

  // No tensor where it makes one, no session where there is nothing to note.
  AssignmentBlock(Begin begin, std::optional<TensorRef> tensor, Session* session, std::string name)
      : begin_(std::move(begin)),
        tensor_(std::move(tensor)),
        session_(session),
        name_(std::move(name)) {}

  void enter() {
    {
      Unlocked unlocked;
      // Which cannot be moved, so that make_unique() has nothing to make it from.
      assignment_.reset(new Assignment(begin_()));  // NOLINT(modernize-make-unique)
    }
    if (session_ != nullptr) session_->note(name_);
  }

  void leave(const py::object& error) {
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
    tensor_.value().read(buffer.bytes(), offset);
  }

 private:
  Assignment& under_way() const {
    if (!assignment_) throw std::logic_error("an assignment outside its block");
    return *assignment_;
  }

  Begin begin_;
  std::optional<TensorRef> tensor_;
  Session* session_;
  std::string name_;
  std::unique_ptr<Assignment> assignment_;
};

}  // namespace

void bind_assignment(py::module_& m, py::class_<Shelf>& shelf) {
  py::class_<AssignmentBlock>(m, "Assignment")
      .def(py::init([](const TensorRef& tensor, Session* session, std::string name) {
             return std::make_unique<AssignmentBlock>(
                 [own = TensorRef(tensor)]() mutable { return own.assign(); }, tensor, session,
                 std::move(name));
           }),
           py::arg("tensor"), py::arg("session"), py::arg("name"), py::keep_alive<1, 3>())
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
  shelf.def(
      "create_with",
      [](Shelf& owner, Session& session, const std::string& name, const std::string& dtype,
         std::vector<std::int64_t> shape) {
        auto begin = [&owner, name, element = dtype_of(dtype), shape = std::move(shape)] {
          return owner.create_with(name, element, shape);
        };
        return std::make_unique<AssignmentBlock>(std::move(begin), std::nullopt, &session, name);
      },
      py::arg("session"), py::arg("name"), py::arg("dtype"), py::arg("shape"),
      py::keep_alive<0, 1>(), py::keep_alive<0, 2>());
}

}  // namespace tensorshelf::python
