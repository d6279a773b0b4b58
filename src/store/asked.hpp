// What who opens a shelf asks for, checked: Errc::bad_argument.
#pragma once

#include <chrono>

#include <tensorshelf/options.hpp>

namespace tensorshelf {

unsigned threads_of(const OpenOptions& options);
void check_pin_timeout(std::chrono::duration<double> timeout);

}  // namespace tensorshelf
