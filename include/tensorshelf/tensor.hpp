// What a tensor is to the shelf: a name, an element type, a shape, bytes in C order, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorshelf {

// On-media values: never renumber. Names are those of dtype_name().
enum class DType : std::uint16_t {
  boolean = 1,
  uint8 = 2,
  int8 = 3,
  uint16 = 4,
  int16 = 5,
  uint32 = 6,
  int32 = 7,
  uint64 = 8,
  int64 = 9,
  float16 = 10,
  bfloat16 = 11,
  float32 = 12,
  float64 = 13,
  complex32 = 14,  // two float16
  complex64 = 15,
  complex128 = 16,
  float8_e4m3fn = 17,
  float8_e5m2 = 18,
  float8_e4m3fnuz = 19,
  float8_e5m2fnuz = 20,
  float8_e8m0fnu = 21,
};

// How a tensor chooses among its slots; on-media values, as above.
enum class Placement : std::uint16_t {
  whole = 1,     // all chunks in one slot, so that it can be viewed in place; what an update leaves
                 // out is copied forward. What mapped media do.
  by_chunk = 2,  // each chunk in a slot of its own: nothing is ever copied. What other media do.
};

// Bytes of one element; 0 for a value that is no dtype.
std::uint64_t dtype_bytes(DType dtype) noexcept;
// "bool", "uint8", ..., "bfloat16", "float8_e4m3fn"; NumPy's and torch's own words.
std::string_view dtype_name(DType dtype) noexcept;
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

inline constexpr std::size_t kMaxDims = 64;         // NumPy's own limit
inline constexpr std::size_t kMaxNameBytes = 1024;  // UTF-8

// Bytes of a tensor of this layout, or nothing where a dimension is negative, there are more than
// kMaxDims of them, or the product overflows 2^62.
std::optional<std::uint64_t> tensor_bytes(DType dtype,
                                          std::span<const std::int64_t> shape) noexcept;

struct TensorInfo {
  std::string name;      // in the version that was asked, or now
  std::uint64_t id = 0;  // TensorRef::id()
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::uint64_t size_bytes = 0;
  std::uint64_t version = 0;    // the committed version that last wrote it; 0: not committed yet
  std::uint64_t pending = 0;    // the one on its way, or prepared, that wrote its value; 0: none
  bool dirty = false;           // assigned since the last persist()
  bool spoiled = false;         // it has no value: Errc::spoiled
  std::vector<unsigned> media;  // on which it lies, by ShelfInfo::media; rising
};

}  // namespace tensorshelf
