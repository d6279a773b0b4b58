#include <tensorshelf/error.hpp>

namespace tensorshelf {

std::string_view code_name(Errc code) noexcept {
  switch (code) {
    case Errc::not_found:
      return "shelf_not_found";
    case Errc::exists:
      return "shelf_exists";
    case Errc::not_a_shelf:
      return "not_a_shelf";
    case Errc::truncated:
      return "shelf_truncated";
    case Errc::newer_format:
      return "newer_format";
    case Errc::busy:
      return "shelf_busy";
    case Errc::full:
      return "shelf_full";
    case Errc::layout:
      return "layout_mismatch";
    case Errc::unknown_name:
      return "unknown_name";
    case Errc::bad_name:
      return "bad_name";
    case Errc::name_taken:
      return "name_taken";
    case Errc::bad_argument:
      return "bad_argument";
    case Errc::corrupt:
      return "corrupt";
    case Errc::read_only:
      return "read_only";
    case Errc::closed:
      return "shelf_closed";
    case Errc::leased:
      return "slot_leased";
    case Errc::forked:
      return "used_after_fork";
    case Errc::not_dax:
      return "not_dax";
    case Errc::unsupported:
      return "unsupported";
    case Errc::stale:
      return "version_overwritten";
    case Errc::io:
      return "io_error";
    case Errc::failed:
      return "shelf_failed";
  }
  return "unknown";
}

Error::Error(Errc code, const std::string& what, std::string remedy, int os_error)
    : std::runtime_error(what), code_(code), remedy_(std::move(remedy)), os_error_(os_error) {}

}  // namespace tensorshelf
