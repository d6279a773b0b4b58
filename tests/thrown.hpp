// What a call threw, for tests of errors.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <tensorshelf/error.hpp>

#include "catch.hpp"

namespace tensorshelf::testing {

inline std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Fails the test where nothing was thrown, or an error without a remedy.
inline Errc code_of(const std::function<void()>& call) {
  const auto error = error_of(call);
  REQUIRE(error);
  CHECK_FALSE(std::string(error->what()).empty());
  CHECK_FALSE(error->remedy().empty());
  return error->code();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tensorshelf::testing
