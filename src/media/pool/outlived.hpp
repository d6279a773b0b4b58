// libpmemobj trusts what it keeps in a pool: where that is damaged, a call into it may touch memory
// that is not there, or abort(). Here that ends the call, and not the process.
#pragma once

#include <functional>

namespace tensorshelf {

// Runs `call`, and throws what it throws. False where a fault ended it in the middle, without a
// destructor run: what it held, memory, descriptors and locks on files, the process holds until it
// ends. One at a time. Handlers of SIGSEGV, SIGBUS, SIGFPE and SIGABRT are put back before it
// returns; a fault of another thread meanwhile finds the one that was there.
[[nodiscard]] bool outlived(const std::function<void()>& call);

}  // namespace tensorshelf
