// Makes a shelf writable again that cannot be opened for writing any more, without what is lost of
// it. It has to be asked for, and is never part of opening: where a version that was acknowledged
// is lost, whoever owns it is to know. To look first: OpenOptions::salvage.
#pragma once

#include <filesystem>
#include <memory>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

namespace tensorshelf {

// Takes the lock. Where opening for writing would throw Errc::corrupt, it takes the newest version
// whose manifest is whole for the newest there is, wipes what is left of a later one, and gives out
// an incarnation above all before. Then, in any case, it verifies every chunk. A crash meanwhile
// leaves the shelf as it was, or repaired; doing it again is harmless.
//
// The options that count are tier, block, also, mirrors, without and progress. Throws Errc::corrupt
// where there is no version whose manifest is whole, or no superblock: then nothing was written.
// And whatever opening for writing throws besides (busy, truncated, read_only, ...).
RepairReport repair(const std::filesystem::path& path, const OpenOptions& options = {});
RepairReport repair(std::unique_ptr<Medium> medium, const OpenOptions& options = {});

}  // namespace tensorshelf
