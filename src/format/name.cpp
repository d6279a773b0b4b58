// What a tensor may be called: 1 to 1024 bytes of well-formed UTF-8 without NUL.
#include <cstddef>

#include "format/format.hpp"

namespace tensorshelf::format {
namespace {

// Bytes of the well-formed UTF-8 sequence at the front of `text`, or 0 (The Unicode Standard,
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto tail = [&](std::size_t i) { return at(i) >= 0x80 && at(i) <= 0xBF; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if ((first == 0xE0 && at(1) < 0xA0) || (first == 0xED && at(1) > 0x9F)) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if ((first == 0xF0 && at(1) < 0x90) || (first == 0xF4 && at(1) > 0x8F)) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::optional<std::string> name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  static_assert(kMaxNameBytes == 1024);
  if (name.size() > kMaxNameBytes) return "is longer than 1024 bytes";
  while (!name.empty()) {
    if (name.front() == '\0') return "contains a NUL";
    const std::size_t length = utf8_length(name);
    if (length == 0) return "is not valid UTF-8";
    name.remove_prefix(length);
  }
  return std::nullopt;
}

}  // namespace tensorshelf::format
