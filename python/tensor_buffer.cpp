#include "tensor_buffer.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "shared.hpp"

namespace tensorshelf::python {
namespace {

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

// The unsigned integer of the same width, in which _dtypes.py carries the others.
const char* carrier_format(DType dtype) {
  if (const char* native = native_format(dtype)) return native;
  const std::uint64_t bytes = dtype_bytes(dtype);
  return bytes == 1 ? "B" : bytes == 2 ? "H" : "I";
}

}  // namespace

bool has_layout(const Py_buffer& view, const TensorRef& tensor, std::string_view dtype) {
  const auto shape = tensor.shape();
  if (view.ndim != static_cast<int>(shape.size())) return false;
  if (!dtype.empty()) {
    return dtype == dtype_name(tensor.dtype()) &&
           std::equal(shape.begin(), shape.end(), view.shape);
  }
  const char* format = native_format(tensor.dtype());
  if (!format || !view.format) return false;
  // NumPy calls 64-bit integers "l" and "L", as C does here.
  const std::string_view given = view.format;
  const std::string_view same = given == "l" ? "q" : given == "L" ? "Q" : given;
  return same == format && std::equal(shape.begin(), shape.end(), view.shape);
}

LeasedTensor::LeasedTensor(std::optional<Lease> held, const TensorInfo& info)
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

bool LeasedTensor::is_in_both_orders() const {
  return bytes.empty() || std::ranges::count_if(shape, [](auto n) { return n > 1; }) <= 1;
}

int export_lease(PyObject* exporter, Py_buffer* view, int flags, SharedLease leased) {
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
  view->format =
      (flags & PyBUF_FORMAT) ? const_cast<char*>(carrier_format(leased->dtype)) : nullptr;
  view->ndim = (flags & PyBUF_ND) ? static_cast<int>(leased->shape.size()) : 1;
  view->shape = (flags & PyBUF_ND) ? leased->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? leased->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = new SharedLease(std::move(leased));
  view->obj = Py_NewRef(exporter);  // last: who fails leaves it null
  return 0;
}

int export_copy(PyObject* exporter, Py_buffer* view, int flags, const TensorInfo& info,
                const std::function<void(std::span<std::byte>)>& read) {
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return refuse_buffer(BufferRefused::writable);
  if ((flags & PyBUF_FORMAT) == 0) {
    set_bare_buffer_error(info.name);
    return -1;
  }
  if (!native_format(info.dtype)) return refuse_buffer(BufferRefused::no_such_type, &info);
  SharedLease taken = without_gil([&] {
    auto copied = std::make_shared<LeasedTensor>(std::nullopt, info);
    read(copied->copy);
    return copied;
  });
  return export_lease(exporter, view, flags, std::move(taken));
}

extern "C" void release_exported(PyObject* /*exporter*/, Py_buffer* view) {
  delete static_cast<SharedLease*>(view->internal);
}

}  // namespace tensorshelf::python
