#include "shelf_images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <tensorshelf/shelf.hpp>

#include "bytes.hpp"
#include "crashtest/recording_medium.hpp"
#include "format/bytes.hpp"
#include "format/format.hpp"

namespace tensorshelf::group_test {
namespace {

using testing::Bytes;

constexpr std::uint64_t kDiskBytes = 1 << 20;

// Two tensors, so that a mixture of two saves would show: one of less than a sector, whose first
// bytes say which save it is, and one of two pages.
constexpr std::array<std::string_view, 2> kNames = {"first", "second"};
constexpr std::array<std::uint64_t, 2> kSizes = {40, 5000};

std::uint64_t seed_of(std::uint32_t rank, const Save& save) {
  return (std::uint64_t{rank} << 32) + save.start * 256 + save.count;
}

Bytes value(std::uint32_t rank, const Save& save, std::size_t tensor) {
  Bytes bytes = testing::pattern(kSizes[tensor], seed_of(rank, save) * kNames.size() + tensor);
  if (tensor == 0) std::memcpy(bytes.data(), &save, sizeof save);
  return bytes;
}

void stage(Shelf& shelf, std::uint32_t rank, const Save& save) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::array shape = {static_cast<std::int64_t>(kSizes[i])};
    auto tensor = shelf.find(kNames[i]);
    if (!tensor) tensor = shelf.create(kNames[i], DType::uint8, shape);
    tensor->write(value(rank, save, i));
  }
}

std::string_view id_of(const Save& save) {
  return {reinterpret_cast<const char*>(&save), sizeof save};
}

// What a shelf, or a version of it, holds. Throws std::string where that is no save of this rank.
template <typename Version>
std::optional<Save> read_save(const Version& version, std::uint32_t rank) {
  std::optional<Save> save;
  if (version.names().empty()) return save;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto tensor = version.find(kNames[i]);
    if (!tensor || tensor->info().size_bytes != kSizes[i]) throw std::string("a tensor is missing");
    Bytes bytes(kSizes[i]);
    tensor->read(bytes);
    if (i == 0) std::memcpy(&save.emplace(), bytes.data(), sizeof(Save));
    if (bytes == value(rank, *save, i)) continue;
    throw fmt::format("tensor {} has not the bytes of save {}.{}", kNames[i], save->start,
                      save->count);
  }
  return save;
}

Shown look_at(const Shelf& shelf, std::uint32_t rank) {
  Shown shown;
  if (shelf.info().recovery.degraded) throw std::string("it is degraded, and no damage was done");
  shown.committed = read_save(shelf.at(shelf.version()), rank);
  const auto prepared = shelf.prepared();
  if (!prepared) return shown;
  if (prepared->id.size() != sizeof(Save)) throw std::string("a mark is nobody's");
  std::memcpy(&shown.prepared.emplace(), prepared->id.data(), sizeof(Save));
  if (read_save(shelf.at(prepared->version), rank) == shown.prepared) return shown;
  throw std::string("what is prepared is not what its mark says");
}

// The pages at the fixed places of a shelf.
class HeaderPages {
 public:
  HeaderPages(std::span<const std::byte> disk, unsigned slot_count)
      : disk_(disk),
        slot_count_(slot_count),
        seeds_(format::read_superblock(page(format::superblock_at(0)), 0).superblock->shelf_id) {}

  // Of a page that holds no whole record: all that the store takes from it, which is the word of a
  // root, or nothing.
  std::optional<std::uint64_t> left_in(std::uint64_t at) const {
    for (unsigned copy = 0; copy < format::kCopies; ++copy) {
      if (at == format::incarnation_at(copy)) {
        return nothing_unless(format::read_incarnation(page(at), seeds_, copy));
      }
      if (at == format::mark_at(copy)) {
        return nothing_unless(format::read_mark(page(at), seeds_, copy));
      }
      for (unsigned home = 0; home < slot_count_; ++home) {
        if (at == format::root_at(home, copy)) return left_of_root({home, copy, slot_count_});
      }
    }
    return std::nullopt;
  }

 private:
  template <typename Record>
  static std::optional<std::uint64_t> nothing_unless(const std::optional<Record>& record) {
    return record ? std::nullopt : std::optional<std::uint64_t>(0);
  }

  format::RawPage page(std::uint64_t at) const {
    return format::load<format::RawPage>(disk_.subspan(at).first<kPageBytes>());
  }

  std::optional<std::uint64_t> left_of_root(const format::RootPlace& place) const {
    const format::RawPage raw = page(format::root_at(place.home, place.copy));
    const std::uint64_t word = format::root_word(raw);
    const std::uint64_t next = word == format::kUnusedHomeWord
                                   ? place.home
                                   : format::word_version(word) + place.slot_count;
    const bool whole = format::blank_but_for_its_word(raw) ||
                       format::read_root(raw, seeds_, place) ||
                       format::read_described(raw, next, seeds_, place);
    return whole ? std::nullopt : std::optional(word);
  }

  std::span<const std::byte> disk_;
  unsigned slot_count_;
  format::Seeds seeds_;
};

// What `call` gives, or a shelf that is wrong.
template <typename Call>
Shown shown_by(Call call) {
  try {
    return call();
  } catch (const std::string& wrong) {
    return {{}, {}, wrong};
  } catch (const std::exception& error) {
    return {{}, {}, error.what()};
  }
}

}  // namespace

ShelfImages::ShelfImages(std::uint32_t rank, const MediumKind& medium, bool ahead)
    : rank_(rank), medium_(medium), ahead_(ahead), disk_(kDiskBytes) {
  crash::Log log;
  crash::RecordingMedium made(disk_, log, behaviour());
  Shelf::format(made, {.keep = 0, .in_flight = slot_count() - 1});
  crash::ReadSet reads;
  take(reads);
  disk_.rollback({});
}

crash::Behaviour ShelfImages::behaviour() const {
  return {.personality = medium_.personality, .max_size_bytes = kDiskBytes};
}

// Of the page of the disk at that index.
std::uint32_t ShelfImages::page_number(std::size_t index) {
  const auto page = disk_.bytes().subspan(index * kPageBytes, kPageBytes);
  if (index < loaded_.size()) {  // most are as they were
    const std::uint32_t before = loaded_[index];
    if (std::memcmp(page.data(), pages_[before].data(), kPageBytes) == 0) return before;
  }
  const std::string_view content(reinterpret_cast<const char*>(page.data()), kPageBytes);
  if (const auto known = page_numbers_.find(content); known != page_numbers_.end()) {
    return known->second;
  }
  const std::string& kept = pages_.emplace_back(content);
  return page_numbers_.emplace(kept, static_cast<std::uint32_t>(pages_.size() - 1)).first->second;
}

void ShelfImages::load(const Image& image) {
  disk_.rollback({});
  disk_.grow(image.size_bytes);
  disk_.make_room(image.room_bytes);
  for (std::size_t i = 0; i < image.pages.size(); ++i) {
    disk_.write(i * kPageBytes, std::as_bytes(std::span(pages_[image.pages[i]])));
  }
  loaded_ = image.pages;
}

// The image on the disk: opened, read, and put back.
ImageId ShelfImages::take(crash::ReadSet& reads) {
  const std::uint64_t fingerprint = disk_.fingerprint();
  const auto known = by_fingerprint_.find(fingerprint);
  const auto told = [&](ImageId id) {
    const std::vector<char>& read = images_[id].read;
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i] != 0) reads.add(i * kPageBytes, kPageBytes);
    }
    return id;
  };
  if (known != by_fingerprint_.end()) return told(known->second);
  ++counts_.recoveries;
  const crash::Disk::Mark mark = disk_.mark();
  crash::ReadSet own;
  Image image;
  image.shown = shown_by([&] {
    recovery_.clear();
    const Shelf shelf =
        Shelf::open(std::make_unique<crash::RecordingMedium>(disk_, recovery_, behaviour(), &own),
                    {.mode = Mode::update});
    return look_at(shelf, rank_);
  });
  disk_.rollback(mark);
  image.size_bytes = disk_.size_bytes();
  image.room_bytes = disk_.room_bytes();
  std::string key = std::to_string(image.room_bytes);
  const HeaderPages header(disk_.bytes(), slot_count());
  for (std::uint64_t at = 0; at < image.size_bytes; at += kPageBytes) {
    image.pages.push_back(page_number(at / kPageBytes));
    image.read.push_back(own.meets(at, kPageBytes) ? 1 : 0);
    if (image.read.back() == 0) continue;
    const auto said = header.left_in(at);
    key += said ? fmt::format(" left {:x}", *said) : fmt::format(" {}", image.pages.back());
  }
  const auto [at, fresh] = by_key_.try_emplace(key, static_cast<ImageId>(images_.size()));
  if (fresh) images_.push_back(std::move(image));
  by_fingerprint_.emplace(fingerprint, at->second);
  return told(at->second);
}

void ShelfImages::do_deed(Shelf& shelf, const Deed& deed) const {
  if (deed.kind == Deed::Kind::commit) {
    shelf.resolve(Decision::commit);
    return;
  }
  if (deed.kind == Deed::Kind::abandon) {
    shelf.resolve(Decision::abandon);
    if (ahead_) shelf.discard();  // what was staged behind it
    return;
  }
  stage(shelf, rank_, deed.save);
  shelf.prepare({}, id_of(deed.save));
  if (ahead_) stage(shelf, rank_, {deed.save.start, deed.save.count + 1});
}

const Done& ShelfImages::run(ImageId image, const std::vector<Deed>& deeds) {
  const std::pair key(image, deeds);
  const auto known = done_.find(key);
  return known != done_.end() ? known->second
                              : done_.emplace(key, run_anew(image, deeds)).first->second;
}

Done ShelfImages::run_anew(ImageId image, const std::vector<Deed>& deeds) {
  load(images_[image]);
  const crash::Disk::Mark begun = disk_.mark();
  crash::Log log;
  std::size_t first = 0;
  Done done;
  std::size_t end = 0;
  done.shown = shown_by([&] {
    Shelf shelf = Shelf::open(std::make_unique<crash::RecordingMedium>(disk_, log, behaviour()),
                              {.mode = Mode::update});
    for (const Deed& deed : deeds) {
      first = log.events.size();
      do_deed(shelf, deed);
    }
    log.events.emplace_back(crash::MarkEvent{});
    end = log.events.size();
    return look_at(shelf, rank_);
  });
  disk_.rollback(begun);
  if (end == 0) return done;  // it threw
  log.events.resize(end);     // what follows is the medium's own end
  const auto has_returned = [&](std::size_t event) { return event + 1 == end; };
  const auto visit = [&](const crash::CrashPoint& point, crash::ReadSet& reads) {
    (has_returned(point.event) ? done.behind : done.within).push_back(take(reads));
  };
  walk_images(disk_, log, {medium_.personality, false, medium_.cap, first}, has_returned, rng_,
              counts_, visit);
  for (auto* found : {&done.within, &done.behind}) {
    std::ranges::sort(*found);
    found->erase(std::unique(found->begin(), found->end()), found->end());
  }
  return done;
}

}  // namespace tensorshelf::group_test
