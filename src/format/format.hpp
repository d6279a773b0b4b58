// Meaning of the bytes in layout.hpp: checksums, encoding, validation. No I/O, no state.
// What comes from a medium is a Page; what has been validated is a struct. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tensorshelf/tensor.hpp>

#include "format/layout.hpp"

namespace tensorshelf::format {

// Seeds of checksums: the shelf, folded once, and what is checked within it.
class Seeds {
 public:
  explicit Seeds(const ShelfId& id);
  std::uint64_t page(std::uint64_t at) const;
  std::uint64_t chunk(std::uint64_t tensor_id, std::uint64_t chunk_index) const;

 private:
  std::uint64_t shelf_;
};

Superblock new_superblock(const ShelfId& id);
Page encode_superblock(Superblock superblock, unsigned copy);
enum class SuperblockState { good, damaged, newer, foreign, zero };
struct SuperblockRead {
  SuperblockState state;
  Superblock superblock;  // meaningful when good; format_version also when newer
};
SuperblockRead read_superblock(const Page& page, unsigned copy);

Page encode_incarnation(std::uint64_t incarnation, const Seeds& seeds, unsigned copy);
std::optional<std::uint64_t> read_incarnation(const Page& page, const Seeds& seeds, unsigned copy);
std::optional<std::uint64_t> read_incarnation(const IncarnationRecord& record, const Seeds& seeds,
                                              unsigned copy);

// Sets root.checksum for the copy at (home, copy), over root.word as it will be after the flip.
void seal_root(Root& root, const Seeds& seeds, unsigned copy);
// The root, when the checksum and every bound that needs no other page hold.
std::optional<Root> read_root(const Page& page, const Seeds& seeds, unsigned home, unsigned copy);
std::uint64_t root_word(const Page& page);

Page as_page(const Root& root);

// A tensor as its record describes it.
struct TensorLayout {
  std::uint64_t tensor_id = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t first_cell = 0;
  std::array<std::uint64_t, kSlots> slot_at = {};
  DType dtype = DType::uint8;
  std::string name;
  std::vector<std::int64_t> shape;

  std::uint64_t chunk_count() const { return (size_bytes + kChunkBytes - 1) / kChunkBytes; }
  std::uint64_t cell_count() const { return 1 + chunk_count(); }
  Extent slot(unsigned index) const { return {slot_at[index], size_bytes}; }
};

Page empty_page(PageKind kind, std::uint32_t index);
PageHead page_head(const Page& page);
// False where the record does not fit into what is left of the page.
bool append_record(Page& page, const TensorLayout& layout);
void remove_record(Page& page, std::uint64_t tensor_id);
// Every record of a page whose checksum already held; nothing where a record cannot be believed,
// with the reason.
std::optional<std::vector<TensorLayout>> read_records(const Page& page, std::string& reason);

std::uint64_t cell(const Page& page, unsigned index);
void set_cell(Page& page, unsigned index, std::uint64_t value);
PageRef directory_ref(const Page& page, unsigned index);
void set_directory_ref(Page& page, unsigned index, const PageRef& ref);

// Where tensor names may come from users and from hostile files alike: 1 to kMaxNameBytes of valid
// UTF-8 without NUL. Returns what is wrong, or nothing.
std::optional<std::string> name_problem(std::string_view name);

}  // namespace tensorshelf::format
