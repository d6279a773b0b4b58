// Where tensors of another library lie, compared without a call of Python for each: what a save
// looks at first, of thousands of tensors, with cold caches.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "dlpack.hpp"
#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

template <typename Plain>
bool same(const Plain& a, const Plain& b) {
  return std::memcmp(&a, &b, sizeof(Plain)) == 0;
}

// Of tensors in their order: type, address, device, element type, shape and strides. With the GIL.
class TensorLayouts {
 public:
  // By what the type of the first one offers.
  bool add(const py::handle& tensor) {
    if (exchange_ == nullptr && (!tensors_.empty() || !find(tensor))) return false;
    const std::optional<dlpack::Tensor> found = describe(tensor);
    if (!found) return false;
    tensors_.push_back({py::type::of(tensor), *found, numbers_.size()});
    numbers_.insert(numbers_.end(), found->shape, found->shape + found->ndim);
    numbers_.insert(numbers_.end(), found->strides, found->strides + found->ndim);
    return true;
  }

  bool hold(const py::list& some, std::size_t from) const {
    if (from > tensors_.size() || some.size() > tensors_.size() - from) return false;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const py::handle tensor = PyList_GET_ITEM(some.ptr(), static_cast<py::ssize_t>(i));
      if (!is_as(tensors_[from + i], tensor)) return false;
    }
    return true;
  }

 private:
  struct Known {
    py::type type;
    dlpack::Tensor tensor;  // its shape and strides have moved since: they are in numbers_
    std::size_t numbers_at;
  };

  bool find(const py::handle& tensor) {
    const py::object held = py::getattr(py::type::of(tensor), dlpack::kAttribute, py::none());
    if (PyCapsule_IsValid(held.ptr(), dlpack::kCapsule) == 0) return false;
    auto* header = static_cast<dlpack::Header*>(PyCapsule_GetPointer(held.ptr(), dlpack::kCapsule));
    while (header != nullptr && header->version.major != dlpack::kMajor) header = header->older;
    auto* exchange = reinterpret_cast<dlpack::Exchange*>(header);
    if (exchange == nullptr || exchange->describe == nullptr) return false;
    exchange_ = exchange;
    library_ = held;
    return true;
  }

  std::optional<dlpack::Tensor> describe(const py::handle& tensor) const {
    dlpack::Tensor found{};
    if (exchange_->describe(tensor.ptr(), &found) == 0) return found;
    PyErr_Clear();  // it has no memory of its own, or elements that DLPack has no name for
    return std::nullopt;
  }

  bool is_as(const Known& known, const py::handle& tensor) const {
    if (reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())) != known.type.ptr()) return false;
    const std::optional<dlpack::Tensor> now = describe(tensor);
    const dlpack::Tensor& before = known.tensor;
    if (!now || now->data != before.data || now->byte_offset != before.byte_offset ||
        now->ndim != before.ndim || !same(now->device, before.device) ||
        !same(now->type, before.type)) {
      return false;
    }
    const std::int64_t* shape = numbers_.data() + known.numbers_at;
    return std::equal(now->shape, now->shape + now->ndim, shape) &&
           std::equal(now->strides, now->strides + now->ndim, shape + now->ndim);
  }

  const dlpack::Exchange* exchange_ = nullptr;
  py::object library_;  // keeps it
  std::vector<Known> tensors_;
  std::vector<std::int64_t> numbers_;  // of each the shape, then the strides
};

}  // namespace

void bind_layouts(py::module_& m) {
  py::class_<TensorLayouts>(m, "TensorLayouts")
      .def(py::init<>())
      .def("add", &TensorLayouts::add, py::arg("tensor"))
      .def("hold", &TensorLayouts::hold, py::arg("tensors"), py::arg("begin"));
}

}  // namespace tensorshelf::python
