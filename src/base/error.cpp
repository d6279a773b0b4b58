// Errors as users read them. Texts hold names and paths of any bytes, and are written all over the
// source: what makes each of them printable, and all of them alike, is done here, once.
#include <tensorshelf/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tensorshelf {
namespace {

// Control characters of a name or path, as \x00: what() ends at a NUL, a terminal obeys the others.
std::string printable(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (std::none_of(text.begin(), text.end(), is_control)) return text;
  std::string shown;
  for (const char c : text) {
    if (is_control(c)) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      shown += c;
    }
  }
  return shown;
}

// A sentence: a capital in front, unless it begins with code such as persist(), and a full stop.
std::string sentence(std::string text) {
  if (text.empty()) return text;
  const std::size_t end = text.find_first_of(" ,;:.");
  const std::string first = text.substr(0, end);
  if (first.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  if (std::string(".!?").find(text.back()) == std::string::npos) text += '.';
  return text;
}

}  // namespace

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
    case Errc::uncommitted:
      return "uncommitted_changes";
    case Errc::unresolved:
      return "unresolved";
    case Errc::abandoned:
      return "abandoned";
    case Errc::transaction:
      return "in_transaction";
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
    case Errc::torn:
      return "torn_save";
    case Errc::spoiled:
      return "tensor_spoiled";
    case Errc::pinned:
      return "version_pinned";
    case Errc::medium_missing:
      return "medium_missing";
    case Errc::gone:
      return "shelf_gone";
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
    : std::runtime_error(printable(what)),
      code_(code),
      remedy_(sentence(printable(std::move(remedy)))),
      os_error_(os_error) {}

}  // namespace tensorshelf
