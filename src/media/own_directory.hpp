// A call that may change the working directory, without the process noticing.
//
// libpmem2 and libpmemobj ask sysfs for the platform's flush domain whenever they map, by a walk
// with fts(3) that changes the directory and changes it back (1.12, auto_flush_linux.c). Any other
// thread's relative path leads elsewhere meanwhile, and two walks at once can leave the process in
// sysfs for good.
#pragma once

#include <functional>

namespace tensorshelf {

// Returns when `call` has, on a thread that has a working directory of its own, and throws what it
// threw. Where the system grants no such thread (some sandboxes refuse unshare(2)), one call at a
// time: then the directory does change for a moment, and is always changed back.
void in_own_directory(const std::function<void()>& call);

}  // namespace tensorshelf
