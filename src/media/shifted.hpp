// A medium from some place of it on, as one by itself, to be read alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

namespace tensorshelf {

class ShiftedMedium final : public Medium {
 public:
  // `notes`: what is to be said of it, beside what the other one promises.
  ShiftedMedium(std::shared_ptr<Medium> inner, std::uint64_t shift,
                std::vector<std::string> notes = {})
      : inner_(std::move(inner)), shift_(shift), notes_(std::move(notes)) {}

  Ticket write(std::uint64_t, std::span<const std::byte>, std::uint64_t) override { refuse(); }
  void wait(const Ticket&) override {}
  void barrier() override { refuse(); }
  void store_word(std::uint64_t, std::uint64_t) override { refuse(); }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    check({at, bytes.size()});
    inner_->read(at + shift_, bytes);
  }
  void look(std::uint64_t at, std::span<std::byte> bytes) override {
    check({at, bytes.size()});
    inner_->look(at + shift_, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    check(extent);
    return inner_->view({extent.at + shift_, extent.size_bytes});
  }
  std::uint64_t size() override { return std::max(inner_->size(), shift_) - shift_; }
  std::uint64_t reserve(std::uint64_t) override { refuse(); }
  Promises promises() const override {
    Promises promises = inner_->promises();
    promises.notes.insert(promises.notes.end(), notes_.begin(), notes_.end());
    return promises;
  }

 private:
  // Within what is there: who asks knows of the shift, and not how much lies behind it.
  void check(const Extent& extent) {
    const std::uint64_t there = size();
    if (extent.at <= there && extent.size_bytes <= there - extent.at) return;
    throw Error(Errc::truncated, "the mirror ends before what is asked of it",
                "The file was cut short: restore it from a copy.");
  }
  [[noreturn]] static void refuse() {
    throw Error(Errc::read_only, "a mirror is written through the shelf that it belongs to",
                "Open that shelf, or make a new one of the mirror by snapshot().");
  }
  const std::shared_ptr<Medium> inner_;
  const std::uint64_t shift_;
  const std::vector<std::string> notes_;
};

}  // namespace tensorshelf
