// The element types, as one table: on-media value, bytes, name.
#include <tensorshelf/tensor.hpp>

#include <algorithm>

namespace tensorshelf {

namespace {

struct Row {
  DType dtype;
  std::uint64_t bytes;
  std::string_view name;
};

constexpr Row kRows[] = {
    {DType::boolean, 1, "bool"},
    {DType::uint8, 1, "uint8"},
    {DType::int8, 1, "int8"},
    {DType::uint16, 2, "uint16"},
    {DType::int16, 2, "int16"},
    {DType::uint32, 4, "uint32"},
    {DType::int32, 4, "int32"},
    {DType::uint64, 8, "uint64"},
    {DType::int64, 8, "int64"},
    {DType::float16, 2, "float16"},
    {DType::bfloat16, 2, "bfloat16"},
    {DType::float32, 4, "float32"},
    {DType::float64, 8, "float64"},
    {DType::complex32, 4, "complex32"},
    {DType::complex64, 8, "complex64"},
    {DType::complex128, 16, "complex128"},
    {DType::float8_e4m3fn, 1, "float8_e4m3fn"},
    {DType::float8_e5m2, 1, "float8_e5m2"},
    {DType::float8_e4m3fnuz, 1, "float8_e4m3fnuz"},
    {DType::float8_e5m2fnuz, 1, "float8_e5m2fnuz"},
    {DType::float8_e8m0fnu, 1, "float8_e8m0fnu"},
};

// Values come from files: any 16 bits may arrive.
const Row* row_of(DType dtype) noexcept {
  const std::size_t value = static_cast<std::uint16_t>(dtype);
  return value >= 1 && value <= std::size(kRows) ? &kRows[value - 1] : nullptr;
}

consteval bool in_order() {
  for (std::size_t n = 0; n < std::size(kRows); ++n) {
    if (static_cast<std::size_t>(kRows[n].dtype) != n + 1) return false;
  }
  return true;
}
static_assert(in_order(), "row_of() finds a row by its value");

constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 62;

}  // namespace

std::uint64_t dtype_bytes(DType dtype) noexcept {
  const Row* row = row_of(dtype);
  return row == nullptr ? 0 : row->bytes;
}

std::string_view dtype_name(DType dtype) noexcept {
  const Row* row = row_of(dtype);
  return row == nullptr ? "no dtype" : row->name;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& each) { return each.name == name; });
  if (row == std::end(kRows)) return std::nullopt;
  return row->dtype;
}

std::optional<std::uint64_t> tensor_bytes(DType dtype,
                                          std::span<const std::int64_t> shape) noexcept {
  const Row* row = row_of(dtype);
  if (row == nullptr || shape.size() > kMaxDims) return std::nullopt;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; })) {
    return std::nullopt;
  }
  // A dimension of zero makes the product zero, whatever the others are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t bytes = row->bytes;
  for (const std::int64_t size : shape) {
    if (static_cast<std::uint64_t>(size) > kMaxTensorBytes / bytes) return std::nullopt;
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

}  // namespace tensorshelf
