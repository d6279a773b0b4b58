// The media of a shelf beside its first, from the paths that were given (OpenOptions::also), or
// where a version says that they were.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "format/layout.hpp"
#include "store/media_set/further_media.hpp"
#include "store/media_set/offered_at.hpp"

namespace tensorshelf {

// The media that were given to the shelf at `path`, opened or about to be made; `of`: the shelf
// that is replaced. Errors as opening, before anything is changed.
std::vector<OfferedMedium> open_offered(const std::filesystem::path& path,
                                        const OpenOptions& options, Coming coming,
                                        const std::optional<format::ShelfId>& of = {});
// The id of a shelf that is to be replaced; none where there is no such.
std::optional<format::ShelfId> shelf_at(const std::filesystem::path& path,
                                        const OpenOptions& options);
// The media of the shelf at `path`: others are found beside it, or where they were; of a `mirror`,
// which lies elsewhere than its shelf did, in either case.
ShelfMedia media_at(const std::filesystem::path& path, std::unique_ptr<Medium> first,
                    const OpenOptions& options, std::vector<OfferedMedium> offered,
                    bool mirror = false);

}  // namespace tensorshelf
