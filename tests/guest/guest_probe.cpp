// Shows that the guest is what run.sh says, with system calls alone and none of the library:
// MAP_SYNC on the DAX mount and on the DevDAX device, O_DIRECT on the NVMe drive. When the media
// tests fail in the guest and this does not, the fault is ours.
//
//   guest_probe write SEED   fills a block on each medium, makes it durable, prints WRITTEN, and
//                            then writes on, elsewhere, until it is killed
//   guest_probe check SEED   reads the blocks back; status 0 where every byte is that of SEED
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace {

constexpr std::size_t kBlockBytes = std::size_t{2} << 20;  // also the alignment of DevDAX
constexpr std::size_t kMediumBytes = 2 * kBlockBytes;      // the durable block, the one written on

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "guest_probe: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) fail(std::string(name) + " is not set");
  return value;
}

std::uint64_t word_of(std::uint64_t seed, std::size_t index) {
  return (seed + index) * 0x9e3779b97f4a7c15u;
}

void fill(std::uint64_t* words, std::uint64_t seed) {
  for (std::size_t i = 0; i < kBlockBytes / 8; ++i) words[i] = word_of(seed, i);
}

bool holds(const std::uint64_t* words, std::uint64_t seed) {
  for (std::size_t i = 0; i < kBlockBytes / 8; ++i) {
    if (words[i] != word_of(seed, i)) return false;
  }
  return true;
}

// One cache line to the medium, and the wait for all of them.
#if defined(__x86_64__)
void flush(const void* line) { _mm_clflush(line); }
void drain() { _mm_sfence(); }
#elif defined(__aarch64__)
void flush(const void* line) { asm volatile("dc cvac, %0" : : "r"(line) : "memory"); }
void drain() { asm volatile("dsb sy" : : : "memory"); }
#else
#error "guest_probe cannot flush the cache of this CPU"
#endif

// A file on the DAX mount or the DevDAX device; MAP_SYNC is refused where DAX is not real.
class Mapped {
 public:
  Mapped(const std::string& path, bool is_file) : path_(path) {
    const int fd = ::open(path.c_str(), is_file ? O_RDWR | O_CREAT : O_RDWR, 0600);
    if (fd < 0) fail(path);
    if (is_file && ::posix_fallocate(fd, 0, kMediumBytes) != 0) fail("posix_fallocate " + path);
    void* mapping = ::mmap(nullptr, kMediumBytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (mapping == MAP_FAILED) fail("mmap with MAP_SYNC of " + path);
    words_ = static_cast<std::uint64_t*>(mapping);
    ::close(fd);
  }

  void write(std::size_t block, std::uint64_t seed) {
    std::uint64_t* words = words_ + block * kBlockBytes / 8;
    fill(words, seed);
    for (std::size_t i = 0; i < kBlockBytes / 8; i += 8) flush(words + i);
    drain();
  }
  bool check(std::uint64_t seed) const { return holds(words_, seed); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::uint64_t* words_;
};

class Block {
 public:
  explicit Block(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_DIRECT)), buffer_(new Aligned) {
    if (fd_ < 0) fail("O_DIRECT open of " + path);
  }

  void write(std::size_t block, std::uint64_t seed) {
    fill(buffer_->words.data(), seed);
    const auto at = static_cast<off_t>(block * kBlockBytes);
    if (::pwrite(fd_, buffer_->words.data(), kBlockBytes, at) != ssize_t{kBlockBytes}) {
      fail("pwrite to " + path_);
    }
    if (::fdatasync(fd_) != 0) fail("fdatasync of " + path_);
  }
  bool check(std::uint64_t seed) const {
    if (::pread(fd_, buffer_->words.data(), kBlockBytes, 0) != ssize_t{kBlockBytes}) {
      fail("pread of " + path_);
    }
    return holds(buffer_->words.data(), seed);
  }
  const std::string& path() const { return path_; }

 private:
  struct alignas(4096) Aligned {
    std::array<std::uint64_t, kBlockBytes / 8> words;
  };

  std::string path_;
  int fd_;
  std::unique_ptr<Aligned> buffer_;
};

int check(bool ok, const std::string& path) {
  std::printf("%s %s\n", ok ? "INTACT" : "DIFFERS", path.c_str());
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 3 ? argv[1] : "";
  if (verb != "write" && verb != "check") {
    std::fprintf(stderr, "usage: guest_probe write|check SEED\n");
    return 2;
  }
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 0);
  Mapped fsdax(environment("TENSORSHELF_TEST_FSDAX") + "/guest_probe", true);
  Mapped devdax(environment("TENSORSHELF_TEST_DEVDAX"), false);
  Block nvme(environment("TENSORSHELF_TEST_BLOCK"));

  if (verb == "check") {
    return check(fsdax.check(seed), fsdax.path()) | check(devdax.check(seed), devdax.path()) |
           check(nvme.check(seed), nvme.path());
  }
  fsdax.write(0, seed);
  devdax.write(0, seed);
  nvme.write(0, seed);
  std::printf("WRITTEN seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (std::uint64_t other = seed + 1;; ++other) {
    fsdax.write(1, other);
    devdax.write(1, other);
    nvme.write(1, other);
  }
}
