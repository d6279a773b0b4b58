// What goes wrong on the way to a file, in the user's words: what is not there, who may not, and
// what to do.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace tensorshelf {

// What was to be done with the file: "cannot be created". These two ask for a permission of their
// own.
inline constexpr std::string_view kForReading = "opened for reading";
inline constexpr std::string_view kForWriting = "opened for writing";

// `error` is an errno; whoever calls has not closed or removed anything yet.
[[noreturn]] void throw_path_error(const std::filesystem::path& path, std::string_view verb,
                                   int error);

inline constexpr std::size_t kMaxFileName = 255;

// "." where the path has none.
std::filesystem::path parent_of(const std::filesystem::path& path);

}  // namespace tensorshelf
