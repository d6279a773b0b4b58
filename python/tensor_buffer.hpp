// The buffer protocol and tensors: which buffers a tensor takes as they are, and which it gives
// out. That is decided here, and not in the bindings, which convert. NumPy's headers are not used,
// so that one build serves every NumPy.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <pybind11/pybind11.h>

#include <tensorshelf/handles.hpp>
#include <tensorshelf/lease.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf::python {

// True where the buffer is of the tensor's very layout, in C order; false also where that cannot be
// told. `dtype` names the elements where the protocol has no letter for them; else it is empty.
bool has_layout(const Py_buffer& view, const TensorRef& tensor, std::string_view dtype);

// Leased or copied bytes together with the layout that gives them a meaning.
struct LeasedTensor {
  LeasedTensor(std::optional<Lease> held, const TensorInfo& info);  // no lease: room for a copy

  Py_ssize_t itemsize() const { return static_cast<Py_ssize_t>(dtype_bytes(dtype)); }
  bool is_in_both_orders() const;  // C's and Fortran's: of one long axis at most, or empty

  std::optional<Lease> lease;
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes;
  DType dtype;
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
};
using SharedLease = std::shared_ptr<LeasedTensor>;

// Fill `view` for the exporter, read-only, as bf_getbuffer does: 0, or -1 with a Python error set.
// The view keeps its own share of the bytes, so that a leased slot stays pinned for as long as any
// array or memoryview made of it lives. bf_releasebuffer is release_exported().
//
// A lease goes out as the unsigned integers of the same width, in which _dtypes.py carries what the
// protocol has no letter for.
int export_lease(PyObject* exporter, Py_buffer* view, int flags, SharedLease leased);
// Of a tensor a copy, for which `read` fills the bytes, without the GIL: a view of the slot would
// pin it, and is had by asking for one, with numpy(copy=False). Not as bare bytes.
int export_copy(PyObject* exporter, Py_buffer* view, int flags, const TensorInfo& info,
                const std::function<void(std::span<std::byte>)>& read);
extern "C" void release_exported(PyObject* exporter, Py_buffer* view);

}  // namespace tensorshelf::python
