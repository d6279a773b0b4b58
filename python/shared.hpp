// What the files of the native module share. Which of them decide something: bindings.cpp.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tensorshelf/cuda.hpp>
#include <tensorshelf/pipeline.hpp>
#include <tensorshelf/repair.hpp>
#include <tensorshelf/shelf.hpp>

#include "gil.hpp"

namespace tensorshelf::python {

// errors.cpp. Text for people: a path in it may be of any encoding, and it must be sayable all the
// same.
pybind11::str shown(const std::string& text);

// errors.cpp. The first sets the Python error that tensorshelf/errors.py makes of this one; the
// second, called in a catch block, does so for whatever is in flight, for functions that C calls
// and no exception may leave.
void set_python_error(const Error& error);
void set_current_error() noexcept;

// results.cpp: the store's values as dicts, for _info.py to make dataclasses of.
pybind11::tuple shape_of(const TensorInfo& info);
pybind11::dict to_dict(const ShelfInfo& info);
pybind11::dict to_dict(const VersionInfo& info);
pybind11::object to_object(const std::optional<Prepared>& prepared);  // a dict, or None
pybind11::dict to_dict(const Stats& stats);
pybind11::dict to_dict(const Damage& found);
pybind11::dict to_dict(const VerifyReport& report);
VerifyReport report_of(const pybind11::dict& told);  // and back
pybind11::dict to_dict(const RepairReport& report);
pybind11::dict to_dict(const CompactReport& report);
pybind11::dict to_dict(const CommitTimes& times);
pybind11::dict to_dict(const SaveTimes& times);
double seconds_of(CommitTimes::Time time);  // of time.monotonic()

// Sets the error of a buffer that cannot be exported; returns -1.
enum class BufferRefused { writable, fortran_order, no_such_type };
int refuse_buffer(BufferRefused why, const TensorInfo* info = nullptr);

// Sets the error, and warns of it, for who asks for bytes alone: type and shape would be lost.
// torch asks twice, and leaves the first error standing.
void set_bare_buffer_error(const std::string& name);

// progress.cpp. Calls a function of (done, total), unless it is None, and hears Ctrl-C; the
// caller's frame holds it. The other hears Ctrl-C alone. Without the GIL.
Progress progress_of(const pybind11::object& callable);
OnDamage on_damage_of(const pybind11::object& callable);         // with the dict of it
Progress progress_or_signals(const pybind11::object& callable);  // None: it hears Ctrl-C alone
void heed_signals();

// Of a name that the Python face has checked.
inline DType dtype_of(std::string_view name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw std::invalid_argument("no element type named " + std::string(name));
  return *dtype;
}

// A contiguous buffer of the caller's, held while the GIL is released. The format is not asked
// for: element types that the buffer protocol cannot name (bfloat16) have bytes all the same.
class Buffer {
 public:
  Buffer(pybind11::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw pybind11::error_already_set();
  }
  explicit Buffer(const Py_buffer& view) : view_(view) {}  // takes it over
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// bind_cuda.cpp. An address comes from Python as a number, an axis as (parts, bytes from each to
// the next).
using AxisTuples = std::vector<std::pair<std::uint64_t, std::int64_t>>;
DeviceBytes device_bytes(std::uintptr_t address, std::uint64_t nbytes, std::uintptr_t stream,
                         int device, const AxisTuples& axes);
DeviceTarget device_target(std::uintptr_t address, std::uint64_t nbytes, std::uintptr_t stream,
                           int device, const AxisTuples& axes);

// session.cpp: Session. bind_assignment.cpp: Assignment. bind_tensor.cpp: TensorRef, RetainedTensor
// and Lease. bind_versions.cpp: versions and transactions. bind_cuda.cpp: CUDA memory.
void bind_session(pybind11::module_& m);
void bind_assignment(pybind11::module_& m, pybind11::class_<Shelf>& shelf);
void bind_versions(pybind11::module_& m, pybind11::class_<Shelf>& shelf);
void bind_tensor(pybind11::module_& m);
void bind_cuda(pybind11::module_& m);
void bind_group(pybind11::module_& m);
void bind_pipeline(pybind11::module_& m);
void bind_layouts(pybind11::module_& m);

}  // namespace tensorshelf::python
