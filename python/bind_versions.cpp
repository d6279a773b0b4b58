// The versions that stay, and what makes or drops one whole: at(), rollback(), discard() and
// transactions. Who has to wait does so in the store.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "session.hpp"
#include "shared.hpp"
#include "transaction_block.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

py::list versions(const Shelf& shelf) {
  const auto all = without_gil([&] { return shelf.versions(); });
  py::list infos;
  for (const VersionInfo& info : all) infos.append(to_dict(info));
  return infos;
}

py::dict version_info(const RetainedVersion& version) {
  return to_dict(without_gil([&] { return version.info(); }));
}

// Ctrl-C is heard by the shelf's while_waiting.
bool wait_for(Shelf& shelf, std::optional<std::uint64_t> version, std::optional<double> timeout) {
  std::optional<std::chrono::duration<double>> seconds;
  if (timeout) seconds.emplace(*timeout);
  return without_gil([&] { return shelf.wait_for(version, seconds); });
}

VersionPin pin(const Shelf& shelf, std::optional<std::uint64_t> version, bool copies) {
  return shelf.pin(version, copies ? PinnedFor::copy : PinnedFor::user);
}

py::dict diff(const Shelf& shelf, std::uint64_t from, std::uint64_t to) {
  const auto found = without_gil([&] { return shelf.diff(from, to); });
  py::dict changed;
  for (const auto& [tensor, chunks] : found.changed) changed[py::str(tensor)] = chunks;
  py::dict d;
  d["created"] = found.created;
  d["erased"] = found.erased;
  d["changed"] = changed;
  return d;
}

Commit snapshot(const Shelf& shelf, const py::bytes& path, OpenOptions options,
                std::optional<std::uint64_t> version, const py::object& progress) {
  options.progress = progress_or_signals(progress);
  const std::filesystem::path native(static_cast<std::string>(path));
  Unlocked unlocked;
  return shelf.snapshot(native, options, version);
}

void discard(Shelf& shelf, Session& session) {
  {
    Unlocked unlocked;
    shelf.discard();
  }
  session.discarded();
}

Commit rollback(Shelf& shelf, Session& session, std::uint64_t version) {
  const auto commit = without_gil([&] { return shelf.rollback(version); });
  session.rolled_back();
  return commit;
}

py::object prepare(Shelf& shelf, Session& session, std::optional<std::uint64_t> step,
                   const std::string& id) {
  const std::optional made = without_gil([&] { return shelf.prepare(step, id); });
  session.persisted();
  return to_object(made);
}

py::object prepared(const Shelf& shelf) {
  return to_object(without_gil([&] { return shelf.prepared(); }));
}

// Does not wait for a transaction of another thread, whose end may wait for the decision.
std::optional<Commit> resolve(Shelf& shelf, Session& session, bool commit) {
  const Decision decision = commit ? Decision::commit : Decision::abandon;
  const auto resolved = without_gil([&] { return shelf.resolve(decision); });
  session.resolved(decision, resolved.found);
  return resolved.commit;
}

}  // namespace

void bind_versions(py::module_& m, py::class_<Shelf>& shelf) {
  py::class_<RetainedVersion>(m, "RetainedVersion")
      .def("info", &version_info)
      .def("find", &RetainedVersion::find, py::arg("name"), py::call_guard<Unlocked>())
      .def("names", &RetainedVersion::names, py::call_guard<Unlocked>());

  py::class_<VersionPin, std::unique_ptr<VersionPin, DeletedUnlocked>>(m, "VersionPin")
      .def_property_readonly("version", &VersionPin::version);

  py::class_<TransactionBlock>(m, "TransactionBlock")
      .def(py::init<Shelf&, Session&, py::object>(), py::kw_only(), py::arg("shelf"),
           py::arg("session"), py::arg("before_commit"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>())
      .def("__enter__",
           [](py::object self) {
             self.cast<TransactionBlock&>().enter();
             return self;
           })
      .def("__exit__", [](TransactionBlock& block, const py::object& error,
                          const py::args&) { block.leave(!error.is_none()); })
      .def_readwrite("_step", &TransactionBlock::step)
      .def_property_readonly("_ended", &TransactionBlock::ended)
      .def_readonly("_commit", &TransactionBlock::commit);

  shelf.def("prepare", &prepare, py::arg("session"), py::arg("step"), py::arg("id"))
      .def("prepared", &prepared)
      .def("resolve", &resolve, py::arg("session"), py::arg("commit"));

  shelf.def("versions", &versions)
      .def("at", &Shelf::at, py::arg("version"), py::call_guard<Unlocked>())
      .def("pin", &pin, py::arg("version") = py::none(), py::arg("copies") = false,
           py::call_guard<Unlocked>(), py::keep_alive<0, 1>())
      .def("refresh", &Shelf::refresh, py::call_guard<Unlocked>())
      .def("wait_for", &wait_for, py::arg("version"), py::arg("timeout"))
      .def("diff", &diff, py::arg("before"), py::arg("after"))
      .def("snapshot", &snapshot, py::arg("path"), py::arg("options"), py::arg("version"),
           py::arg("progress"))
      .def("rollback", &rollback, py::arg("session"), py::arg("version"))
      .def("discard", &discard, py::arg("session"));
}

}  // namespace tensorshelf::python
