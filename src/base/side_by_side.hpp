// One piece of work in many parts, done by several threads that live no longer than it. There is no
// pool: nothing is left that a forked child would miss, or that somebody must end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tensorshelf {

// What is done with each part, by its number. Refers to what was given, and needs no memory.
class PartJob {
 public:
  template <class Call>
  requires(!std::is_same_v<std::remove_const_t<Call>, PartJob>) explicit PartJob(Call& call)
      : context_(std::addressof(call)),
        call_([](void* context, std::size_t part) { (*static_cast<Call*>(context))(part); }) {}

  void operator()(std::size_t part) const { call_(context_, part); }

 private:
  void* context_;
  void (*call_)(void*, std::size_t);
};

// Does the job for each part below `parts` once, on up to so many threads, of which the calling one
// is one; where no more can be started, on those there are. Once one of them has thrown no further
// part is begun, and when all have ended that is thrown here. The others hear no signal but those
// of their own faults: Ctrl-C is for who called.
void side_by_side(unsigned threads, std::size_t parts, PartJob job);

inline constexpr unsigned kMostThreads = 64;
// As many as this process has CPUs, which may be fewer than there are, but two at most: more were
// not measured.
unsigned default_threads();

// Whether a thread pays, and how they share. The crash explorer and tests choose otherwise while no
// shelf is open: small tensors, in an order that can be had again.
struct Sharing {
  // Starting and joining a thread takes some tens of microseconds, in which some hundred KiB are
  // copied: at 8 MiB each, that is a small part of what it saves.
  std::uint64_t bytes_each = std::uint64_t{8} << 20;
  void (*share)(unsigned threads, std::size_t parts, PartJob job) = side_by_side;
};
inline Sharing sharing;

}  // namespace tensorshelf
