#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

py::list shown(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(python::shown(text));
  return list;
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
  d["detail"] = python::shown(promises.detail);
  d["survives"] = survives_name(promises.survives);
  d["mapped"] = promises.mapped;
  d["needs_flush"] = promises.needs_flush;
  d["volatile_cache"] = promises.volatile_cache;
  d["one_machine"] = promises.one_machine;
  d["atomic_bytes"] = promises.atomic_bytes;
  d["notes"] = shown(promises.notes);
  d["remarks"] = shown(promises.remarks);
  return d;
}

// Those that came, by name.
py::dict named(std::initializer_list<std::pair<const char*, CommitTimes::Time>> times) {
  py::dict d;
  for (const auto& [name, time] : times) {
    if (time != CommitTimes::Time()) d[name] = seconds_of(time);
  }
  return d;
}

// As os.fsdecode() gives it: a path is bytes, and not always UTF-8.
py::str path_text(const std::string& path) {
  PyObject* decoded =
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
  if (!decoded) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

const char* placement_name(Placement placement) {
  return placement == Placement::whole ? "whole" : "by_chunk";
}

py::dict to_dict(const MediumInfo& medium) {
  py::dict d;
  d["number"] = medium.number;
  d["path"] = path_text(medium.path);
  d["medium_id"] = medium.medium_id;
  d["capacity_bytes"] = medium.capacity_bytes;
  d["free_bytes"] = medium.free_bytes;
  d["retired"] = medium.retired;
  d["absent"] = medium.absent;
  d["mirrors"] = medium.mirrors;
  d["promises"] = to_dict(medium.promises);
  return d;
}

py::dict to_dict(const Recovery& recovery) {
  py::dict d;
  d["version"] = recovery.version;
  d["step"] = recovery.step;
  d["interrupted"] = recovery.interrupted;
  d["degraded"] = recovery.degraded;
  d["salvaged"] = recovery.salvaged;
  d["lost"] = recovery.lost;
  d["dropped"] = recovery.dropped;
  d["prepared"] = to_object(recovery.prepared);
  d["repaired_copies"] = recovery.repaired_copies;
  d["notes"] = shown(recovery.notes);
  return d;
}

py::list to_list(const std::vector<Damage>& all) {
  py::list damage;
  for (const Damage& found : all) damage.append(python::to_dict(found));
  return damage;
}

}  // namespace

py::object to_object(const std::optional<Prepared>& prepared) {
  if (!prepared) return py::none();
  py::dict d;
  d["version"] = prepared->version;
  d["step"] = prepared->step;
  d["id"] = py::bytes(prepared->id);
  d["data_bytes"] = prepared->data_bytes;
  return d;
}

py::tuple shape_of(const TensorInfo& info) {
  py::tuple shape(info.shape.size());
  for (std::size_t i = 0; i < info.shape.size(); ++i) shape[i] = py::int_(info.shape[i]);
  return shape;
}

py::dict to_dict(const ShelfInfo& info) {
  py::dict d;
  d["path"] = path_text(info.path);
  d["shelf_id"] = info.shelf_id;
  d["version"] = info.version;
  d["step"] = info.step;
  d["incarnation"] = info.incarnation;
  d["tensors"] = info.tensors;
  d["tensor_bytes"] = info.tensor_bytes;
  d["capacity_bytes"] = info.capacity_bytes;
  d["free_bytes"] = info.free_bytes;
  d["keep"] = info.keep;
  d["in_flight"] = info.in_flight;
  d["placement"] = placement_name(info.placement);
  d["writable"] = info.writable;
  d["created"] = info.created;
  d["promises"] = to_dict(info.promises);
  py::list media;
  for (const MediumInfo& each : info.media) media.append(to_dict(each));
  d["media"] = media;
  d["recovery"] = to_dict(info.recovery);
  return d;
}

py::dict to_dict(const VersionInfo& info) {
  py::dict d;
  d["version"] = info.version;
  d["step"] = info.step;
  d["time_ns"] = info.time_ns;
  d["data_bytes"] = info.data_bytes;
  return d;
}

py::dict to_dict(const Stats& stats) {
  py::dict d;
  d["commits"] = stats.commits;
  d["bytes_staged"] = stats.bytes_staged;
  d["bytes_unchanged"] = stats.bytes_unchanged;
  d["bytes_copied_forward"] = stats.bytes_copied_forward;
  d["metadata_bytes"] = stats.metadata_bytes;
  d["bytes_read"] = stats.bytes_read;
  d["chunks_verified"] = stats.chunks_verified;
  d["chunks_healed"] = stats.chunks_healed;
  d["medium_writes"] = stats.medium_writes;
  d["medium_bytes"] = stats.medium_bytes;
  d["barriers"] = stats.barriers;
  d["commit_seconds"] = stats.commit_seconds;
  return d;
}

py::dict to_dict(const Damage& found) {
  py::dict d;
  d["tensor"] = found.tensor;
  d["version"] = found.version;
  d["slot"] = found.slot;
  d["chunk"] = found.chunk;
  d["offset"] = offset_of(found.extent.at);
  d["nbytes"] = found.extent.size_bytes;
  d["medium"] = medium_of(found.extent.at);
  d["intact_in"] = found.intact_in;
  d["healable"] = found.healable;
  d["healed"] = found.healed;
  d["in_mirror"] = found.in_mirror;
  return d;
}

VerifyReport report_of(const py::dict& told) {
  VerifyReport report;
  report.version = told["version"].cast<std::uint64_t>();
  report.tensors = told["tensors"].cast<std::uint64_t>();
  report.chunks = told["chunks"].cast<std::uint64_t>();
  report.bytes = told["nbytes"].cast<std::uint64_t>();
  for (const py::handle d : told["damage"]) {
    Damage found;
    found.tensor = d["tensor"].cast<std::string>();
    found.version = d["version"].cast<std::uint64_t>();
    found.slot = d["slot"].cast<unsigned>();
    found.chunk = d["chunk"].cast<std::uint64_t>();
    const auto offset = d["offset"].cast<std::uint64_t>();
    found.extent = {place_on(d["medium"].cast<unsigned>(), offset),
                    d["nbytes"].cast<std::uint64_t>()};
    found.intact_in = d["intact_in"].cast<std::vector<std::uint64_t>>();
    found.healable = d["healable"].cast<bool>();
    found.in_mirror = d["in_mirror"].cast<bool>();
    report.damage.push_back(std::move(found));
  }
  return report;
}

py::dict to_dict(const VerifyReport& report) {
  py::dict d;
  d["version"] = report.version;
  d["tensors"] = report.tensors;
  d["chunks"] = report.chunks;
  d["nbytes"] = report.bytes;
  d["damage"] = to_list(report.damage);
  d["healed_as"] = report.healed_as;
  return d;
}

py::dict to_dict(const RepairReport& report) {
  py::dict d;
  d["repaired"] = report.repaired;
  d["version"] = report.version;
  d["step"] = report.step;
  d["lost"] = report.lost;
  d["damage"] = to_list(report.damage);
  d["notes"] = shown(report.notes);
  return d;
}

py::dict to_dict(const CompactReport& report) {
  py::dict d;
  d["version"] = report.version;
  d["bytes_before"] = report.bytes_before;
  d["bytes_after"] = report.bytes_after;
  d["bytes_moved"] = report.bytes_moved;
  d["bytes_copied"] = report.bytes_copied;
  d["files_cut"] = report.files_cut;
  d["damaged"] = report.damaged;
  return d;
}

double seconds_of(CommitTimes::Time time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

py::dict to_dict(const CommitTimes& times) {
  return named({{"sealing", times.sealing},
                {"written", times.written},
                {"ordered", times.ordered},
                {"flipped", times.flipped},
                {"durable", times.durable}});
}

py::dict to_dict(const SaveTimes& times) {
  return named({{"began", times.began},
                {"released", times.released},
                {"copied", times.copied},
                {"staged", times.staged},
                {"launched", times.launched}});
}

}  // namespace tensorshelf::python
