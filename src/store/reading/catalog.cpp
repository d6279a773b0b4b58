#include "store/reading/catalog.hpp"

#include <algorithm>
#include <mutex>

namespace tensorshelf {

namespace {

VersionInfo info_of(const Version& version) {
  VersionInfo info;
  info.version = version.number();
  info.step = format::stated_step(version.root);
  info.time_ns = version.root.time_ns;
  info.data_bytes = version.root.data_bytes;
  return info;
}

}  // namespace

std::vector<VersionInfo> Catalog::versions() const {
  const auto lock = state_.lock_usable();
  std::vector<VersionInfo> infos;
  for (const auto& version : state_.versions.retained) {
    if (state_.versions.is_offered(*version)) infos.push_back(info_of(*version));
  }
  return infos;
}

VersionInfo Catalog::version_info(std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  return info_of(state_.version_of(Of::version(version)));
}

std::shared_ptr<StoredTensor> Catalog::find(std::string_view name, std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  const Names& names = *state_.version_of(Of::version(version)).names;
  const auto there = names.find(name);
  return there == names.end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Catalog::names(std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  std::vector<std::string> names;
  const Version& there = state_.version_of(Of::version(version));
  for (const auto& [name, tensor] : *there.names) names.emplace_back(name);
  return names;
}

std::shared_ptr<StoredTensor> Catalog::find(std::string_view name) const {
  const auto lock = state_.lock_usable();
  const auto there = state_.names_now().find(name);
  return there == state_.names_now().end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Catalog::names() const {
  const auto lock = state_.lock_usable();
  std::vector<std::string> names;
  names.reserve(state_.names_now().size());
  for (const auto& [name, tensor] : state_.names_now()) names.emplace_back(name);
  return names;
}

namespace {

// The version that wrote its newest chunk, as that one has it; 0 where it has none.
std::uint64_t written_in(const Version& version, const StoredTensor& tensor) {
  std::uint64_t newest = 0;
  if (!has(version, tensor)) return newest;
  for (std::uint64_t i = 0; i < tensor.layout.cell_count(); ++i) {
    newest = std::max(newest, format::chunk_version(version.tree.record(tensor.cell(i))));
  }
  return newest;
}

}  // namespace

TensorInfo Catalog::info(const StoredTensor& tensor, Of which) const {
  state_.health.check_usable();
  std::lock_guard lock(tensor.mutex);
  const auto structure = state_.lock_usable();
  TensorInfo info;
  const Version* const of = which.kind() == Of::Kind::version ? &state_.version_of(which) : nullptr;
  const std::string* const called = of == nullptr ? nullptr : name_in(*of->names, tensor);
  info.name = called == nullptr ? tensor.name() : *called;
  info.id = tensor.layout.tensor_id;
  info.dtype = tensor.layout.dtype;
  info.shape.assign(tensor.layout.shape.begin(), tensor.layout.shape.end());
  info.size_bytes = tensor.layout.size_bytes;
  for (unsigned medium = 0; medium < kMaxMedia; ++medium) {
    if (tensor.media.has(medium)) info.media.push_back(medium);
  }
  info.version = written_in(state_.version_of(which), tensor);
  if (which.kind() == Of::Kind::version || !state_.open) return info;
  const std::uint64_t last = written_in(*state_.open->base, tensor);
  if (last > state_.versions.retained.back()->number()) info.pending = last;
  info.dirty = tensor.attempt == state_.open->sequence;
  info.spoiled = tensor.spoiled == state_.open->sequence;
  return info;
}

}  // namespace tensorshelf
