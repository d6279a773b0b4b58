// repair(), the public one: recovery does it, on being told to give up what is lost.
#include <fmt/format.h>

#include <utility>

#include <tensorshelf/repair.hpp>

#include "media/media.hpp"
#include "store/media_set/open_media.hpp"
#include "store/open_path.hpp"
#include "store/recovery/recover.hpp"
#include "store/store.hpp"

namespace tensorshelf {
namespace {

// Why opening it for writing is corrupt, if it is.
std::optional<std::string> why_not(const ShelfMedia& media) {
  try {
    check_opens(media);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return error.what();
  }
}

std::vector<std::string> give_up(const ShelfMedia& media, const std::string& why,
                                 RepairReport& report) {
  Recovered recovered = recover(media, Purpose::repair);
  if (!recovered.writes_allowed) {
    throw Error(Errc::read_only, "it has features that this release can only read",
                "Use the tensorshelf release that wrote it.");
  }
  report.lost = recovered.report.lost;
  std::vector<std::string> notes = {
      fmt::format("Opening it failed: {}.", why),
      fmt::format("Version {} is the newest now, and incarnation {} was given out.",
                  recovered.version, recovered.incarnation)};
  for (const std::uint64_t version : report.lost) {
    notes.push_back(
        fmt::format("Version {} may have been acknowledged, and was given up.", version));
  }
  for (const std::string& note : media.further->take_notes()) notes.push_back(note + ".");
  if (recovered.report.repaired_copies > 0) {
    const std::uint64_t count = recovered.report.repaired_copies;
    notes.push_back(count == 1 ? "One copy of metadata was written anew."
                               : fmt::format("{} copies of metadata were written anew.", count));
  }
  return notes;
}

RepairReport repair_media(const ShelfMedia& media, const OpenOptions& options,
                          const std::string& path) {
  RepairReport report;
  try {
    const auto why = why_not(media);
    report.repaired = why.has_value();
    if (why) report.notes = give_up(media, *why, report);
    // Where versions were given up, a mirror may have them: which is for who opens it to hear.
    Store store(media, {.mode = Mode::read, .salvage = report.repaired}, path);
    report.damage = store.reader().verify(options.progress).damage;
    report.version = store.catalog().version();
    report.step = store.catalog().step();
  } catch (const Error& error) {
    throw of_path(path, error);
  }
  if (!report.repaired) report.notes.emplace_back("It opens as it is: nothing was written.");
  return report;
}

}  // namespace

RepairReport repair(const std::filesystem::path& path, const OpenOptions& options) {
  const auto file = [&] {
    try {
      return std::make_shared<ShelfFile>(ShelfFile::open(path, true));
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      throw Error(error.code(), fmt::format("there is nothing to repair: {}", error.what()),
                  "Check the path.", error.os_error());
    }
  }();
  OpenOptions writing = options;
  writing.mode = Mode::update;
  writing.max_size_bytes = 0;
  const auto media = media_at(path, make_medium(file, writing), writing,
                              open_offered(path, writing, Coming::to_shelf));
  return repair_media(media, options, path.string());
}

RepairReport repair(std::unique_ptr<Medium> medium, const OpenOptions& options) {
  const std::string name = medium->promises().medium;
  return repair_media(shelf_media(std::move(medium)), options, "<" + name + ">");
}

}  // namespace tensorshelf
