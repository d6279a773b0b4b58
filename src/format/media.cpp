// Media beside the first: what a version says of them, and what each bears itself (format.hpp).
#include <algorithm>
#include <bit>
#include <string_view>

#include "base/copy_hash.hpp"
#include "format/bytes.hpp"
#include "format/format.hpp"

namespace tensorshelf::format {

MediumSet TensorLayout::media() const {
  MediumSet media;
  for (const std::uint64_t at : slot_at) media.add(medium_of(at));
  return media;
}

Page media_page(const MediaTable& media, std::uint64_t path_hash) {
  TENSORSHELF_ASSERT(media.size() <= kFurtherMedia);
  Page page = empty_page(PageKind::media, 0);
  std::size_t offset = offsetof(MediaPage, media);
  for (const MediumLayout& medium : media) {
    MediumEntry entry{};
    entry.medium_id = medium.id;
    entry.capacity_bytes = medium.capacity_bytes;
    entry.index = medium.index;
    if (medium.mirrors) entry.mirrors = static_cast<std::uint16_t>(*medium.mirrors + 1);
    if (medium.path.size() <= kMaxPathBytes) {
      entry.path_bytes = static_cast<std::uint16_t>(medium.path.size());
      std::copy(medium.path.begin(), medium.path.end(), entry.path.begin());
    }
    store(page, entry, offset);
    offset += sizeof entry;
  }
  store(page, path_hash, offsetof(MediaPage, path_hash));
  return page;
}

std::uint64_t path_hash(const Page& page) {
  return load<std::uint64_t>(page, offsetof(MediaPage, path_hash));
}

namespace {

// Each mirrors one that is there and mirrors none, and no other does that, too.
bool mirrors_make_sense(const MediaTable& media) {
  MediumSet mirrored;
  for (const MediumLayout& one : media) {
    if (!one.mirrors) continue;
    const auto of = std::find_if(media.begin(), media.end(), [&](const MediumLayout& other) {
      return other.index == *one.mirrors && !other.mirrors;
    });
    if (*one.mirrors != 0 && of == media.end()) return false;
    if (mirrored.has(*one.mirrors)) return false;
    mirrored.add(*one.mirrors);
  }
  return true;
}

}  // namespace

bool read_media(const Page& page, MediaTable& media, std::string& reason) {
  media.clear();
  for (unsigned i = 0; i < kFurtherMedia; ++i) {
    const auto entry =
        load<MediumEntry>(page, offsetof(MediaPage, media) + i * sizeof(MediumEntry));
    if (entry.index == 0) continue;
    if (entry.index >= kMaxMedia || (!media.empty() && entry.index <= media.back().index) ||
        entry.path_bytes > kMaxPathBytes || entry.mirrors > kMaxMedia ||
        entry.capacity_bytes % kPageBytes != 0 || entry.capacity_bytes < kMediumHeapAt ||
        entry.capacity_bytes >= kMaxMediumBytes) {
      reason = "what it says of its media is impossible";
      return false;
    }
    media.push_back({entry.index,
                     entry.medium_id,
                     entry.capacity_bytes,
                     std::string(entry.path.data(), entry.path_bytes),
                     {}});
    if (entry.mirrors != 0) media.back().mirrors = entry.mirrors - 1U;
  }
  if (mirrors_make_sense(media)) return true;
  reason = "what it says of mirrors is impossible";
  return false;
}

namespace {

std::uint64_t header_checksum(const MediumHeader& header, unsigned copy) {
  return hash_bytes(std::as_bytes(std::span(&header, 1)).first(offsetof(MediumHeader, checksum)),
                    medium_header_at(copy));
}

}  // namespace

MediumHeader sealed(MediumHeader header, unsigned copy) {
  header.magic = kMediumMagic;
  header.format_version = kFormatVersion;
  header.checksum = header_checksum(header, copy);
  return header;
}

Page encode_medium_header(const MediumHeader& header, unsigned copy) {
  Page page;
  store(page, sealed(header, copy));
  return page;
}

std::optional<MediumHeader> read_medium_header(const RawPage& page, unsigned copy) {
  const auto header = load<MediumHeader>(page);
  if (header.magic != kMediumMagic || header.checksum != header_checksum(header, copy)) {
    return std::nullopt;
  }
  if (header.index == 0 || header.index >= kMaxMedia) return std::nullopt;
  return header;
}

std::optional<unsigned> mirrored_by(const MediumHeader& header) {
  const auto of = static_cast<unsigned>(header.incompat_features >> 8U);
  if (header.incompat_features != mirror_features(of) || of >= kMaxMedia) return std::nullopt;
  return of;
}

bool may_be_torn_header(const RawPage& page, const ShelfId& shelf_id) {
  if (!all_zero(std::span(page.bytes).subspan(sizeof(MediumHeader)))) return false;
  const auto header = load<MediumHeader>(page);
  const auto shows = [&](const auto& found, const auto& whole) {  // 8 bytes, landed or not
    return std::equal(found.begin(), found.begin() + 8, whole.begin()) ||
           std::all_of(found.begin(), found.begin() + 8, [](auto byte) { return byte == 0; });
  };
  const auto half = [](const ShelfId& id, std::size_t at) { return std::span(id).subspan(at, 8); };
  return shows(header.magic, kMediumMagic) &&
         (header.incompat_features == 0 || mirrored_by(header)) &&
         shows(half(header.shelf_id, 0), half(shelf_id, 0)) &&
         shows(half(header.shelf_id, 8), half(shelf_id, 8));
}

bool has_headers_at_most(std::span<const std::byte> bytes) {
  std::size_t from = 0;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const std::size_t header = std::min<std::size_t>(medium_header_at(copy), bytes.size());
    if (!all_zero(bytes.subspan(from, header - from))) return false;
    from = std::min<std::size_t>(medium_stamp_at(copy) + sizeof(MediumStamp), bytes.size());
  }
  return all_zero(bytes.subspan(from));
}

std::uint64_t medium_stamp(const ShelfId& medium_id, std::uint64_t version) {
  return tagged_word(version, hash_bytes(std::as_bytes(std::span(medium_id)), version));
}

Page encode_stamp(const MediumStamp& stamp) {
  Page page;
  store(page, stamp);
  return page;
}

std::uint64_t opening_of(const Root& attempt) {
  const std::array<std::uint64_t, 2> words = {attempt.incarnation, attempt.time_ns};
  return hash_bytes(std::as_bytes(std::span(words)), 0) | 1U;
}

std::optional<std::uint64_t> stamped_version(const ShelfId& medium_id, const RawStamp& stamp) {
  const auto word = std::bit_cast<std::uint64_t>(stamp.bytes);
  const std::uint64_t version = word_version(word);
  if (word != medium_stamp(medium_id, version)) return std::nullopt;
  return version;
}

}  // namespace tensorshelf::format
