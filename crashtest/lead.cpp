#include "lead.hpp"

#include <utility>

#include "tests/forwarding_medium.hpp"

namespace tensorshelf::crash {
namespace {

thread_local bool walks_free = false;

class LedMedium final : public testing::LendingMedium {
 public:
  LedMedium(std::unique_ptr<Medium> medium, std::shared_ptr<Lead> lead)
      : LendingMedium(std::move(medium)), lead_(std::move(lead)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    lead_->before(Lead::Call::write);
    return ForwardingMedium::write(at, bytes, seed);
  }
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override {
    lead_->before(Lead::Call::write);
    return LendingMedium::write_lent(at, bytes, seed);
  }
  void barrier() override {
    lead_->before(Lead::Call::barrier);
    ForwardingMedium::barrier();
  }
  void store_word(std::uint64_t at, std::uint64_t word) override {
    lead_->before(Lead::Call::word);
    ForwardingMedium::store_word(at, word);
  }

 private:
  std::shared_ptr<Lead> lead_;
};

}  // namespace

void Lead::walk_free() { walks_free = true; }

void Lead::let_go_to(Phase phase) {
  const std::lock_guard lock(mutex_);
  goal_ = phase;
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

Phase Lead::here() {
  const std::lock_guard lock(mutex_);
  return here_;
}

void Lead::before(Call call) {
  if (walks_free) return;
  std::unique_lock lock(mutex_);
  if (call == Call::write && words_ > 0) {  // the next attempt: the one before made no last barrier
    begun_ = false;
    words_ = 0;
    goal_ = Phase::frozen;
  }
  here_ = call == Call::write  ? Phase::frozen
          : call == Call::word ? (words_ == 0 ? Phase::durable : Phase::half)
          : words_ > 0         ? Phase::flipped
                               : Phase::described;
  const bool passes = call == Call::write && begun_;  // on its way from frozen to described
  while (!passes && !may_pass()) {
    waits_ = true;
    changed_.wait(lock);
  }
  waits_ = false;
  begun_ = true;
  words_ += call == Call::word;
  if (here_ != Phase::flipped) return;
  begun_ = false;
  words_ = 0;
  goal_ = Phase::frozen;
}

std::unique_ptr<Medium> led(std::unique_ptr<Medium> medium, std::shared_ptr<Lead> lead) {
  return std::make_unique<LedMedium>(std::move(medium), std::move(lead));
}

}  // namespace tensorshelf::crash
