// In place of a medium that is missing, where what the others have is wanted.
#pragma once

#include <cerrno>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>

namespace tensorshelf {

// Nothing of it can be read.
class AbsentMedium final : public Medium {
 public:
  explicit AbsentMedium(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}
  Ticket write(std::uint64_t, std::span<const std::byte>, std::uint64_t) override { refuse(); }
  void wait(const Ticket&) override {}
  void barrier() override {}
  void store_word(std::uint64_t, std::uint64_t) override { refuse(); }
  void read(std::uint64_t, std::span<std::byte>) override { refuse(); }
  std::span<const std::byte> view(const Extent&) override { return {}; }
  std::uint64_t size() override { return size_bytes_; }
  std::uint64_t reserve(std::uint64_t) override { refuse(); }
  Promises promises() const override {
    Promises none;
    none.medium = "absent";
    none.detail = "it is missing";
    return none;
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(Errc::io, "the medium is missing", "Give it by also=, and open the shelf again.",
                EIO);
  }
  std::uint64_t size_bytes_;
};

}  // namespace tensorshelf
