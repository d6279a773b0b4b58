// Saves by a pipeline. Addresses come from Python as numbers; who gives them keeps their memory
// until the save is staged, or, for bytes_at(), until it returns.
#include <chrono>
#include <stdexcept>
#include <utility>

#include "save_ticket.hpp"
#include "session.hpp"
#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

py::list bytes_at(const std::vector<std::uintptr_t>& addresses,
                  const std::vector<py::ssize_t>& sizes) {
  if (addresses.size() != sizes.size()) throw std::invalid_argument("a size for each address");
  py::list all(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    all[i] = py::bytes(reinterpret_cast<const char*>(addresses[i]), sizes[i]);
  }
  return all;
}

// (tensor, address, size in bytes, whether it is lazy, stream, number and axes of its CUDA device)
using SourceTuple = std::tuple<TensorRef, std::uintptr_t, std::uint64_t, bool,
                               std::optional<std::tuple<std::uintptr_t, int, AxisTuples>>>;

std::shared_ptr<SavePlan> plan_of(std::vector<SourceTuple> tuples) {
  std::vector<Source> sources;
  sources.reserve(tuples.size());
  for (auto& [target, address, size, lazy, device] : tuples) {
    if (device) {
      const auto& [stream, number, axes] = *device;
      auto bytes = device_bytes(address, size, stream, number, axes);
      sources.push_back({std::move(target), std::move(bytes), lazy});
    } else {
      const std::span bytes(reinterpret_cast<const std::byte*>(address), size);
      sources.push_back({std::move(target), bytes, lazy});
    }
  }
  return std::make_shared<SavePlan>(std::move(sources));
}

py::list departed(const SavePlan& plan) {
  py::list all;
  for (const auto& each : without_gil([&] { return plan.departed(); })) {
    all.append(py::make_tuple(each.name, each.name_now));
  }
  return all;
}

std::optional<SavePending> save(Pipeline& pipeline, Session& session,
                                const std::shared_ptr<SavePlan>& plan,
                                std::optional<std::uint64_t> step,
                                const std::optional<std::string>& id) {
  auto ticket = without_gil([&] { return pipeline.save(plan, step, id); });
  if (!ticket) return std::nullopt;
  session.saved();
  return SavePending(std::move(*ticket));
}

void drain(Pipeline& pipeline) {
  wait_and_hear([&](auto time) { return pipeline.drain_for(time); });
}

}  // namespace

void SavePending::wait_staged() const {
  wait_and_hear([this](auto time) { return ticket_.wait_staged_for(time); });
}

Commit SavePending::wait() const {
  wait_and_hear([this](auto time) { return ticket_.wait_durable_for(time); });
  return ticket_.wait_durable();
}

void SavePending::wait_prepared() const {
  wait_and_hear([this](auto time) { return ticket_.wait_prepared_for(time); });
}

py::dict SavePending::times() const { return to_dict(ticket_.times()); }

py::list SavePending::copies() const {
  py::list all;
  for (const CopyTimes& each : ticket_.copies()) {
    all.append(
        py::make_tuple(each.source, each.thread, seconds_of(each.began), seconds_of(each.ended)));
  }
  return all;
}

void bind_pipeline(py::module_& m) {
  m.def("bytes_at", &bytes_at, py::arg("addresses"), py::arg("sizes"));

  py::class_<SavePlan, std::shared_ptr<SavePlan>>(m, "SavePlan")
      .def(py::init(&plan_of), py::arg("sources"))
      .def("departed", &departed);

  py::class_<SavePending>(m, "PendingSave")
      .def("staged", &SavePending::staged)
      .def("done", &SavePending::done)
      .def("wait_staged", &SavePending::wait_staged)
      .def("wait", &SavePending::wait)
      .def("wait_prepared", &SavePending::wait_prepared)
      .def("times", &SavePending::times)
      .def("copies", &SavePending::copies);

  const PipelineOptions usual;
  py::class_<Pipeline, std::unique_ptr<Pipeline, DeletedUnlocked>>(m, "Pipeline")
      .def(py::init([](Shelf& shelf, unsigned workers, std::uint64_t check_one_in,
                       std::uint64_t bytes_per_second, std::vector<int> cpus, int nice,
                       unsigned device_pieces, std::uint64_t device_piece_bytes, bool trace) {
             const PipelineOptions options{.workers = workers,
                                           .check_one_in = check_one_in,
                                           .bytes_per_second = bytes_per_second,
                                           .cpus = std::move(cpus),
                                           .nice = nice,
                                           .device_pieces = device_pieces,
                                           .device_piece_bytes = device_piece_bytes,
                                           .trace = trace};
             return std::unique_ptr<Pipeline, DeletedUnlocked>(new Pipeline(shelf, options));
           }),
           py::arg("shelf"), py::kw_only(), py::arg("workers"),
           py::arg("check_one_in") = usual.check_one_in,
           py::arg("bytes_per_second") = usual.bytes_per_second, py::arg("cpus") = usual.cpus,
           py::arg("nice") = usual.nice, py::arg("device_pieces") = usual.device_pieces,
           py::arg("device_piece_bytes") = usual.device_piece_bytes, py::arg("trace") = usual.trace)
      .def("save", &save, py::arg("session"), py::arg("plan"), py::arg("step"), py::arg("id"))
      .def("drain", &drain)
      .def("close", &Pipeline::close, py::call_guard<Unlocked>());
}

}  // namespace tensorshelf::python
