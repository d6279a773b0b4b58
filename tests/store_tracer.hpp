// Runs calls one CPU instruction at a time and keeps what a power loss would leave of some mapped
// bytes. It watches the machine code itself, so no seam in the code under test is needed, and the
// code is the one that is released: kernels, libpmem2, fences.
//
//   ordinary store        in the cache; durable if the caches are (eADR)
//   streaming store       on its way, durable after a fence of the same thread
//   clwb, clflush[opt]    the same for the line, as it is then
//   sfence, mfence        drains what its own thread has on the way, no other's (I7)
//
// x86-64 without sanitizers alone: by the processor's trap flag and SIGTRAP.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace tensorshelf::testing {

enum class Caches { lost, kept };  // at a power loss: ADR, eADR

class StoreTracer {
 public:
  static bool supported();

  // All of `watched` is durable now.
  StoreTracer(std::span<const std::byte> watched, Caches caches);
  StoreTracer(const StoreTracer&) = delete;
  ~StoreTracer();

  // Traces the call in this thread. Threads take turns.
  void run(const std::function<void()>& call);

  std::span<const std::byte> durable() const;  // what a power loss would leave now

  struct Counts {
    std::size_t stores = 0;  // ordinary ones that changed something
    std::size_t streams = 0;
    std::size_t flushes = 0;
    std::size_t fences = 0;
    std::size_t largest_store = 0;  // in bytes, from the first to the last that it changed
  };
  Counts counts() const;  // since the last reset
  void reset_counts();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensorshelf::testing
