// The native half of the Python package: converts arguments and results, releases the GIL around
// every copy, flush and wait, and decides nothing. What a name, a size text or an index means is
// settled in python/tensorshelf; what a shelf does is settled in the store.
//
// NumPy's headers are not used: tensor bytes come in as contiguous buffers and go out through the
// buffer protocol, read-only, so that one build serves every NumPy. The slots of that protocol are
// written out here because an exception may not cross them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <utility>

#include <tensorshelf/shelf.hpp>

namespace py = pybind11;
using namespace tensorshelf;

namespace {

using Unlocked = py::gil_scoped_release;

// ---- errors -------------------------------------------------------------------------------------

// Sets the Python error that tensorshelf/_errors.py makes of this one.
void set_python_error(const Error& error) {
  try {
    py::object made =
        py::module_::import("tensorshelf._errors")
            .attr("from_core")(std::string(code_name(error.code())), std::string(error.what()),
                               error.remedy(), error.os_error());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  } catch (py::error_already_set& failed) {
    failed.restore();
  }
}

// For code that C calls: turns whatever is in flight into a Python error.
void set_current_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    set_python_error(error);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
}

// ---- buffers in ---------------------------------------------------------------------------------

// A contiguous buffer of the caller's, held while the GIL is released. The format is not asked
// for: element types that the buffer protocol cannot name (bfloat16) have bytes all the same.
class Buffer {
 public:
  Buffer(py::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

void write(TensorRef& tensor, py::handle source, std::uint64_t offset) {
  Buffer buffer(source, PyBUF_C_CONTIGUOUS);
  Unlocked unlocked;
  tensor.write(buffer.bytes(), offset);
}

void read_into(const TensorRef& tensor, py::handle target, std::uint64_t offset) {
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  Unlocked unlocked;
  tensor.read(buffer.bytes(), offset);
}

void read_committed_into(const TensorRef& tensor, py::handle target, std::uint64_t offset) {
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  Unlocked unlocked;
  tensor.read_committed(buffer.bytes(), offset);
}

// ---- buffers out --------------------------------------------------------------------------------

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

// A lease together with the layout that gives its bytes a meaning.
struct LeasedTensor {
  LeasedTensor(Lease held, const TensorInfo& info)
      : lease(std::move(held)), dtype(info.dtype), shape(info.shape.begin(), info.shape.end()) {
    strides.resize(shape.size());
    Py_ssize_t stride = itemsize();
    for (std::size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i] > 0 ? shape[i] : 1;
    }
  }

  Py_ssize_t itemsize() const { return static_cast<Py_ssize_t>(dtype_bytes(dtype)); }

  Lease lease;
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

// The view keeps its own share of the lease, so the slot stays pinned for as long as any array or
// memoryview made of it lives.
int export_lease(PyObject* exporter, Py_buffer* view, int flags, SharedLease leased,
                 const char* format) {
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "a shelf's bytes are read-only; write through the tensor");
    return -1;
  }
  static const std::byte nowhere{};
  const auto bytes = leased->lease.bytes();
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

extern "C" int tensor_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const TensorRef tensor = py::handle(self).cast<const TensorRef&>();
    const TensorInfo info = tensor.info();
    const char* format = native_format(info.dtype);
    if (!format) {
      PyErr_Format(PyExc_BufferError, "'%s' is %s, which the buffer protocol cannot name",
                   info.name.c_str(), std::string(dtype_name(info.dtype)).c_str());
      return -1;
    }
    return export_lease(self, view, flags, take_lease(tensor, false), format);
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

// ---- results ------------------------------------------------------------------------------------

py::tuple shape_of(const TensorInfo& info) {
  py::tuple shape(info.shape.size());
  for (std::size_t i = 0; i < info.shape.size(); ++i) shape[i] = py::int_(info.shape[i]);
  return shape;
}

const char* survives_name(Survives survives) {
  switch (survives) {
    case Survives::nothing:
      return "nothing";
    case Survives::process_crash:
      return "process crash";
    case Survives::power_loss:
      return "power loss";
  }
  return "nothing";
}

py::dict to_dict(const Promises& promises) {
  py::dict d;
  d["medium"] = promises.medium;
  d["detail"] = promises.detail;
  d["survives"] = survives_name(promises.survives);
  d["mapped"] = promises.mapped;
  d["needs_flush"] = promises.needs_flush;
  d["volatile_cache"] = promises.volatile_cache;
  d["atomic_bytes"] = promises.atomic_bytes;
  d["notes"] = promises.notes;
  return d;
}

py::dict to_dict(const Recovery& recovery) {
  py::dict d;
  d["version"] = recovery.version;
  d["step"] = recovery.step;
  d["interrupted"] = recovery.interrupted;
  d["degraded"] = recovery.degraded;
  d["repaired_copies"] = recovery.repaired_copies;
  d["notes"] = recovery.notes;
  return d;
}

py::dict to_dict(const ShelfInfo& info) {
  py::dict d;
  d["path"] = info.path;
  d["shelf_id"] = info.shelf_id;
  d["version"] = info.version;
  d["step"] = info.step;
  d["incarnation"] = info.incarnation;
  d["tensors"] = info.tensors;
  d["tensor_bytes"] = info.tensor_bytes;
  d["capacity_bytes"] = info.capacity_bytes;
  d["free_bytes"] = info.free_bytes;
  d["writable"] = info.writable;
  d["promises"] = to_dict(info.promises);
  d["recovery"] = to_dict(info.recovery);
  return d;
}

py::dict to_dict(const Stats& stats) {
  py::dict d;
  d["commits"] = stats.commits;
  d["bytes_staged"] = stats.bytes_staged;
  d["bytes_copied_forward"] = stats.bytes_copied_forward;
  d["metadata_bytes"] = stats.metadata_bytes;
  d["bytes_read"] = stats.bytes_read;
  d["chunks_verified"] = stats.chunks_verified;
  d["medium_writes"] = stats.medium_writes;
  d["medium_bytes"] = stats.medium_bytes;
  d["barriers"] = stats.barriers;
  d["commit_seconds"] = stats.commit_seconds;
  return d;
}

py::dict to_dict(const VerifyReport& report) {
  py::list damage;
  for (const Damage& found : report.damage) {
    py::dict d;
    d["tensor"] = found.tensor;
    d["version"] = found.version;
    d["slot"] = found.slot;
    d["chunk"] = found.chunk;
    d["offset"] = found.extent.at;
    d["nbytes"] = found.extent.size_bytes;
    damage.append(d);
  }
  py::dict d;
  d["version"] = report.version;
  d["tensors"] = report.tensors;
  d["chunks"] = report.chunks;
  d["nbytes"] = report.bytes;
  d["damage"] = damage;
  return d;
}

// ---- calls --------------------------------------------------------------------------------------

// A Python callable as a Progress. Ctrl-C and the callable's own errors stop the work by the way.
Progress progress_of(const py::object& callable) {
  if (callable.is_none()) return {};
  const py::handle borrowed = callable;  // the caller's frame holds it for as long as this is used
  return [borrowed](std::uint64_t done, std::uint64_t total) {
    py::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    borrowed(done, total);
  };
}

Shelf open_shelf(const py::bytes& path, Mode mode, Tier tier, std::uint64_t max_size_bytes,
                 Verify verify, const BlockTuning& block, const py::object& progress) {
  OpenOptions options;
  options.mode = mode;
  options.tier = tier;
  options.max_size_bytes = max_size_bytes;
  options.verify = verify;
  options.block = block;
  options.progress = progress_of(progress);
  const std::filesystem::path native(static_cast<std::string>(path));
  Unlocked unlocked;
  return Shelf::open(native, options);
}

class PendingCommit {
 public:
  explicit PendingCommit(std::shared_future<Commit> future) : future_(std::move(future)) {}

  bool done() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  // Wakes now and then so that Ctrl-C is heard.
  Commit wait() const {
    while (true) {
      {
        Unlocked unlocked;
        if (future_.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready) break;
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    return future_.get();
  }

 private:
  std::shared_future<Commit> future_;
};

void bind_values(py::module_& m) {
  py::enum_<Mode>(m, "Mode")
      .value("read", Mode::read)
      .value("update", Mode::update)
      .value("append", Mode::append)
      .value("replace", Mode::replace)
      .value("create", Mode::create);
  py::enum_<Tier>(m, "Tier")
      .value("automatic", Tier::automatic)
      .value("pmem", Tier::pmem)
      .value("block", Tier::block);
  py::enum_<Verify>(m, "Verify")
      .value("never", Verify::never)
      .value("on_load", Verify::on_load)
      .value("on_open", Verify::on_open);

  py::class_<BlockTuning>(m, "BlockTuning")
      .def(py::init<>())
      .def_readwrite("buffer_bytes", &BlockTuning::buffer_bytes)
      .def_readwrite("queue_depth", &BlockTuning::queue_depth)
      .def_readwrite("io_uring", &BlockTuning::io_uring)
      .def_readwrite("direct", &BlockTuning::direct);

  py::class_<TensorInfo>(m, "TensorInfo")
      .def_readonly("name", &TensorInfo::name)
      .def_property_readonly("dtype", [](const TensorInfo& info) { return dtype_name(info.dtype); })
      .def_property_readonly("shape", &shape_of)
      .def_readonly("nbytes", &TensorInfo::size_bytes)
      .def_readonly("version", &TensorInfo::version)
      .def_readonly("dirty", &TensorInfo::dirty);

  py::class_<Commit>(m, "CommitResult")
      .def_readonly("version", &Commit::version)
      .def_readonly("step", &Commit::step)
      .def_readonly("data_bytes", &Commit::data_bytes)
      .def_readonly("metadata_bytes", &Commit::metadata_bytes)
      .def_readonly("seconds", &Commit::seconds);

  py::class_<PendingCommit>(m, "PendingCommit")
      .def("done", &PendingCommit::done)
      .def("wait", &PendingCommit::wait);
}

void bind_tensor(py::module_& m) {
  py::class_<LeasedTensor, SharedLease>(m, "Lease", buffer_slots<lease_getbuffer>())
      .def_property_readonly("in_place",
                             [](const LeasedTensor& leased) { return leased.lease.in_place(); });

  py::class_<TensorRef>(m, "TensorRef", buffer_slots<tensor_getbuffer>())
      .def(py::init<const TensorRef&>(), py::arg("other"))
      .def("_info", &TensorRef::info)
      .def("_write", &write, py::arg("source"), py::arg("offset") = 0)
      .def("_read_into", &read_into, py::arg("target"), py::arg("offset") = 0)
      .def("_read_committed_into", &read_committed_into, py::arg("target"), py::arg("offset") = 0)
      .def("_lease", [](const TensorRef& tensor) { return take_lease(tensor, false); })
      .def("_lease_committed", [](const TensorRef& tensor) { return take_lease(tensor, true); });
}

DType dtype_of(std::string_view name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw py::value_error("no element type named " + std::string(name));
  return *dtype;
}

void bind_shelf(py::module_& m) {
  py::class_<Shelf>(m, "Shelf")
      .def_static("open", &open_shelf, py::kw_only(), py::arg("path"), py::arg("mode"),
                  py::arg("tier"), py::arg("max_size_bytes"), py::arg("verify"), py::arg("block"),
                  py::arg("progress"))
      .def(
          "create",
          [](Shelf& shelf, const std::string& name, const std::string& dtype,
             const std::vector<std::int64_t>& shape) {
            const DType element = dtype_of(dtype);
            Unlocked unlocked;
            return shelf.create(name, element, shape);
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"))
      .def(
          "replace",
          [](Shelf& shelf, const std::string& name, const std::string& dtype,
             const std::vector<std::int64_t>& shape) {
            const DType element = dtype_of(dtype);
            Unlocked unlocked;
            return shelf.replace(name, element, shape);
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"))
      .def("erase", &Shelf::erase, py::arg("name"), py::call_guard<Unlocked>())
      .def("find", &Shelf::find, py::arg("name"), py::call_guard<Unlocked>())
      .def("names", &Shelf::names, py::call_guard<Unlocked>())
      .def("persist", &Shelf::persist, py::arg("step"), py::call_guard<Unlocked>())
      .def(
          "persist_async",
          [](Shelf& shelf, std::optional<std::uint64_t> step) {
            Unlocked unlocked;
            return PendingCommit(shelf.persist_async(step));
          },
          py::arg("step"))
      .def(
          "verify",
          [](const Shelf& shelf, const py::object& progress) {
            VerifyReport report;
            {
              const Progress call = progress_of(progress);
              Unlocked unlocked;
              report = shelf.verify(call);
            }
            return to_dict(report);
          },
          py::arg("progress"))
      .def("info",
           [](const Shelf& shelf) {
             ShelfInfo info;
             {
               Unlocked unlocked;
               info = shelf.info();
             }
             return to_dict(info);
           })
      .def("stats",
           [](const Shelf& shelf) {
             Stats stats;
             {
               Unlocked unlocked;
               stats = shelf.stats();
             }
             return to_dict(stats);
           })
      .def("close", &Shelf::close, py::call_guard<Unlocked>())
      .def_property_readonly("closed", &Shelf::closed);
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "Native half of tensorshelf. Use the tensorshelf package, not this module.";
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const Error& error) {
      set_python_error(error);
    }
  });
  m.attr("__version__") = TENSORSHELF_VERSION;
  m.attr("CHUNK_BYTES") = kChunkBytes;
  bind_values(m);
  bind_tensor(m);
  bind_shelf(m);
}
