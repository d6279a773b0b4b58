// Who writes what of the state that data-parallel ranks hold alike: parameters and optimizer state.
// Nothing is sent. Ranks that compute this from the same numbers agree.
//
//     const auto writers = choose_writers(places, WriterSet::per_node);
//     const Partition partition(sizes, writers.size());
//     for (const Piece& piece : partition.of(mine)) ...
//
// The split at any byte of any tensor, balanced whatever their sizes, is FastPersist's (Wang et
// al., 2024, section 4.2: "byte granularity"). Here it is cut at blocks, so that a medium writes no
// block in two halves, and each writer begins its pieces at an aligned place.
//
// Values: const calls from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tensorshelf/extent.hpp>

namespace tensorshelf {

// A part of a tensor.
struct Piece {
  std::size_t tensor = 0;        // its number among the sizes
  std::uint64_t offset = 0;      // in bytes, within the tensor; a multiple of the block
  std::uint64_t size_bytes = 0;  // a multiple of the block, but at the tensor's end

  friend bool operator==(const Piece&, const Piece&) = default;
};

class Partition {
 public:
  // Of tensors of those sizes, in bytes and in that order. A tensor counts as its blocks, the last
  // of them whole, and one where it is empty: so a medium writes it, which pads to its own blocks.
  // Errc::bad_argument where there is no writer, where the block is no multiple of kPageBytes, and
  // beyond 2^63 bytes in all.
  Partition(std::span<const std::uint64_t> size_bytes, std::size_t writers,
            std::uint64_t block_bytes = kPageBytes);

  std::size_t writers() const { return writers_; }
  std::uint64_t blocks() const { return first_block_.back(); }
  // No writer has more than one block more than another.
  std::uint64_t blocks_of(std::size_t writer) const { return begin(writer + 1) - begin(writer); }

  // What the writer writes: at most one piece of a tensor, in their order. All bytes of all tensors
  // are in exactly one piece of one writer; a tensor without bytes is one piece without bytes.
  std::vector<Piece> of(std::size_t writer) const;
  // Who writes that byte of a tensor; of one without bytes, who writes that piece, for offset 0.
  std::size_t writer_of(std::size_t tensor, std::uint64_t offset) const;

 private:
  std::uint64_t begin(std::size_t writer) const;  // its first block

  std::vector<std::uint64_t> size_bytes_;
  std::vector<std::uint64_t> first_block_;  // of each tensor, and behind the last
  std::size_t writers_;
  std::uint64_t block_bytes_;
};

// Where a rank runs; the numbers are only compared.
struct RankPlace {
  std::uint32_t node = 0;
  std::uint32_t socket = 0;  // within the node
};

// A writer per node leaves it its drives alone; one per socket keeps to its memory and its bus; all
// ranks write where each has a drive of its own, or a writer cannot fill one.
enum class WriterSet { every_rank, per_socket, per_node };

// The ranks that write, rising: of each socket, or node, the lowest.
std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, WriterSet set);
// So many of them. Nodes take turns, and on each its sockets, so that no drive or bus has two while
// another has none. Errc::bad_argument for none, or more than there are ranks.
std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, std::size_t count);

// Each writer's share lies with several, no two of them on one node, and each holds as many shares:
// the loss of a node takes one copy of a share at most.
class Copies {
 public:
  // Errc::bad_argument for no copies, and where a node has more than one in `copies` of the
  // writers: then some share would have two copies there, or some writer more shares than another.
  Copies(std::span<const std::uint32_t> node_of_writer, std::size_t copies);

  std::size_t copies() const { return copies_; }
  // The writers that hold the share: first the one whose it is.
  std::vector<std::size_t> holders(std::size_t share) const;
  // The shares that the writer holds: first its own.
  std::vector<std::size_t> shares(std::size_t writer) const;

 private:
  std::size_t shifted(std::size_t writer, std::size_t places) const;

  std::vector<std::size_t> by_node_;   // writers, those of a node side by side
  std::vector<std::size_t> place_of_;  // of each writer among them
  std::size_t copies_;
};

}  // namespace tensorshelf
