#include "store/room/tensor_checks.hpp"

#include <fmt/format.h>

#include "format/format.hpp"

namespace tensorshelf {

void throw_full_until_persisted(const Error& full) {
  throw Error(Errc::full, full.what(),
              "persist() first: what was erased is free after it. Or else: " + full.remedy(),
              full.os_error());
}

void check_tensor_name(std::string_view name) {
  const auto problem = format::name_problem(name);
  if (!problem) return;
  throw Error(Errc::bad_name, fmt::format("the tensor name '{}' {}", name.substr(0, 80), *problem),
              "Use 1 to 1024 bytes of UTF-8 without NUL.");
}

void throw_impossible_layout(std::string_view name) {
  throw Error(Errc::layout, fmt::format("'{}' cannot have that dtype and shape", name),
              fmt::format("Dimensions are not negative, at most {} of them, at most 2^62 bytes in "
                          "all.",
                          kMaxDims));
}

void throw_name_taken(std::string_view name) {
  throw Error(Errc::name_taken, fmt::format("there is a tensor '{}' already", name),
              "Write to it, replace() it, or delete it first.");
}

void throw_no_tensor(std::string_view name, std::string_view to) {
  throw Error(Errc::unknown_name, fmt::format("no tensor '{}' to {}", name, to),
              to == "replace" ? "create() it." : "names() lists what there is.");
}

void throw_no_ids_left(std::string_view name, std::uint64_t next_id) {
  throw Error(Errc::full,
              fmt::format("'{}' would be tensor {} of the shelf, more than the format can count",
                          name, next_id),
              "Copy the tensors into a new shelf.");
}

}  // namespace tensorshelf
