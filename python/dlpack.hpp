// What of DLPack's C interface is used here, as its version 1 has it (dlpack.h of
// github.com/dmlc/dlpack): how a library tells of a tensor of its own without a call of Python.
#pragma once
#include <cstdint>

namespace tensorshelf::python::dlpack {

inline constexpr const char* kAttribute = "__dlpack_c_exchange_api__";  // of a tensor's type
inline constexpr const char* kCapsule = "dlpack_exchange_api";
inline constexpr std::uint32_t kMajor = 1;

struct Version {
  std::uint32_t major, minor;
};

struct Device {
  std::int32_t type, id;
};

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

// Shape and strides count elements, and are the library's own: they hold as long as the tensor is
// left as it is.
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;  // from `data` to the first element
};

struct Header {
  Version version;
  Header* older;  // nullptr: none
};

struct Exchange {
  Header header;
  void* allocate;
  void* give;
  void* take;
  int (*describe)(void* object, Tensor* into);  // not 0: Python's error says why; may be nullptr
  void* stream;
};

}  // namespace tensorshelf::python::dlpack
