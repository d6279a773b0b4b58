// Room in a regular file, whatever medium lies on it: blocks, the length, and the errors that say
// what there is not enough of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

// A part of the file at `path` that is to become room.
struct FileGrowth {
  int fd;
  const std::filesystem::path& path;
  std::uint64_t from_bytes;
  std::uint64_t to_bytes;
};

// fallocate() with these flags, also through signals; returns 0 or the errno.
[[nodiscard]] int allocate(const FileGrowth& growth, int flags = 0);
[[nodiscard]] int set_length(int fd, std::uint64_t size_bytes);

// Makes the file end at `size_bytes`; one that ends before stays as it is. Errc::io, with the file
// as it was.
void cut_file(int fd, const std::filesystem::path& path, std::uint64_t size_bytes);

// Errc::full where the file system surely has no room, or no file can be that long. Asked before
// anything is taken: what cannot fit would else fill the file system before it fails, and every
// other program there would meet a full disk.
void ask_for_room(const FileGrowth& growth);

// Errc::full where `os_error` says that something is used up; returns where it says anything else.
void refuse_if_full(const FileGrowth& growth, int os_error);

// The text and remedy of Errc::full, at whatever limit.
Error full_error(const FileGrowth& growth, const std::string& limit, std::string remedy,
                 int os_error = 0);

}  // namespace tensorshelf
