// A medium over another one: whoever watches or spoils some of its calls overrides these. What is
// lent to it is written by write(), as those see.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tensorshelf/medium.hpp>

namespace tensorshelf::testing {

class ForwardingMedium : public Medium {
 public:
  // Others may hold the inner one as well: it outlives the shelf that is opened on this one.
  explicit ForwardingMedium(std::shared_ptr<Medium> inner) : inner_(std::move(inner)) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    return inner_->write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override { inner_->wait(ticket); }
  void barrier() override { inner_->barrier(); }
  void store_word(std::uint64_t at, std::uint64_t word) override { inner_->store_word(at, word); }
  void read(std::uint64_t at, std::span<std::byte> bytes) override { inner_->read(at, bytes); }
  void look(std::uint64_t at, std::span<std::byte> bytes) override { inner_->look(at, bytes); }
  std::span<const std::byte> view(const Extent& extent) override { return inner_->view(extent); }
  std::uint64_t size() override { return inner_->size(); }
  std::uint64_t reserve(std::uint64_t size_bytes) override { return inner_->reserve(size_bytes); }
  std::uint64_t shrink(std::uint64_t size_bytes) override { return inner_->shrink(size_bytes); }
  Promises promises() const override { return inner_->promises(); }
  PinTable* pins() override { return inner_->pins(); }

 protected:
  Medium& inner() { return *inner_; }

 private:
  std::shared_ptr<Medium> inner_;
};

// One that lends on what it is lent.
class LendingMedium : public ForwardingMedium {
 public:
  using ForwardingMedium::ForwardingMedium;
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override {
    return inner().write_lent(at, bytes, seed);
  }
  void await_lent(std::span<const std::byte> bytes) noexcept override { inner().await_lent(bytes); }
};

}  // namespace tensorshelf::testing
