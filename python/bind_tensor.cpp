// Tensor bytes in and out. In: contiguous buffers, held while the GIL is released. Out: leases, and
// copies of tensors, through the buffer protocol (tensor_buffer.hpp). The slots of the protocol are
// written out here, because an exception may not cross them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <tensorshelf/cuda.hpp>

#include "session.hpp"
#include "shared.hpp"
#include "tensor_buffer.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

// Waits for whoever reads or writes the tensor: not with the GIL.
template <class Tensor>
TensorInfo info_of(const Tensor& tensor) {
  Unlocked unlocked;
  return tensor.info();
}

// ---- in -----------------------------------------------------------------------------------------

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

template <class Tensor>
void read_to_device_at(const Tensor& tensor, std::uintptr_t address, std::uint64_t nbytes,
                       std::uint64_t offset, std::uintptr_t stream, int device,
                       const AxisTuples& axes) {
  Unlocked unlocked;
  read_to_device(tensor, device_target(address, nbytes, stream, device, axes), offset);
}

void read_committed_to_device_at(const TensorRef& tensor, std::uintptr_t address,
                                 std::uint64_t nbytes, std::uint64_t offset, std::uintptr_t stream,
                                 int device, const AxisTuples& axes) {
  Unlocked unlocked;
  read_committed_to_device(tensor, device_target(address, nbytes, stream, device, axes), offset);
}

// ---- out ----------------------------------------------------------------------------------------

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
int tensor_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const Tensor tensor = py::handle(self).cast<const Tensor&>();
    const auto read = [&](std::span<std::byte> bytes) { tensor.read(bytes, 0); };
    return export_copy(self, view, flags, info_of(tensor), read);
  } catch (...) {
    set_current_error();
    return -1;
  }
}

extern "C" int lease_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    return export_lease(self, view, flags, py::handle(self).cast<SharedLease>());
  } catch (...) {
    set_current_error();
    return -1;
  }
}

template <getbufferproc kGetBuffer>
py::custom_type_setup buffer_slots() {
  return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
    heap_type->as_buffer.bf_getbuffer = kGetBuffer;
    heap_type->as_buffer.bf_releasebuffer = release_exported;
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
      .def_property_readonly("_name_now", &TensorRef::name)
      .def_property_readonly("_id", &TensorRef::id)
      .def("_is", &TensorRef::operator==, py::arg("other"))
      .def(
          "_assign_array",
          [](TensorRef& tensor, py::handle array, Session& session, std::string_view dtype) {
            return session.assign_array(tensor, array, dtype);
          },
          py::arg("array"), py::arg("session"), py::arg("dtype") = "")
      .def("_read_into", &read_into<TensorRef>, py::arg("target"), py::arg("offset") = 0)
      .def("_read_committed_into", &read_committed_into, py::arg("target"), py::arg("offset") = 0)
      .def("_read_to_device", &read_to_device_at<TensorRef>, py::kw_only(), py::arg("address"),
           py::arg("nbytes"), py::arg("offset"), py::arg("stream"), py::arg("device"),
           py::arg("axes"))
      .def("_read_committed_to_device", &read_committed_to_device_at, py::kw_only(),
           py::arg("address"), py::arg("nbytes"), py::arg("offset"), py::arg("stream"),
           py::arg("device"), py::arg("axes"))
      .def("_lease", [](const TensorRef& tensor) { return take_lease(tensor, false); })
      .def("_lease_committed", [](const TensorRef& tensor) { return take_lease(tensor, true); });

  py::class_<RetainedTensor>(m, "RetainedTensor", buffer_slots<tensor_getbuffer<RetainedTensor>>())
      .def(py::init<const RetainedTensor&>(), py::arg("other"))
      .def("_info", &RetainedTensor::info, py::call_guard<Unlocked>())
      .def("_read_into", &read_into<RetainedTensor>, py::arg("target"), py::arg("offset") = 0)
      .def("_read_to_device", &read_to_device_at<RetainedTensor>, py::kw_only(), py::arg("address"),
           py::arg("nbytes"), py::arg("offset"), py::arg("stream"), py::arg("device"),
           py::arg("axes"))
      .def("_lease", &take_retained_lease);
}

}  // namespace tensorshelf::python
