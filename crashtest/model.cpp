#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

std::string step_text(const std::optional<std::uint64_t>& step) {
  return step ? fmt::format("step {}", *step) : "no step";
}

std::string tensor_difference(const std::string& name, const std::vector<std::byte>& expected,
                              const Shelf& shelf) {
  const std::optional<TensorRef> tensor = shelf.find(name);
  if (!tensor) return fmt::format("tensor {} is missing", name);
  const TensorInfo info = tensor->info();
  if (info.dtype != DType::uint8 || info.shape.size() != 1 || info.size_bytes != expected.size()) {
    return fmt::format("tensor {} has another layout: {} bytes", name, info.size_bytes);
  }
  std::vector<std::byte> bytes(expected.size(), kUnread);
  tensor->read(bytes);
  if (bytes == expected) return {};
  const auto [found, wanted] = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
  return fmt::format("tensor {} differs from byte {} of {}", name, found - bytes.begin(),
                     bytes.size());
}

}  // namespace

void stamp(std::span<std::byte> bytes, std::string_view tensor, std::uint64_t serial,
           std::uint64_t offset) {
  std::uint64_t key = mix(serial);
  for (const char letter : tensor) key = mix(key ^ static_cast<unsigned char>(letter));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t index = offset + i;
    bytes[i] = static_cast<std::byte>(mix(key ^ (index / 8)) >> (index % 8 * 8));
  }
}

std::string difference(const Model& model, const Shelf& shelf) {
  const ShelfInfo info = shelf.info();
  if (info.version != model.version) {
    return fmt::format("version {} instead of {}", info.version, model.version);
  }
  if (info.step != model.step) {
    return fmt::format("{} instead of {}", step_text(info.step), step_text(model.step));
  }
  std::vector<std::string> names;
  for (const auto& [name, bytes] : model.tensors) names.push_back(name);
  if (shelf.names() != names) {
    return fmt::format("names [{}] instead of [{}]", fmt::join(shelf.names(), " "),
                       fmt::join(names, " "));
  }
  for (const auto& [name, bytes] : model.tensors) {
    std::string text = tensor_difference(name, bytes, shelf);
    if (!text.empty()) return text;
  }
  return {};
}

std::string summary(const Model& model) {
  return fmt::format("version {}, {}, {} tensors", model.version, step_text(model.step),
                     model.tensors.size());
}

}  // namespace tensorshelf::crash
