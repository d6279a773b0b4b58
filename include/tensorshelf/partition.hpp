// Who writes what of the state that data-parallel ranks hold alike: parameters and optimizer state.
// Nothing is sent. Ranks that compute this from the same numbers agree.
//
//     const auto writers = choose_writers(places, WriterSet::per_node);
//     const Partition partition(sizes, writers.size());
//     for (const Piece& piece : partition.of(mine)) ...
//
// The split within tensors, balanced whatever their sizes, is FastPersist's (Wang et al., 2024).
// Here it is cut at blocks, so that a medium writes no block in two halves, and each writer begins
// its pieces at an aligned place.
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
  // Splits tensors of these sizes, in bytes, in this order. What is shared out evenly are blocks,
  // for a medium writes whole ones: a partial block at a tensor's end counts as one, and an empty
  // tensor as one. Errc::bad_argument for 0 writers or more than 2^31, for a block that is 0 or no
  // multiple of kPageBytes, and where the blocks come to more than 2^63 bytes.
  Partition(std::span<const std::uint64_t> size_bytes, std::size_t writers,
            std::uint64_t block_bytes = kPageBytes);

  // Below, a writer is 0 to writers() - 1, and a tensor a number of the sizes: others are asserts.
  std::size_t writers() const { return writers_; }
  std::uint64_t blocks() const { return first_block_.back(); }
  // No writer has more than one block more than another.
  std::uint64_t blocks_of(std::size_t writer) const { return begin(writer + 1) - begin(writer); }

  // The pieces of a writer, in the order of the tensors, with one of each tensor at most. Each byte
  // is in exactly one piece of one writer, and an empty tensor is one piece without bytes.
  std::vector<Piece> of(std::size_t writer) const;
  // The writer whose piece has this byte; for an empty tensor, and offset 0, who has its piece.
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

// - every_rank   Where ranks have drives of their own, or one writer cannot fill a drive.
// - per_socket   Where each socket has its own memory and bus to the drives.
// - per_node     Where a node has one drive, which one writer fills.
enum class WriterSet { every_rank, per_socket, per_node };

// The ranks that write, rising: all of them, or the lowest of each socket, or of each node.
std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, WriterSet set);
// `count` of the ranks, rising. Nodes are served in turn, and so are the sockets of each node: no
// node or socket has two writers while another has none. Errc::bad_argument for 0, and for more
// than there are ranks.
std::vector<std::size_t> choose_writers(std::span<const RankPlace> ranks, std::size_t count);

// Which writers hold the copies of each writer's share. The copies of a share are on different
// nodes, so that the loss of a node takes at most one of them. Every writer holds equally many.
class Copies {
 public:
  // node_of_writer[w] is the node of writer w. Errc::bad_argument for 0 copies, and where one node
  // has more than writers / copies of the writers, for then no placement is even.
  Copies(std::span<const std::uint32_t> node_of_writer, std::size_t copies);

  std::size_t copies() const { return copies_; }
  // The writers that hold the share of writer `share`: first that one itself.
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
