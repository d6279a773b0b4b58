// What the files of the native module share. Each converts and none decides: see bindings.cpp.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::python {

using Unlocked = pybind11::gil_scoped_release;

// errors.cpp. The first sets the Python error that tensorshelf/_errors.py makes of this one; the
// second, called in a catch block, does so for whatever is in flight, for functions that C calls
// and no exception may leave.
void set_python_error(const Error& error);
void set_current_error() noexcept;

// results.cpp: the store's values as dicts, for _info.py to make dataclasses of.
pybind11::tuple shape_of(const TensorInfo& info);
pybind11::dict to_dict(const ShelfInfo& info);
pybind11::dict to_dict(const Stats& stats);
pybind11::dict to_dict(const VerifyReport& report);

// gate.cpp: Gate. bind_tensor.cpp: TensorRef and Lease. bind_cuda.cpp: CUDA memory and the build.
void bind_gate(pybind11::module_& m);
void bind_tensor(pybind11::module_& m);
void bind_cuda(pybind11::module_& m);

}  // namespace tensorshelf::python
