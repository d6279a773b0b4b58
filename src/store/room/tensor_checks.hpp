// What can be said of a tensor before it is made.
#pragma once

#include <cstdint>
#include <string_view>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

void check_tensor_name(std::string_view name);  // Errc::bad_name
[[noreturn]] void throw_impossible_layout(std::string_view name);
[[noreturn]] void throw_name_taken(std::string_view name);
[[noreturn]] void throw_no_tensor(std::string_view name, std::string_view to);  // "replace"
[[noreturn]] void throw_no_ids_left(std::string_view name, std::uint64_t next_id);
// What was erased is free after the next commit.
[[noreturn]] void throw_full_until_persisted(const Error& full);

}  // namespace tensorshelf
