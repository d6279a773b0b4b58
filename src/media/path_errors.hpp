// What goes wrong on the way to a file, in the user's words: what is not there, who may not, and
// what to do.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tensorshelf {

// What was to be done with the file: "cannot be created". These two ask for a permission of their
// own.
inline constexpr const char* kForReading = "opened for reading";
inline constexpr const char* kForWriting = "opened for writing";

// `error` is an errno; whoever calls has not closed or removed anything yet.
[[noreturn]] void throw_path_error(const std::filesystem::path& path, const char* verb, int error);

inline constexpr std::size_t kMaxFileName = 255;

// "." where the path has none.
std::filesystem::path parent_of(const std::filesystem::path& path);

}  // namespace tensorshelf
