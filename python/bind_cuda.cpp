// What Python says of CUDA memory, as DeviceBytes and DeviceTarget, and copies of it to host
// memory. An address comes from Python as a number: torch's data_ptr(), or
// __cuda_array_interface__.
#include <tensorshelf/cuda.hpp>

#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

namespace {

std::vector<DeviceAxis> axes_of(const AxisTuples& tuples) {
  std::vector<DeviceAxis> axes;
  for (const auto& [count, step] : tuples) axes.push_back({count, step});
  return axes;
}

}  // namespace

DeviceBytes device_bytes(std::uintptr_t address, std::uint64_t nbytes, std::uintptr_t stream,
                         int device, const AxisTuples& axes) {
  return {.data = reinterpret_cast<const void*>(address),
          .size_bytes = nbytes,
          .stream = reinterpret_cast<CUstream_st*>(stream),
          .device = device,
          .axes = axes_of(axes)};
}

DeviceTarget device_target(std::uintptr_t address, std::uint64_t nbytes, std::uintptr_t stream,
                           int device, const AxisTuples& axes) {
  return {.data = reinterpret_cast<void*>(address),
          .size_bytes = nbytes,
          .stream = reinterpret_cast<CUstream_st*>(stream),
          .device = device,
          .axes = axes_of(axes)};
}

namespace {

void copy_to(const py::buffer& target, std::uintptr_t address, std::uintptr_t stream, int device,
             const AxisTuples& axes) {
  const py::buffer_info info = target.request(true);
  const std::span<std::byte> bytes(static_cast<std::byte*>(info.ptr),
                                   static_cast<std::size_t>(info.size * info.itemsize));
  Unlocked unlocked;
  copy_from_device(bytes, device_bytes(address, bytes.size(), stream, device, axes));
}

}  // namespace

void bind_cuda(py::module_& m) {
  m.def("copy_from_device", &copy_to, py::arg("target"), py::kw_only(), py::arg("address"),
        py::arg("stream"), py::arg("device"), py::arg("axes"));
  m.def("cuda_support", [] {
    const auto support = without_gil([&] { return cuda_support(); });
    py::dict d;
    d["built"] = support.built;
    d["runtime_version"] = support.runtime_version;
    d["devices"] = support.devices;
    d["lacks"] = support.lacks;
    return d;
  });
}

}  // namespace tensorshelf::python
