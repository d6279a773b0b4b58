#include "pinned.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "log.hpp"

namespace tensorshelf::crash {

struct PinnedReaders::Reader {
  Log log;  // of nothing: it only reads
  Shelf shelf;
  VersionPin pin;
  Model shows;

  Reader(Disk& disk, const Behaviour& behaviour, const PinnedReaders& all, Model model)
      : shelf(open(recorded(disk, log,
                            {.personality = behaviour.personality,
                             .second_bytes = behaviour.second_bytes,
                             .mirrored = behaviour.mirrored}),
                   all)),
        pin(shelf.pin()),
        shows(std::move(model)) {}

  static Shelf open(Recorded media, const PinnedReaders& all) {
    return Shelf::open(all.seen_by_all(std::move(media.first)), std::move(media.also),
                       std::move(media.mirrors), {.mode = Mode::read});
  }
};

std::unique_ptr<Medium> PinnedReaders::seen_by_all(std::unique_ptr<Medium> medium) const {
  return std::make_unique<testing::PinnedMedium>(std::move(medium), shared_);
}

void PinnedReaders::add(Disk& disk, const Behaviour& behaviour, const Model& newest) {
  readers_.push_back(std::make_shared<Reader>(disk, behaviour, *this, newest));
  if (readers_.back()->pin.version() != newest.version) {
    throw std::runtime_error(fmt::format("a reader holds version {}, and {} is the newest",
                                         readers_.back()->pin.version(), newest.version));
  }
}

void PinnedReaders::clear() { readers_.clear(); }

bool PinnedReaders::hold_before(std::uint64_t version) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const auto& reader) { return reader->shows.version < version; });
}

void PinnedReaders::check() const {
  for (const auto& reader : readers_) {
    std::string text;
    try {
      text = retained_difference(reader->shows, reader->shelf.at(reader->shows.version));
    } catch (const Error& error) {
      text = error.what();
    }
    if (!text.empty()) {
      throw std::runtime_error(fmt::format("version {} changed, which a reader holds (I3): {}",
                                           reader->shows.version, text));
    }
  }
}

}  // namespace tensorshelf::crash
