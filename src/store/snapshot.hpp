// A version of a shelf as a shelf of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "store/store.hpp"

namespace tensorshelf {

// See Shelf::snapshot().
Commit write_snapshot(Store& from, const std::filesystem::path& path, const OpenOptions& options,
                      std::optional<std::uint64_t> version);

}  // namespace tensorshelf
