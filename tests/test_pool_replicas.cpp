// Replicas of a pool: alike behind each barrier and word, and after a crash once a writer has
// opened it. On tmpfs. Also built with the medium's planted bugs (TENSORSHELF_PLANTED_BUGS): each
// must be found.
#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/planted.hpp"
#include "bytes.hpp"
#include "catch.hpp"
#include "media/media.hpp"
#include "media/pool/medium.hpp"
#include "scratch.hpp"
#include "tensorshelf/shelf.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kHeap = 4 << 20;  // headers differ, and lanes while they are used

class Replicas {
 public:
  Replicas() {
    scratch::put(dir_ / "run.set",
                 fmt::format("PMEMPOOLSET\n16M {0}/a\nREPLICA\n16M {0}/b\n", dir_.path().native()));
  }

  std::unique_ptr<Medium> open(Mode mode) const {
    OpenOptions options;
    options.mode = mode;
    return make_pool_medium(
        std::make_shared<ShelfFile>(ShelfFile::open(dir_ / "run.set", mode != Mode::read)),
        options);
  }
  Shelf shelf() const { return Shelf::open(dir_ / "run.set", {}); }
  bool alike() const {
    return std::string_view(scratch::contents(dir_ / "a")).substr(kHeap) ==
           std::string_view(scratch::contents(dir_ / "b")).substr(kHeap);
  }
  void spoil_second(std::string_view text) const {
    std::fstream file(dir_ / "b", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(9 << 20);
    file << text;
  }

 private:
  scratch::Directory dir_{"/dev/shm"};
};

// Empty, or what was found.
std::string differences() {
  const Replicas replicas;
  {
    const auto medium = replicas.open(Mode::create);
    for (std::uint64_t round = 1; round <= rounds(8); ++round) {
      const Bytes bytes = pattern(5000, round);
      medium->wait(medium->write(round * 8192, bytes, 0));
      medium->barrier();
      if (!replicas.alike()) return "behind a write and a barrier";
      medium->store_word(round * 8192 + 16, round);
      medium->barrier();
      if (!replicas.alike()) return "behind a word and a barrier";
    }
  }
  const int status = scratch::in_child([&] {  // killed while it has the pool open
    const auto medium = replicas.open(Mode::update);
    replicas.spoil_second("only here");
    ::raise(SIGKILL);
    return true;
  });
  if (!WIFSIGNALED(status)) return "nobody died";
  if (replicas.alike()) return "nothing was spoiled";
  replicas.open(Mode::read);
  if (replicas.alike()) return "a reader wrote";
  replicas.open(Mode::update);
  return replicas.alike() ? "" : "behind the opening after a crash";
}

}  // namespace

#ifdef TENSORSHELF_PLANTED_BUGS

TEST_CASE("each planted bug of replicas is found", "[pool]") {
  REQUIRE(differences().empty());
  for (const Bug bug : {Bug::replica_not_written, Bug::replica_word_left, Bug::replicas_left_apart,
                        Bug::replicas_apart_unnoted}) {
    CAPTURE(static_cast<int>(bug));
    planted_bug = bug;
    const std::string found = differences();
    planted_bug = Bug::none;
    CHECK_FALSE(found.empty());
  }
}

#else

TEST_CASE("replicas are alike behind a barrier, and after a crash once it is opened", "[pool]") {
  CHECK(differences().empty());
}

TEST_CASE("a shelf's replicas are alike behind each commit", "[pool]") {
  const Replicas replicas;
  Shelf shelf = replicas.shelf();
  TensorRef tensor = shelf.create("x", DType::uint8, {{5000}});
  for (std::uint64_t step = 1; step <= rounds(8); ++step) {
    tensor.write(pattern(5000, step));
    shelf.persist(step);
    const bool same = replicas.alike();
    REQUIRE(same);
  }
}

#endif
