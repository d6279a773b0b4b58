// What is looked at before a commit is begun, so that the shelf stays as it is, can be read, and
// can try again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "media/file.hpp"

namespace tensorshelf {

// Errc::bad_argument for the step that stands for none.
void check_step(std::optional<std::uint64_t> step);
// Errc::bad_argument where the id of what is prepared is too long.
void check_id(std::string_view id);
// Errc::gone where the file has lost its name. One that is not there is of a medium of one's own.
void check_name(const std::weak_ptr<const ShelfFile>& file);

}  // namespace tensorshelf
