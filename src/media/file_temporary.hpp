// The names that new files have until they are given their own (file.hpp): beside it, hidden, and
// like no name that a person would give.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace tensorshelf {

// A name for a file that is to become `target`; each call's is another one. `stands_for`: says of
// what is at `target` now, and is to be replaced, which that is.
std::filesystem::path temporary_name(const std::filesystem::path& target,
                                     std::optional<std::uint32_t> stands_for = {});
bool stands_for(const std::filesystem::path& temporary, std::uint32_t which);

// What ShelfFile::create() made for `target` and gave no name yet, by whoever lives or was killed.
std::vector<std::filesystem::path> temporaries_of(const std::filesystem::path& target);

// A creator that was killed leaves its temporary file behind, unlocked. Whoever creates anew wants
// it no more. Failing to remove it harms nothing.
void remove_abandoned(const std::filesystem::path& target);

}  // namespace tensorshelf
