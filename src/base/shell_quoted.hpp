// A path as one word of a shell's command line: remedies that name a command are pasted.
#pragma once

#include <string>
#include <string_view>

namespace tensorshelf {

std::string shell_quoted(std::string_view text);

}  // namespace tensorshelf
