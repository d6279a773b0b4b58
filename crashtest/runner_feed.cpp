// The runner's part with a pipeline: eager sources are copied by the thread that runs the program,
// lazy ones by the pipeline's while that one waits. So the order of all that is written is one.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runner.hpp"
#include "tests/forwarding_medium.hpp"

namespace tensorshelf::crash {
namespace {

class WatchedMedium final : public testing::LendingMedium {
 public:
  WatchedMedium(std::unique_ptr<Medium> medium, std::shared_ptr<FeedWatch> watch)
      : LendingMedium(std::move(medium)), watch_(std::move(watch)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    before_write();
    return ForwardingMedium::write(at, bytes, seed);
  }
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override {
    before_write();
    return LendingMedium::write_lent(at, bytes, seed);
  }

 private:
  void before_write() {
    // The threads that come between a save and its launch: the program's own, and then that one.
    // What is prepared the pipeline's own thread describes, and nobody leads it.
    const bool others = std::this_thread::get_id() != programs_;
    if (others && watch_->prepares) Lead::walk_free();
    if (others && std::exchange(watch_->copy_awaited, false)) {
      Lead::walk_free();
      if (const auto act = std::exchange(watch_->before_copy, nullptr)) act();
    }
  }

  std::shared_ptr<FeedWatch> watch_;
  const std::thread::id programs_ = std::this_thread::get_id();
};

}  // namespace

std::unique_ptr<Medium> watched(std::unique_ptr<Medium> medium, std::shared_ptr<FeedWatch> watch) {
  return std::make_unique<WatchedMedium>(std::move(medium), std::move(watch));
}

// The memory that all tensors are saved from, stamped anew.
struct Runner::Feeding {
  std::map<std::string, std::vector<std::byte>> memory;
  std::vector<Source> sources;
  std::vector<std::string> names;  // of the sources

  Feeding(const Model& working, Shelf& shelf, std::uint64_t& serial) {
    bool lazy = false;
    std::size_t largest = 0;
    for (const auto& [name, bytes] : working.tensors) {
      names.push_back(name);
      std::vector<std::byte>& stamped = memory[name];
      stamped.resize(bytes.size());
      stamp(stamped, name, ++serial, 0);
      if (stamped.size() > working.tensors.at(names[largest]).size()) largest = names.size() - 1;
      sources.push_back({shelf.find(name).value(), std::span<const std::byte>(stamped), lazy});
      lazy = !lazy;
    }
    sources[largest].lazy = true;  // so that the other thread copies
  }
};

SaveTicket Runner::save(Feeding& feeding, std::optional<std::uint64_t> step,
                        std::optional<std::string> id) {
  if (!pipeline_) pipeline_.emplace(*shelf_, PipelineOptions{.check_one_in = 1});
  watch_->copy_awaited = true;
  watch_->prepares = id.has_value();
  return pipeline_->save(std::make_shared<const SavePlan>(feeding.sources), step, std::move(id))
      .value();
}

// Or until it has failed. Not asleep: then whoever looks would think that it waits for a version.
void Runner::await_launch(const SaveTicket& ticket) {
  while (ticket.times().launched == SaveTimes::Time() && !ticket.done()) {
    std::this_thread::yield();
  }
}

void Runner::feed(const Op& op) {
  const auto has_bytes = [](const auto& tensor) { return !tensor.second.empty(); };
  if (std::ranges::none_of(working_.tensors, has_bytes) || prepared_ || transaction_) return;
  leases_.clear();
  if (op.verb == Verb::feed) return feed_to_the_end();
  if (op.verb == Verb::fly) return feed_into_flight();
  if (op.verb == Verb::offer) return feed_to_a_decision();
  feed_in_vain(op.verb);
}

void Runner::feed_to_the_end() {
  land_all();
  Feeding feeding(working_, *shelf_, serial_);
  working_.tensors = feeding.memory;
  persist(true, [&](auto step) {
    const SaveTicket ticket = save(feeding, step);
    await_launch(ticket);
    lead_->let_go_to(Phase::landed);
    return ticket.wait_durable();
  });
}

void Runner::feed_to_a_decision() {
  land_all();
  Feeding feeding(working_, *shelf_, serial_);
  working_.tensors = feeding.memory;
  prepare_by(
      [&](auto step, const std::string& id) { return save(feeding, step, id).wait_prepared(); });
}

void Runner::feed_into_flight() {
  while (flights_.size() >= working_.in_flight) land();
  Feeding feeding(working_, *shelf_, serial_);
  working_.tensors = feeding.memory;
  const std::size_t index = recording_.history.size();
  const Model next = next_version(true);
  mark(recording_.log, Mark::began, index);
  recording_.history.push_back(next);
  const SaveTicket ticket = save(feeding, next.step);
  await_launch(ticket);
  ticket.wait_staged();
  flights_.push_back(
      {index, [ticket] { return ticket.done(); }, [ticket] { return ticket.wait_durable(); }});
  working_ = next;
  changed_ = false;
  if (flights_.size() == 1) go_to(Phase::frozen);
}

// What was assigned before goes with what was copied.
void Runner::feed_in_vain(Verb how) {
  while (flights_.size() >= working_.in_flight) land();
  Feeding feeding(working_, *shelf_, serial_);
  std::size_t last = feeding.sources.size() - 1;
  while (feeding.memory[feeding.names[last]].empty()) --last;
  feeding.sources[last].lazy = true;
  std::vector<std::byte>& memory = feeding.memory[feeding.names[last]];
  if (how == Verb::tear) {
    watch_->before_copy = [&] { stamp(memory, "another", serial_, 0); };
  } else {  // the thread that copies comes to a tensor that is none any more
    shelf_->erase(feeding.names[last]);
  }
  const SaveTicket ticket = save(feeding, {});
  while (!ticket.staged()) std::this_thread::yield();
  try {
    ticket.wait_staged();
  } catch (const Error& error) {
    if (error.code() == Errc::io || error.code() == Errc::failed) throw;
    watch_->copy_awaited = false;  // where nothing was copied
    discard();
    if (flights_.empty()) check("after a save that failed");
    return;
  }
  throw std::runtime_error("a save that cannot be is staged");
}

}  // namespace tensorshelf::crash
