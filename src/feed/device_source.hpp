// Pieces of a device's memory into an assignment: copied into the shelf, or lent to a medium that
// writes them from where the device put them, so that each byte moves once.
#pragma once

#include <cstdint>
#include <functional>

#include "feed/device_copy.hpp"

namespace tensorshelf {

class Assignment;

// 0 is the measured default. Where pieces are lent more of them are of use: while one arrives and
// one is hashed, the medium has the others.
PieceRing ring_for(bool takes_lent, unsigned pieces = 0, std::uint64_t piece_bytes = 0);

// The whole source, to byte `offset` of the tensor on. `copied` is told how many bytes were
// assigned, piece by piece. All pieces are back when it returns or throws.
void assign_in_pieces(Assignment& assignment, DeviceCopy& copy, std::uint64_t size_bytes,
                      std::uint64_t offset, const std::function<void(std::uint64_t)>& copied = {});

}  // namespace tensorshelf
