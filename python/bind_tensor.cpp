// Tensor bytes in and out. In: contiguous buffers, held while the GIL is released. Out: leases, and
// copies of tensors, through the buffer protocol, read-only. NumPy's headers are not used, so that
// one build serves every NumPy. The slots of the protocol are written out here, because an
// exception may not cross them and the view has to own its share of the bytes.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "session.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

// ---- layout -------------------------------------------------------------------------------------

// The struct-module letter of an element type; nullptr where the buffer protocol has none.
const char* native_format(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "?";
    case DType::uint8:
      return "B";
    case DType::int8:
      return "b";
    case DType::uint16:
      return "H";
    case DType::int16:
      return "h";
    case DType::uint32:
      return "I";
    case DType::int32:
      return "i";
    case DType::uint64:
      return "Q";
    case DType::int64:
      return "q";
    case DType::float16:
      return "e";
    case DType::float32:
      return "f";
    case DType::float64:
      return "d";
    case DType::complex64:
      return "Zf";
    case DType::complex128:
      return "Zd";
    default:
      return nullptr;
  }
}

// Waits for whoever reads or writes the tensor: not with the GIL.
template <class Tensor>
TensorInfo info_of(const Tensor& tensor) {
  Unlocked unlocked;
  return tensor.info();
}

// ---- in -----------------------------------------------------------------------------------------

// True where the buffer is of this very layout; false also where it cannot be told. `dtype` names
// the elements where the buffer protocol cannot.
bool has_layout(const Py_buffer& view, const TensorInfo& info, std::string_view dtype) {
  if (view.ndim != static_cast<int>(info.shape.size())) return false;
  if (!dtype.empty()) {
    return dtype == dtype_name(info.dtype) &&
           std::equal(info.shape.begin(), info.shape.end(), view.shape);
  }
  const char* format = native_format(info.dtype);
  if (!format || !view.format) return false;
  // NumPy calls 64-bit integers "l" and "L", as C does here.
  const std::string_view given = view.format;
  const std::string_view same = given == "l" ? "q" : given == "L" ? "Q" : given;
  return same == format && std::equal(info.shape.begin(), info.shape.end(), view.shape);
}

// The short way of an assignment, for what training does most: a whole tensor from a contiguous
// array of its own layout. False where it is something else, or the session will not have it:
// nothing was done, and Python code goes the long way.
bool assign_array(TensorRef& tensor, py::handle array, Session& session, std::string_view dtype) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  const Buffer buffer(view);
  const TensorInfo info = info_of(tensor);
  return has_layout(view, info, dtype) && session.assign_whole(tensor, info.name, buffer.bytes());
}

template <class Tensor>
void read_into(const Tensor& tensor, py::handle target, std::uint64_t offset) {
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  Unlocked unlocked;
  tensor.read(buffer.bytes(), offset);
}

void read_committed_into(const TensorRef& tensor, py::handle target, std::uint64_t offset) {
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  Unlocked unlocked;
  tensor.read_committed(buffer.bytes(), offset);
}

// ---- out ----------------------------------------------------------------------------------------

// The unsigned integer of the same width, in which _dtypes.py carries the others.
const char* carrier_format(DType dtype) {
  if (const char* native = native_format(dtype)) return native;
  const std::uint64_t bytes = dtype_bytes(dtype);
  return bytes == 1 ? "B" : bytes == 2 ? "H" : "I";
}

// Leased or copied bytes together with the layout that gives them a meaning.
struct LeasedTensor {
  LeasedTensor(std::optional<Lease> held, const TensorInfo& info)
      : lease(std::move(held)),
        copy(lease ? 0 : info.size_bytes),
        bytes(lease ? lease->bytes() : copy),
        dtype(info.dtype),
        shape(info.shape.begin(), info.shape.end()) {
    strides.resize(shape.size());
    Py_ssize_t stride = itemsize();
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i] > 0 ? shape[i] : 1;
    }
  }

  Py_ssize_t itemsize() const { return static_cast<Py_ssize_t>(dtype_bytes(dtype)); }

  // Of one long axis at most, or empty: then C order is Fortran's as well.
  bool is_in_both_orders() const {
    return bytes.empty() || std::ranges::count_if(shape, [](auto n) { return n > 1; }) <= 1;
  }

  std::optional<Lease> lease;
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes;
  DType dtype;
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
};
using SharedLease = std::shared_ptr<LeasedTensor>;

SharedLease take_lease(const TensorRef& tensor, bool committed) {
  Unlocked unlocked;
  return std::make_shared<LeasedTensor>(committed ? tensor.lease_committed() : tensor.lease(),
                                        tensor.info());
}

SharedLease take_retained_lease(const RetainedTensor& tensor) {
  Unlocked unlocked;
  return std::make_shared<LeasedTensor>(tensor.lease(), tensor.info());
}

template <class Tensor>
SharedLease take_copy(const Tensor& tensor, const TensorInfo& info) {
  Unlocked unlocked;
  auto taken = std::make_shared<LeasedTensor>(std::nullopt, info);
  tensor.read(taken->copy, 0);
  return taken;
}

// The view keeps its own share of the bytes, so a leased slot stays pinned for as long as any array
// or memoryview made of it lives.
int export_lease(PyObject* exporter, Py_buffer* view, int flags, SharedLease leased,
                 const char* format) {
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return refuse_buffer(BufferRefused::writable);
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !leased->is_in_both_orders()) {
    return refuse_buffer(BufferRefused::fortran_order);
  }
  static const std::byte nowhere{};
  const auto bytes = leased->bytes;
  const void* first = bytes.empty() ? &nowhere : bytes.data();
  view->buf = const_cast<void*>(first);  // Py_buffer has no const; readonly says it
  view->len = static_cast<Py_ssize_t>(bytes.size());
  view->readonly = 1;
  view->itemsize = leased->itemsize();
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->ndim = (flags & PyBUF_ND) ? static_cast<int>(leased->shape.size()) : 1;
  view->shape = (flags & PyBUF_ND) ? leased->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? leased->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->obj = Py_NewRef(exporter);
  view->internal = new SharedLease(std::move(leased));
  return 0;
}

// A copy: a view of the slot would pin it, and is had by asking for one, with numpy(copy=False).
template <class Tensor>
int tensor_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const Tensor tensor = py::handle(self).cast<const Tensor&>();
    const TensorInfo info = info_of(tensor);
    const bool writable = (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE;  // refused further on
    if ((flags & PyBUF_FORMAT) == 0 && !writable) {
      set_bare_buffer_error(info.name);
      return -1;
    }
    const char* format = native_format(info.dtype);
    if (!format) return refuse_buffer(BufferRefused::no_such_type, &info);
    return export_lease(self, view, flags, take_copy(tensor, info), format);
  } catch (...) {
    set_current_error();
    return -1;
  }
}

extern "C" int lease_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    auto leased = py::handle(self).cast<SharedLease>();
    const char* format = carrier_format(leased->dtype);
    return export_lease(self, view, flags, std::move(leased), format);
  } catch (...) {
    set_current_error();
    return -1;
  }
}

extern "C" void release_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<SharedLease*>(view->internal);
}

template <getbufferproc kGetBuffer>
py::custom_type_setup buffer_slots() {
  return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
    heap_type->as_buffer.bf_getbuffer = kGetBuffer;
    heap_type->as_buffer.bf_releasebuffer = release_buffer;
    heap_type->ht_type.tp_as_buffer = &heap_type->as_buffer;
  });
}

}  // namespace

void bind_tensor(py::module_& m) {
  py::class_<LeasedTensor, SharedLease>(m, "Lease", buffer_slots<lease_getbuffer>())
      .def_property_readonly("in_place",
                             [](const LeasedTensor& leased) { return leased.lease->in_place(); });

  py::class_<TensorRef>(m, "TensorRef", buffer_slots<tensor_getbuffer<TensorRef>>())
      .def(py::init<const TensorRef&>(), py::arg("other"))
      .def("_info", &TensorRef::info, py::call_guard<Unlocked>())
      .def("_assign_array", &assign_array, py::arg("array"), py::arg("session"),
           py::arg("dtype") = "")
      .def("_read_into", &read_into<TensorRef>, py::arg("target"), py::arg("offset") = 0)
      .def("_read_committed_into", &read_committed_into, py::arg("target"), py::arg("offset") = 0)
      .def("_lease", [](const TensorRef& tensor) { return take_lease(tensor, false); })
      .def("_lease_committed", [](const TensorRef& tensor) { return take_lease(tensor, true); });

  py::class_<RetainedTensor>(m, "RetainedTensor", buffer_slots<tensor_getbuffer<RetainedTensor>>())
      .def(py::init<const RetainedTensor&>(), py::arg("other"))
      .def("_info", &RetainedTensor::info, py::call_guard<Unlocked>())
      .def("_read_into", &read_into<RetainedTensor>, py::arg("target"), py::arg("offset") = 0)
      .def("_lease", &take_retained_lease);
}

}  // namespace tensorshelf::python
