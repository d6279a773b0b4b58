// The element types: values on the medium never change, names are NumPy's and torch's, and no
// layout, however hostile, overflows.
#include <limits>
#include <tensorshelf/tensor.hpp>
#include <vector>

#include "catch.hpp"

namespace tensorshelf {
namespace {

TEST_CASE("value, size and name of every dtype stand as on the medium") {
  const struct {
    std::uint16_t value;
    std::uint64_t bytes;
    std::string_view name;
  } rows[] = {
      {1, 1, "bool"},
      {2, 1, "uint8"},
      {3, 1, "int8"},
      {4, 2, "uint16"},
      {5, 2, "int16"},
      {6, 4, "uint32"},
      {7, 4, "int32"},
      {8, 8, "uint64"},
      {9, 8, "int64"},
      {10, 2, "float16"},
      {11, 2, "bfloat16"},
      {12, 4, "float32"},
      {13, 8, "float64"},
      {14, 4, "complex32"},
      {15, 8, "complex64"},
      {16, 16, "complex128"},
      {17, 1, "float8_e4m3fn"},
      {18, 1, "float8_e5m2"},
      {19, 1, "float8_e4m3fnuz"},
      {20, 1, "float8_e5m2fnuz"},
      {21, 1, "float8_e8m0fnu"},
  };
  for (const auto& row : rows) {
    INFO(row.name);
    const auto dtype = static_cast<DType>(row.value);
    REQUIRE(dtype_bytes(dtype) == row.bytes);
    REQUIRE(dtype_name(dtype) == row.name);
    REQUIRE(dtype_from_name(row.name) == dtype);
  }
}

TEST_CASE("values and names that are no dtype") {
  for (const unsigned value : {0u, 22u, 255u, 256u, 257u, 65535u}) {
    const auto dtype = static_cast<DType>(value);
    REQUIRE(dtype_bytes(dtype) == 0);
    REQUIRE_FALSE(tensor_bytes(dtype, {}).has_value());
    REQUIRE_FALSE(dtype_from_name(dtype_name(dtype)).has_value());
  }
  for (const std::string_view name : {"", "float", "FLOAT32", "float32 ", "object", "half"}) {
    REQUIRE_FALSE(dtype_from_name(name).has_value());
  }
}

TEST_CASE("bytes of a layout") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  using Shape = std::vector<std::int64_t>;
  const std::optional<std::uint64_t> none;
  const struct {
    DType dtype;
    Shape shape;
    std::optional<std::uint64_t> bytes;
  } rows[] = {
      {DType::float32, {}, 4},  // zero dimensions: one element
      {DType::complex128, {1024, 1024}, 16u << 20},
      {DType::uint8, {0}, 0},
      {DType::float64, {3, 0, kMost, kMost}, 0},
      {DType::float64, {kMost, kMost, 0}, 0},
      {DType::float32, {-1}, none},
      {DType::float32, {0, -1}, none},
      {DType::float32, {kLeast, 0}, none},
      {DType::uint8, {std::int64_t{1} << 62}, std::uint64_t{1} << 62},
      {DType::uint8, {(std::int64_t{1} << 62) + 1}, none},
      {DType::float64, {std::int64_t{1} << 59}, std::uint64_t{1} << 62},
      {DType::float64, {(std::int64_t{1} << 59) + 1}, none},
      {DType::uint8, {std::int64_t{1} << 32, std::int64_t{1} << 32}, none},  // 2^64 wraps to 0
      {DType::uint8, {kMost, kMost}, none},
      {DType::uint8, Shape(64, 1), 1},
      {DType::uint8, Shape(65, 1), none},
      {DType::uint8, Shape(63, 2), none},
  };
  for (const auto& row : rows) {
    INFO(dtype_name(row.dtype) << " of " << row.shape.size() << " dimensions");
    REQUIRE(tensor_bytes(row.dtype, row.shape) == row.bytes);
  }
}

}  // namespace
}  // namespace tensorshelf
