// The public classes of pipeline.hpp, over the conductor and its saves.
#include <tensorshelf/pipeline.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include <tensorshelf/error.hpp>

#include "feed/access.hpp"
#include "feed/conductor.hpp"
#include "feed/save.hpp"
#include "feed/strided.hpp"

namespace tensorshelf {
namespace {

std::uint64_t size_of(const Source& source) {
  if (const auto* device = std::get_if<DeviceBytes>(&source.bytes)) return device->size_bytes;
  return std::get<std::span<const std::byte>>(source.bytes).size();
}

}  // namespace

SavePlan::SavePlan(std::vector<Source> sources) : sources_(std::move(sources)) {
  if (sources_.empty()) {
    throw Error(Errc::bad_argument, "a plan of no tensors", "persist() commits without any.");
  }
  std::unordered_set<const StoredTensor*> seen;
  for (const Source& source : sources_) {
    const auto& tensor = FeedAccess::tensor(source.target);
    const auto& layout = tensor->layout;
    const std::uint64_t size = size_of(source);
    if (size != layout.size_bytes) {
      throw Error(Errc::layout,
                  fmt::format("a source of {} bytes for '{}', which has {}", size, tensor->name(),
                              layout.size_bytes),
                  "Give all bytes of the tensor, or replace() it first.");
    }
    if (const auto* device = std::get_if<DeviceBytes>(&source.bytes)) {
      static_cast<void>(Strided(size, device->axes));
    }
    if (!seen.insert(tensor.get()).second) {
      throw Error(Errc::bad_argument,
                  fmt::format("two sources of '{}' in one plan", tensor->name()),
                  "Give each tensor one.");
    }
    size_bytes_ += size;
  }
  std::stable_partition(sources_.begin(), sources_.end(), [](const Source& s) { return !s.lazy; });
  largest_first_.resize(sources_.size());
  std::iota(largest_first_.begin(), largest_first_.end(), std::size_t{0});
  std::ranges::stable_sort(largest_first_, {}, [this](std::size_t at) {
    return std::pair(sources_[at].lazy, ~size_of(sources_[at]));
  });
  names_.reserve(sources_.size());
  for (const Source& source : sources_) names_.emplace_back(source.target.name());
}

std::vector<SavePlan::Departed> SavePlan::departed() const {
  std::vector<Departed> found;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const TensorRef& target = sources_[i].target;
    if (target.name() == names_[i] && !target.is_gone()) continue;
    found.push_back({names_[i], std::string(target.name())});
  }
  return found;
}

bool SaveTicket::staged() const { return save_->has_staged(); }
bool SaveTicket::done() const { return save_->has_landed(); }
void SaveTicket::wait_staged() const { save_->wait_staged({}); }
Commit SaveTicket::wait_durable() const { return save_->wait_durable({}).value(); }
Prepared SaveTicket::wait_prepared() const { return save_->wait_prepared({}).value(); }
bool SaveTicket::wait_staged_for(std::chrono::nanoseconds time) const {
  return save_->wait_staged(Save::after(time));
}
bool SaveTicket::wait_durable_for(std::chrono::nanoseconds time) const {
  return save_->wait_durable(Save::after(time)).has_value();
}
bool SaveTicket::wait_prepared_for(std::chrono::nanoseconds time) const {
  return save_->wait_prepared(Save::after(time)).has_value();
}
SaveTimes SaveTicket::times() const { return save_->times(); }
std::vector<CopyTimes> SaveTicket::copies() const { return save_->copies(); }

Pipeline::Pipeline(Shelf& shelf, const PipelineOptions& options)
    : conductor_(std::make_unique<Conductor>(FeedAccess::store(shelf), FeedAccess::file(shelf),
                                             options)) {}

// In a forked child, whose thread stayed in the parent, there is nobody to join, or to wake.
Pipeline::~Pipeline() {
  if (conductor_->in_child()) static_cast<void>(conductor_.release());
}

std::optional<SaveTicket> Pipeline::save(std::shared_ptr<const SavePlan> plan,
                                         std::optional<std::uint64_t> step,
                                         std::optional<std::string> id) {
  auto save = conductor_->begin(std::move(plan), step, std::move(id));
  if (!save) return std::nullopt;
  return SaveTicket(std::move(save));
}

PipelineStats Pipeline::stats() const { return conductor_->stats(); }

void Pipeline::drain() {
  static_cast<void>(drain_for(std::chrono::nanoseconds::max()));  // 292 years
}

bool Pipeline::drain_for(std::chrono::nanoseconds time) {
  if (conductor_->in_child()) return true;  // there is nothing of it here
  return conductor_->drain_for(time);
}

void Pipeline::close() {
  if (conductor_->in_child()) return;
  conductor_->check_may_close();
  conductor_->close();
  conductor_->check_heard();
}

}  // namespace tensorshelf
