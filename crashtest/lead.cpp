#include "lead.hpp"

#include <utility>

namespace tensorshelf::crash {
namespace {

thread_local bool walks_free = false;

class LedMedium final : public Medium {
 public:
  LedMedium(std::unique_ptr<Medium> medium, std::shared_ptr<Lead> lead)
      : medium_(std::move(medium)), lead_(std::move(lead)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    lead_->before(Lead::Call::write);
    return medium_->write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override { medium_->wait(ticket); }
  void barrier() override {
    lead_->before(Lead::Call::barrier);
    medium_->barrier();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    lead_->before(Lead::Call::word);
    medium_->store_word(at, word);
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override { medium_->read(at, bytes); }
  std::span<const std::byte> view(const Extent& extent) override { return medium_->view(extent); }
  std::uint64_t reserve(std::uint64_t size_bytes) override { return medium_->reserve(size_bytes); }
  Promises promises() const override { return medium_->promises(); }

 private:
  std::unique_ptr<Medium> medium_;
  std::shared_ptr<Lead> lead_;
};

}  // namespace

void Lead::walk_free() { walks_free = true; }

void Lead::let_go_to(Stage stage) {
  const std::lock_guard lock(mutex_);
  goal_ = stage;
  if (may_pass()) waits_ = false;
  changed_.notify_all();
}

void Lead::let_go() {
  const std::lock_guard lock(mutex_);
  free_ = true;
  waits_ = false;
  changed_.notify_all();
}

bool Lead::waits() {
  const std::lock_guard lock(mutex_);
  return waits_;
}

Stage Lead::here() {
  const std::lock_guard lock(mutex_);
  return here_;
}

void Lead::before(Call call) {
  if (walks_free) return;
  std::unique_lock lock(mutex_);
  if (call == Call::write && words_ > 0) {  // the next attempt: the one before made no last barrier
    begun_ = false;
    words_ = 0;
    goal_ = Stage::frozen;
  }
  here_ = call == Call::write  ? Stage::frozen
          : call == Call::word ? (words_ == 0 ? Stage::durable : Stage::half)
          : words_ > 0         ? Stage::flipped
                               : Stage::described;
  const bool passes = call == Call::write && begun_;  // on its way from frozen to described
  while (!passes && !may_pass()) {
    waits_ = true;
    changed_.wait(lock);
  }
  waits_ = false;
  begun_ = true;
  words_ += call == Call::word;
  if (here_ != Stage::flipped) return;
  begun_ = false;
  words_ = 0;
  goal_ = Stage::frozen;
}

std::unique_ptr<Medium> led(std::unique_ptr<Medium> medium, std::shared_ptr<Lead> lead) {
  return std::make_unique<LedMedium>(std::move(medium), std::move(lead));
}

}  // namespace tensorshelf::crash
