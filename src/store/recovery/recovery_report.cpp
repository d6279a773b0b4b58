#include "store/recovery/recovery_report.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "store/io/head.hpp"
#include "store/recovery/choice.hpp"

namespace tensorshelf {
namespace {

// What cannot be believed, and why.
void note_salvage(Recovery& report, const Choice& choice) {
  for (const std::uint64_t version : report.lost) {
    report.notes.push_back(fmt::format("version {} may have been acknowledged, and is lost{}{}",
                                       version, choice.lost.empty() ? "" : "; ", choice.lost));
  }
  report.notes.push_back(fmt::format(
      "version {} is shown as far as it is whole: a tensor that is damaged, or over which a newer "
      "version was written, fails its checksum when it is read, and verify() lists it.",
      report.version));
}

}  // namespace

Recovery report_of(const Choice& choice, const RootScan& scan, const ShelfHead& head,
                   Purpose purpose) {
  Recovery report;
  const bool writable = writes(purpose) && head.writes_allowed;
  report.version = choice.number();
  report.step = format::stated_step(choice.root());
  report.interrupted = writable && scan.attempt_left(report.version) && !choice.prepared;
  if (choice.prepared) report.prepared = choice.prepared->info;
  report.degraded = choice.degraded;
  report.salvaged = choice.degraded && takes_what_there_is(purpose);
  report.lost = scan.lost_beyond(report.version);
  if (report.salvaged) {
    note_salvage(report, choice);
  } else if (report.degraded) {
    report.notes.push_back(
        fmt::format("version {} was opened in place of a newer, damaged one; every chunk of it was "
                    "verified.{}{}",
                    report.version, choice.lost.empty() ? "" : " ", choice.lost));
  }
  const auto bad = head.bad_copies.size() + choice.repairs.size();
  if (!writable && bad > 0) {
    report.notes.push_back(
        bad == 1
            ? "One copy of metadata is damaged; the next open for writing writes it anew."
            : fmt::format("{} copies of metadata are damaged; the next open for writing writes "
                          "them anew.",
                          bad));
  }
  return report;
}

void note_unread(Recovery& report, const Unread& unread) {
  if (unread.pages == 0) return;
  report.notes.push_back(
      fmt::format("{} pages of metadata could not be read, and their other copies served; the "
                  "first: {}",
                  unread.pages, unread.first));
}

}  // namespace tensorshelf
