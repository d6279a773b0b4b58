// The names that new files have until they are given their own (file.hpp): beside it, hidden, and
// like no name that a person would give.
#pragma once

#include <filesystem>
#include <vector>

namespace tensorshelf {

// A name for a file that is to become `target`; each call's is another one.
std::filesystem::path temporary_name(const std::filesystem::path& target);

// What ShelfFile::create() made for `target` and gave no name yet, by whoever lives or was killed.
std::vector<std::filesystem::path> temporaries_of(const std::filesystem::path& target);

// A creator that was killed leaves its temporary file behind, unlocked. Nobody can want it: its
// name was random, and it is no shelf until it is published. Failing to remove it harms nothing.
void remove_abandoned(const std::filesystem::path& target);

}  // namespace tensorshelf
