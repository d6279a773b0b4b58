// Versions beside the newest: which there are, what they hold, and how one stays.

#include <optional>

#include "base/planted.hpp"
#include "media/pins.hpp"
#include "store/store.hpp"

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

std::vector<VersionInfo> Store::versions() const {
  const auto lock = state_.lock_usable();
  std::vector<VersionInfo> infos;
  for (const auto& version : state_.versions.retained) {
    if (state_.versions.is_offered(*version)) infos.push_back(info_of(*version));
  }
  return infos;
}

VersionInfo Store::version_info(std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  return info_of(state_.version_of(Of::version(version)));
}

std::shared_ptr<StoredTensor> Store::find(std::string_view name, std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  const Names& names = *state_.version_of(Of::version(version)).names;
  const auto there = names.find(name);
  return there == names.end() ? nullptr : there->second.tensor;
}

std::vector<std::string> Store::names(std::uint64_t version) const {
  const auto lock = state_.lock_usable();
  std::vector<std::string> names;
  const Version& there = state_.version_of(Of::version(version));
  for (const auto& [name, tensor] : *there.names) names.emplace_back(name);
  return names;
}

namespace {

struct AllHeld {
  explicit AllHeld(PinTable* table) : pins(table) {
    if (pins != nullptr) pins->take_all();
  }
  ~AllHeld() {
    if (pins != nullptr) pins->drop_all();
  }
  AllHeld(const AllHeld&) = delete;
  AllHeld& operator=(const AllHeld&) = delete;
  PinTable* pins;
};

}  // namespace

// Where the writer was faster, it waits the next time, while this one looks.
std::unique_ptr<VersionHold> Store::hold(std::optional<std::uint64_t> version, VersionHold::By by) {
  const auto held = [&](bool all_held) {
    return std::make_unique<VersionHold>(state_, version, by, all_held);
  };
  const bool goes_on = !version && !state_.writable && !state_.opened.report.salvaged;
  try {
    if (goes_on && !planted(Bug::pin_of_what_is_shown)) follower_.refresh();
    return held(false);
  } catch (const Error& error) {
    if (error.code() != Errc::stale || version || state_.writable) throw;
  }
  const Use use(state_);
  const AllHeld all(state_.medium->pins());
  follower_.refresh();
  return held(!state_.opened.report.salvaged && all.pins != nullptr && !all.pins->is_outrun());
}

}  // namespace tensorshelf
