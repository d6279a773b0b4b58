// The native half of the Python package: converts arguments and results, and releases the GIL
// around every copy, flush and wait. What a name, a size text or an index means is settled in
// python/tensorshelf; what a shelf does is settled in the store. bind_*.cpp convert. These decide:
// - gil.hpp: how long a wait goes on before Ctrl-C is heard, and that threads which an ending
//   interpreter would make exit wait for its end.
// - session.cpp: what Python's handles make of what the store did.
// - assignment_block.cpp, transaction_block.cpp: which end a `with` block comes to.
// - tensor_buffer.cpp: which buffers a tensor takes as they are, and which it gives out.
// - pending_commit.cpp: what a child of fork() may ask of a commit.
// - tensor_layouts.cpp: that a tensor which cannot be asked is not as it was.
// - progress.cpp: what a wait of the store's own hears, and what an ending interpreter refuses.
// - errors.cpp: which Python error an error is.
#include <pybind11/functional.h>

#include <chrono>
#include <future>
#include <utility>

#include <tensorshelf/build.hpp>

#include "pending_commit.hpp"
#include "session.hpp"
#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

namespace {

py::list list_of_build_parts() {
  py::list parts;
  for (const BuildPart& part : build_parts()) {
    parts.append(py::make_tuple(part.name, part.there, part.without));
  }
  return parts;
}

Shelf open_shelf(const py::bytes& path, Mode mode, OpenOptions options,
                 const py::object& progress) {
  options.mode = mode;
  options.progress = progress_of(progress);
  options.while_waiting = heed_signals;
  const std::filesystem::path native(static_cast<std::string>(path));
  Unlocked unlocked;
  return Shelf::open(native, options);
}

py::dict repair_shelf(const py::bytes& path, OpenOptions options, const py::object& progress) {
  options.progress = progress_of(progress);
  const std::filesystem::path native(static_cast<std::string>(path));
  return to_dict(without_gil([&] { return repair(native, options); }));
}

void bind_options(py::module_& m) {
  py::class_<BlockTuning>(m, "BlockTuning")
      .def(py::init<>())
      .def_readwrite("buffer_bytes", &BlockTuning::buffer_bytes)
      .def_readwrite("queue_depth", &BlockTuning::queue_depth)
      .def_readwrite("io_uring", &BlockTuning::io_uring)
      .def_readwrite("direct", &BlockTuning::direct);

  py::enum_<Placement>(m, "Placement")
      .value("whole", Placement::whole)
      .value("by_chunk", Placement::by_chunk);

  py::enum_<OnPin>(m, "OnPin").value("wait", OnPin::wait).value("outrun", OnPin::outrun);

  py::class_<OpenOptions>(m, "OpenOptions")
      .def(py::init<>())
      .def_readwrite("tier", &OpenOptions::tier)
      .def_readwrite("max_size_bytes", &OpenOptions::max_size_bytes)
      .def_readwrite("verify", &OpenOptions::verify)
      .def_readwrite("block", &OpenOptions::block)
      .def_readwrite("keep", &OpenOptions::keep)
      .def_readwrite("in_flight", &OpenOptions::in_flight)
      .def_readwrite("placement", &OpenOptions::placement)
      .def_readwrite("threads", &OpenOptions::threads)
      .def_readwrite("keep_unchanged", &OpenOptions::keep_unchanged)
      .def_readwrite("heal", &OpenOptions::heal)
      .def_readwrite("salvage", &OpenOptions::salvage)
      .def_readwrite("on_pin", &OpenOptions::on_pin)
      .def(
          "set_media",
          [](OpenOptions& options, const std::vector<py::bytes>& also, PlaceTensor place,
             const std::vector<std::pair<unsigned, py::bytes>>& mirrors,
             std::vector<unsigned> without) {
            options.also.assign(also.begin(), also.end());
            options.place = std::move(place);
            options.mirrors.clear();
            for (const auto& [of, path] : mirrors) options.mirrors.push_back({path, of});
            options.without = std::move(without);
          },
          py::arg("also"), py::arg("place"), py::arg("mirrors"), py::arg("without"))
      .def_property(
          "pin_timeout", [](const OpenOptions& options) { return options.pin_timeout.count(); },
          [](OpenOptions& options, double seconds) {
            options.pin_timeout = std::chrono::duration<double>(seconds);
          });
}

void bind_values(py::module_& m) {
  py::enum_<Mode>(m, "Mode")
      .value("read", Mode::read)
      .value("update", Mode::update)
      .value("append", Mode::append)
      .value("replace", Mode::replace)
      .value("create", Mode::create);
  py::enum_<Verify>(m, "Verify")
      .value("never", Verify::never)
      .value("on_load", Verify::on_load)
      .value("on_open", Verify::on_open);

  py::class_<TensorInfo>(m, "TensorInfo")
      .def_readonly("name", &TensorInfo::name)
      .def_readonly("id", &TensorInfo::id)
      .def_property_readonly("dtype", [](const TensorInfo& info) { return dtype_name(info.dtype); })
      .def_property_readonly("shape", &shape_of)
      .def_readonly("nbytes", &TensorInfo::size_bytes)
      .def_readonly("version", &TensorInfo::version)
      .def_readonly("pending", &TensorInfo::pending)
      .def_readonly("dirty", &TensorInfo::dirty)
      .def_readonly("spoiled", &TensorInfo::spoiled)
      .def_readonly("media", &TensorInfo::media);

  py::class_<Commit>(m, "CommitResult")
      .def_readonly("version", &Commit::version)
      .def_readonly("step", &Commit::step)
      .def_readonly("data_bytes", &Commit::data_bytes)
      .def_readonly("metadata_bytes", &Commit::metadata_bytes)
      .def_readonly("seconds", &Commit::seconds)
      .def_property_readonly("times", [](const Commit& commit) { return to_dict(commit.times); });

  py::class_<PendingCommit>(m, "PendingCommit")
      .def("done", &PendingCommit::done)
      .def("wait", &PendingCommit::wait);
}

// What there is in a shelf, and what it is asked.
void bind_tensors(py::class_<Shelf>& cls) {
  cls.def(
         "create",
         [](Shelf& shelf, const std::string& name, const std::string& dtype,
            const std::vector<std::int64_t>& shape, const std::vector<unsigned>& media) {
           const DType element = dtype_of(dtype);
           Unlocked unlocked;
           return shelf.create(name, element, shape, media);
         },
         py::arg("name"), py::arg("dtype"), py::arg("shape"),
         py::arg("media") = std::vector<unsigned>())
      .def(
          "replace",
          [](Shelf& shelf, const std::string& name, const std::string& dtype,
             const std::vector<std::int64_t>& shape, py::handle value, Session& session) {
            const Buffer buffer(value, PyBUF_C_CONTIGUOUS);
            session.replace(shelf, name, dtype_of(dtype), shape, buffer.bytes());
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("value"), py::arg("session"))
      .def("erase", &Shelf::erase, py::arg("name"), py::call_guard<Unlocked>())
      .def("rename", &Shelf::rename, py::arg("before"), py::arg("after"),
           py::call_guard<Unlocked>())
      .def("resize", &Shelf::resize, py::arg("name"), py::arg("rows"), py::call_guard<Unlocked>())
      .def(
          "move",
          [](Shelf& shelf, const std::string& name, const std::vector<unsigned>& media) {
            Unlocked unlocked;
            return shelf.move(name, media);
          },
          py::arg("name"), py::arg("media"))
      .def("remove_medium", &Shelf::remove_medium, py::arg("number"), py::call_guard<Unlocked>())
      .def("reserve", &Shelf::reserve, py::arg("size_bytes"), py::call_guard<Unlocked>())
      .def(
          "compact",
          [](Shelf& shelf, double patience) {
            const std::chrono::duration<double> seconds(patience);
            return to_dict(without_gil([&] { return shelf.compact(seconds); }));
          },
          py::arg("patience"))
      .def("find", &Shelf::find, py::arg("name"), py::call_guard<Unlocked>())
      .def("names", &Shelf::names, py::call_guard<Unlocked>())
      .def("has_uncommitted", &Shelf::has_uncommitted, py::call_guard<Unlocked>());
}

py::class_<Shelf> bind_shelf(py::module_& m) {
  py::class_<Shelf> cls(m, "Shelf");
  bind_tensors(cls);
  cls.def_static("open", &open_shelf, py::kw_only(), py::arg("path"), py::arg("mode"),
                 py::arg("options"), py::arg("progress"))
      .def(
          "persist",
          [](Shelf& shelf, Session& session, std::optional<std::uint64_t> step) {
            const auto commit = without_gil([&] { return shelf.persist(step); });
            session.persisted();
            return commit;
          },
          py::arg("session"), py::arg("step"))
      .def(
          "persist_async",
          [](Shelf& shelf, Session& session, std::optional<std::uint64_t> step) {
            auto commit = without_gil([&] { return shelf.persist_async(step); });
            session.persisted();
            return PendingCommit(std::move(commit));
          },
          py::arg("session"), py::arg("step"))
      .def(
          "verify",
          [](const Shelf& shelf, const py::object& progress, const py::object& on_damage) {
            const Progress call = progress_of(progress);
            const OnDamage tell = on_damage_of(on_damage);
            return to_dict(without_gil([&] { return shelf.verify(call, tell); }));
          },
          py::arg("progress"), py::arg("on_damage") = py::none())
      .def(
          "heal",
          [](Shelf& shelf, const py::object& progress) {
            const Progress call = progress_of(progress);
            return to_dict(without_gil([&] { return shelf.heal(call); }));
          },
          py::arg("progress"))
      .def(
          "heal_found",
          [](Shelf& shelf, const py::dict& found) {
            VerifyReport report = report_of(found);
            return to_dict(without_gil([&] { return shelf.heal(std::move(report)); }));
          },
          py::arg("found"))
      .def("info",
           [](const Shelf& shelf) { return to_dict(without_gil([&] { return shelf.info(); })); })
      .def("stats",
           [](const Shelf& shelf) { return to_dict(without_gil([&] { return shelf.stats(); })); })
      .def_property_readonly("version",
                             py::cpp_function(&Shelf::version, py::call_guard<Unlocked>()))
      .def_property_readonly("step", py::cpp_function(&Shelf::step, py::call_guard<Unlocked>()))
      .def_property_readonly("free_bytes",
                             py::cpp_function(&Shelf::free_bytes, py::call_guard<Unlocked>()))
      .def("unheard_failure",
           [](const Shelf& shelf) {
             return shown(without_gil([&] { return shelf.unheard_failure(); }));
           })
      .def("close", &Shelf::close, py::call_guard<Unlocked>())
      .def_property_readonly("closed", &Shelf::closed);
  return cls;
}

}  // namespace
}  // namespace tensorshelf::python

PYBIND11_MODULE(_core, m) {
  using namespace tensorshelf;
  using namespace tensorshelf::python;
  m.doc() = "Native half of tensorshelf. Use the tensorshelf package, not this module.";
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's
  py::register_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const Error& error) {
      set_python_error(error);
    }
  });
  m.attr("__version__") = TENSORSHELF_VERSION;
  m.attr("CHUNK_BYTES") = kChunkBytes;
  m.attr("MOST_DIMS") = kMaxDims;
  m.attr("MOST_NAME_BYTES") = kMaxNameBytes;
  m.attr("MAX_MEDIA") = kMaxMedia;
  m.def("build_parts", &list_of_build_parts);
  m.def("tiers", &tiers);
  bind_options(m);
  bind_values(m);
  bind_session(m);
  bind_tensor(m);
  bind_cuda(m);
  auto shelf = bind_shelf(m);
  bind_assignment(m, shelf);
  bind_versions(m, shelf);
  bind_pipeline(m);
  bind_layouts(m);
  bind_group(m);
  m.def("repair", &repair_shelf, py::kw_only(), py::arg("path"), py::arg("options"),
        py::arg("progress"));
}
