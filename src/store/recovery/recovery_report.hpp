// What an opening says of itself.
#pragma once

#include <tensorshelf/report.hpp>

#include "store/io/purpose.hpp"

namespace tensorshelf {

struct Choice;
struct RootScan;
struct ShelfHead;
struct Unread;

Recovery report_of(const Choice& choice, const RootScan& scan, const ShelfHead& head,
                   Purpose purpose);
// What could not be read is of interest beyond the shelf: the drive may be failing.
void note_unread(Recovery& report, const Unread& unread);

}  // namespace tensorshelf
