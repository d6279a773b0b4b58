#include "store/io/unreadable.hpp"

#include <cerrno>

#include <tensorshelf/error.hpp>

namespace tensorshelf {

bool is_unreadable(const Error& error) noexcept {
  if (error.code() != Errc::io) return false;
  switch (error.os_error()) {
    case 0:  // a short read
    case EIO:
    case ENODATA:
    case EBADMSG:
    case EUCLEAN:
    case EILSEQ:
    case EREMOTEIO:
    case EHWPOISON:
      return true;
    default:
      return false;
  }
}

bool is_cut_off(const Error& error) noexcept {
  return error.code() == Errc::truncated || error.code() == Errc::corrupt;
}

}  // namespace tensorshelf
