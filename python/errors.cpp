#include <string>

#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

py::str shown(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (!decoded) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

void set_python_error(const Error& error) {
  // Also around what makes objects: that may collect garbage, whose finalizers are Python code.
  or_wait_for_the_end([&] {
    try {
      const py::object made =
          call_python(py::module_::import("tensorshelf.errors").attr("from_core"),
                      py::make_tuple(std::string(code_name(error.code())), shown(error.what()),
                                     shown(error.remedy()), error.os_error()));
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    } catch (py::error_already_set& failed) {
      failed.restore();
    }
  });
}

void set_current_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    set_python_error(error);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
}

int refuse_buffer(BufferRefused why, const TensorInfo* info) {
  switch (why) {
    case BufferRefused::writable:
      PyErr_SetString(PyExc_BufferError, "a shelf's bytes are read-only; write through the tensor");
      break;
    case BufferRefused::fortran_order:
      PyErr_SetString(PyExc_BufferError, "a shelf's bytes lie in C order, and not in Fortran's");
      break;
    case BufferRefused::no_such_type:
      PyErr_Format(PyExc_BufferError, "'%s' is %s, which the buffer protocol cannot name",
                   info->name.c_str(), std::string(dtype_name(info->dtype)).c_str());
      break;
  }
  return -1;
}

// torch.asarray() and torch.frombuffer() ask for bare bytes, take them for float32, and give the
// buffer back at once, to read it when the memory is another's. Their own error hides ours, so the
// remedy is a warning, too.
void set_bare_buffer_error(const std::string& name) {
  PyErr_Clear();
  const std::string text = "'" + name +
                           "' has an element type and a shape, which this call would drop: give it "
                           "memoryview(handle), .numpy() or .torch()";
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) PyErr_Clear();
  PyErr_SetString(PyExc_BufferError, text.c_str());
}

}  // namespace tensorshelf::python
