// What the tests of the store share: a memory medium that outlives the shelf on it, and short words
// for making, reading and refusing.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "bytes.hpp"
#include "catch.hpp"
#include "format_2.hpp"
#include "forwarding_medium.hpp"
#include "media/memory/medium.hpp"
#include "thrown.hpp"

namespace tensorshelf::testing {

inline constexpr std::uint64_t kMiB = 1024 * 1024;

// A memory medium that outlives the shelf on it: closing and opening again finds the bytes. It may
// hide that it is mapped, so that the store takes the ways that it takes on a drive.
class SharedMedium : public ForwardingMedium {
 public:
  explicit SharedMedium(std::shared_ptr<Medium> medium, bool mapped = true)
      : ForwardingMedium(std::move(medium)), mapped_(mapped) {}
  std::span<const std::byte> view(const Extent& extent) override {
    return mapped_ ? ForwardingMedium::view(extent) : std::span<const std::byte>();
  }
  Promises promises() const override {
    Promises promises = ForwardingMedium::promises();
    promises.mapped = mapped_;
    return promises;
  }

 private:
  bool mapped_;
};

struct Bench {
  std::shared_ptr<Medium> medium;
  bool mapped;
  std::optional<Placement> placement = {};  // of what is made
  explicit Bench(std::uint64_t max_bytes = 64 * kMiB, bool is_mapped = true, unsigned keep = 0,
                 std::uint32_t format_version = format::kFormatVersion)
      : medium(make_memory_medium(0, max_bytes)), mapped(is_mapped) {
    Shelf::format(*medium, {.keep = keep});
    if (format_version == 2) make_format_2(*medium, 2 + keep);
  }
  Shelf open(Mode mode = Mode::update, Verify verify = Verify::on_load) const {
    OpenOptions options;
    options.mode = mode;
    options.verify = verify;
    options.placement = placement;
    return Shelf::open(std::make_unique<SharedMedium>(medium, mapped), options);
  }
};

inline std::vector<std::byte> value(const TensorRef& tensor, bool committed = false) {
  std::vector<std::byte> bytes(tensor.info().size_bytes);
  committed ? tensor.read_committed(bytes) : tensor.read(bytes);
  return bytes;
}

inline TensorRef make(Shelf& shelf, const std::string& name, std::int64_t size) {
  return shelf.create(name, DType::uint8, std::vector<std::int64_t>{size});
}

// Version 1 makes "w"; each has pattern(5000, version) in it.
inline void commit(Shelf& shelf, unsigned version) {
  if (version == 1) make(shelf, "w", 5000);
  shelf.find("w")->write(pattern(5000, version));
  REQUIRE(shelf.persist(version).version == version);
}

}  // namespace tensorshelf::testing
