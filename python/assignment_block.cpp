#include "assignment_block.hpp"

#include <stdexcept>
#include <utility>

#include <tensorshelf/cuda.hpp>

namespace py = pybind11;

namespace tensorshelf::python {

AssignmentBlock::AssignmentBlock(Begin begin, std::optional<TensorRef> tensor, Session* session)
    : begin_(std::move(begin)), tensor_(std::move(tensor)), session_(session) {}

void AssignmentBlock::enter() {
  {
    Unlocked unlocked;
    // Which cannot be moved, so that make_unique() has nothing to make it from.
    assignment_.reset(new Assignment(begin_()));  // NOLINT(modernize-make-unique)
  }
  if (session_ != nullptr) session_->note(assignment_->tensor_id());
}

void AssignmentBlock::leave(bool raised) {
  Unlocked unlocked;
  const auto assignment = std::move(assignment_);
  if (assignment && !raised) assignment->done();
}

void AssignmentBlock::write(py::handle source, std::uint64_t offset) {
  Buffer buffer(source, PyBUF_C_CONTIGUOUS);
  Unlocked unlocked;
  under_way().write(buffer.bytes(), offset);
}

void AssignmentBlock::write_from_device(const DeviceBytes& source, std::uint64_t offset) {
  Unlocked unlocked;
  tensorshelf::write_from_device(under_way(), source, offset);
}

void AssignmentBlock::read_into(py::handle target, std::uint64_t offset) const {
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  Unlocked unlocked;
  tensor_.value().read(buffer.bytes(), offset);
}

Assignment& AssignmentBlock::under_way() const {
  if (!assignment_) throw std::logic_error("an assignment outside its block");
  return *assignment_;
}

}  // namespace tensorshelf::python
