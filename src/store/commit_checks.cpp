#include "store/commit_checks.hpp"

#include <fmt/format.h>

#include <tensorshelf/error.hpp>

#include "format/format.hpp"

namespace tensorshelf {

void check_id(std::string_view id) {
  if (id.size() <= format::kMaxIdBytes) return;
  throw Error(Errc::bad_argument, fmt::format("an id of {} bytes", id.size()),
              fmt::format("Use {} bytes at most.", format::kMaxIdBytes));
}

void check_step(std::optional<std::uint64_t> step) {
  if (step != format::kNoStep) return;
  throw Error(Errc::bad_argument, fmt::format("the step {} is what stands for none", *step),
              "Use 0 to 2^64 - 2, or none.");
}

void check_name(const std::weak_ptr<const ShelfFile>& file) {
  if (const auto there = file.lock()) there->check_name();
}

}  // namespace tensorshelf
