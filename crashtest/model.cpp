#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

std::string step_text(const std::optional<std::uint64_t>& step) {
  return step ? fmt::format("step {}", *step) : "no step";
}

template <typename Tensor>
std::string tensor_difference(const std::string& name, const std::vector<std::byte>& expected,
                              const std::optional<Tensor>& tensor) {
  if (!tensor) return fmt::format("tensor {} is missing", name);
  const TensorInfo info = tensor->info();
  if (info.dtype != DType::uint8 || info.shape.size() != 1 || info.size_bytes != expected.size()) {
    return fmt::format("tensor {} has another layout: {} bytes", name, info.size_bytes);
  }
  if (info.name != name) return fmt::format("tensor {} says that it is {}", name, info.name);
  std::vector<std::byte> bytes(expected.size(), kUnread);
  tensor->read(bytes);
  // By ==, std::byte is compared one by one.
  if (bytes.empty() || std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0) return {};
  const auto [found, wanted] = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
  return fmt::format("tensor {} differs from byte {} of {}", name, found - bytes.begin(),
                     bytes.size());
}

// Of a shelf, or of a version.
template <typename Tensors>
std::string tensors_difference(const Model& model, const Tensors& there) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : model.tensors) names.push_back(name);
  if (there.names() != names) {
    return fmt::format("names [{}] instead of [{}]", fmt::join(there.names(), " "),
                       fmt::join(names, " "));
  }
  for (const auto& [name, bytes] : model.tensors) {
    std::string text = tensor_difference(name, bytes, there.find(name));
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace

void stamp(std::span<std::byte> bytes, std::string_view tensor, std::uint64_t serial,
           std::uint64_t offset) {
  std::uint64_t key = mixed(serial);
  for (const char letter : tensor) key = mixed(key ^ static_cast<unsigned char>(letter));
  for (std::size_t i = 0; i < bytes.size();) {  // a word of 8, or what there is of it
    const std::uint64_t index = offset + i;
    const std::uint64_t word = mixed(key ^ (index / 8)) >> (index % 8 * 8);
    const std::size_t size = std::min<std::size_t>(8 - index % 8, bytes.size() - i);
    std::memcpy(&bytes[i], &word, size);
    i += size;
  }
}

std::vector<std::byte> stamped(std::int64_t size_bytes, std::uint64_t serial) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_bytes));
  stamp(bytes, "a", serial, 0);
  return bytes;
}

std::shared_ptr<const Model> Model::find(std::uint64_t number) const {
  for (const auto& model : older) {
    if (model->version == number) return model;
  }
  return nullptr;
}

std::vector<std::shared_ptr<const Model>> Model::retained_by_next(unsigned keeping) const {
  auto retained = older;
  auto alone = std::make_shared<Model>(*this);
  alone->older.clear();
  retained.push_back(std::move(alone));
  std::erase_if(retained, [&](const auto& model) { return model->version + keeping <= version; });
  return retained;
}

std::string newest_difference(const Model& model, const Shelf& shelf) {
  const ShelfInfo info = shelf.info();
  if (info.version != model.version) {
    return fmt::format("version {} instead of {}", info.version, model.version);
  }
  if (info.step != model.step) {
    return fmt::format("{} instead of {}", step_text(info.step), step_text(model.step));
  }
  return tensors_difference(model, shelf);
}

std::string retained_difference(const Model& model, const RetainedVersion& version) {
  const auto step = version.info().step;
  std::string text = step == model.step
                         ? tensors_difference(model, version)
                         : fmt::format("{} instead of {}", step_text(step), step_text(model.step));
  return text.empty() ? text : fmt::format("retained version {}: {}", model.version, text);
}

// Until something is committed over it.
static bool is_fallback(const Model& model, const Shelf& shelf) {
  const Recovery recovery = shelf.info().recovery;
  return recovery.degraded && recovery.version == model.version;
}

std::string offered_difference(const Model& model, const Shelf& shelf) {
  std::vector<std::uint64_t> expected;
  if (!is_fallback(model, shelf)) {
    for (const auto& older : model.older) expected.push_back(older->version);
  }
  expected.push_back(model.version);
  std::vector<std::uint64_t> offered;
  for (const VersionInfo& version : shelf.versions()) offered.push_back(version.version);
  if (offered == expected) return {};
  return fmt::format("versions [{}] are offered instead of [{}]", fmt::join(offered, " "),
                     fmt::join(expected, " "));
}

std::string difference(const Model& model, const Shelf& shelf) {
  std::string text = newest_difference(model, shelf);
  if (text.empty()) text = offered_difference(model, shelf);
  for (const auto& older : model.older) {
    if (!text.empty() || is_fallback(model, shelf)) break;
    text = retained_difference(*older, shelf.at(older->version));
  }
  return text;
}

std::string summary(const Model& model) {
  return fmt::format("version {}, {}, {} tensors", model.version, step_text(model.step),
                     model.tensors.size());
}

}  // namespace tensorshelf::crash
