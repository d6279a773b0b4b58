#include "kill_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace tensorshelf::killtest {
namespace {

// From one element to several chunks, none of them a round size.
constexpr std::array<std::int64_t, 8> kElements = {1,     511,   513,    1'000,
                                                   5'000, 9'000, 20'003, 140'007};

std::string tensor_name(std::size_t i) { return fmt::format("layer.{}.weight", i); }

// Every element of tensor i at a step: no two steps and no two tensors share a value.
std::uint64_t stamp(std::uint64_t step, std::size_t i) { return step * 16 + i; }

// A ninth tensor comes and goes with the steps, so that layouts change under the same flips.
constexpr const char* kExtra = "extra";
bool has_extra(std::uint64_t step) { return step % 4 == 3; }

void fill(std::vector<std::uint64_t>& values, std::size_t i, std::uint64_t step) {
  values.assign(static_cast<std::size_t>(kElements[i]), stamp(step, i));
}

void assign(TensorRef tensor, std::span<const std::uint64_t> values, std::uint64_t step) {
  const auto bytes = std::as_bytes(values);
  if (step % 3 != 0 || bytes.size() < 64) {
    tensor.write(bytes);
    return;
  }
  const std::size_t cut = bytes.size() / 3 / 8 * 8;  // in two parts, the later one first
  tensor.write(bytes.subspan(cut), cut);
  tensor.write(bytes.first(cut));
}

void assign_all(Shelf& shelf, std::uint64_t step) {
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < kElements.size(); ++i) {
    fill(values, i, step);
    auto tensor = shelf.find(tensor_name(i));
    if (!tensor) tensor = shelf.create(tensor_name(i), DType::uint64, {{kElements[i]}});
    assign(*tensor, values, step);
  }
  const bool present = shelf.find(kExtra).has_value();
  if (present && !has_extra(step)) shelf.erase(kExtra);
  if (!present && has_extra(step)) {
    const std::uint64_t value = stamp(step, kElements.size());
    shelf.create(kExtra, DType::uint64, {}).write(std::as_bytes(std::span(&value, 1)));
  }
}

void persist(Shelf& shelf, std::uint64_t step) {
  if (step % 5 == 0) {
    shelf.persist_async(step).get();
  } else {
    shelf.persist(step);
  }
}

void check_tensor(const TensorRef& tensor, std::uint64_t expected) {
  const TensorInfo info = tensor.info();
  std::vector<std::uint64_t> values(info.size_bytes / 8);
  tensor.read(std::as_writable_bytes(std::span(values)));
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (values[at] == expected) continue;
    throw std::runtime_error(fmt::format("'{}' element {} is step {}, tensor {}; expected step {}",
                                         info.name, at, values[at] / 16, values[at] % 16,
                                         expected / 16));
  }
}

}  // namespace

void write_forever(const Writer& writer) {
  Pulse& pulse = *writer.pulse;
  Shelf shelf = Shelf::open(writer.path, writer.options);
  std::uint64_t step = shelf.info().step.value_or(0);
  while (true) {
    ++step;
    pulse.phase = Phase::assigning;
    assign_all(shelf, step);
    pulse.phase = Phase::persisting;
    persist(shelf, step);
    pulse.phase = Phase::between_steps;
    if (::write(writer.acknowledge_fd, &step, sizeof step) != sizeof step) {
      throw std::runtime_error("the acknowledgement pipe is broken");
    }
    ++pulse.acknowledged;
  }
}

std::uint64_t reopen_and_check(const std::filesystem::path& path, const OpenOptions& options) {
  Shelf shelf = Shelf::open(path, options);
  const std::uint64_t step = shelf.info().step.value_or(0);
  const std::size_t expected = step == 0 ? 0 : kElements.size() + (has_extra(step) ? 1 : 0);
  if (shelf.names().size() != expected) {
    throw std::runtime_error(
        fmt::format("step {} has {} tensors, expected {}", step, shelf.names().size(), expected));
  }
  if (step == 0) return 0;
  for (std::size_t i = 0; i < kElements.size(); ++i) {
    const auto tensor = shelf.find(tensor_name(i));
    if (!tensor) throw std::runtime_error(fmt::format("'{}' is missing", tensor_name(i)));
    check_tensor(*tensor, stamp(step, i));
  }
  if (has_extra(step)) check_tensor(*shelf.find(kExtra), stamp(step, kElements.size()));
  return step;
}

}  // namespace tensorshelf::killtest
