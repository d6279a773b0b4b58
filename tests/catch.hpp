// Catch2 v2 (Debian 12) or v3, whichever is installed.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

namespace tensorshelf::testing {

// Sanitizers look at the code, which a quarter of many like cases reaches as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
constexpr unsigned rounds(unsigned all) { return kSanitized ? all / 4 : all; }

}  // namespace tensorshelf::testing
