// What the tests of the mapped medium share: where files can be mapped, opening them, and bytes to
// put there.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/copy_hash.hpp"
#include "media/file.hpp"
#include "media/pmem/medium.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

namespace tensorshelf::testing {

inline constexpr std::uint64_t kMebibyte = 1024 * 1024;
inline constexpr const char* kTmpfs = "/dev/shm";

// Each place whose files can be mapped.
inline std::vector<std::string> mapped_places() {
  if (!pmem_supported()) return {};
  std::vector<std::string> places = {kTmpfs};
  if (const char* dax = ::getenv("TENSORSHELF_TEST_FSDAX")) places.emplace_back(dax);
  return places;
}

inline std::shared_ptr<ShelfFile> open_file(const std::filesystem::path& path,
                                            bool writable = true) {
  if (!std::filesystem::exists(path)) scratch::put(path, "");
  return std::make_shared<ShelfFile>(ShelfFile::open(path, writable));
}

inline bool mentions(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return contains(note, part); });
}

// A shelf on tmpfs whose new room is not touched ahead.
inline std::unique_ptr<Medium> made_by_file(const std::filesystem::path& path) {
  OpenOptions options;
  options.zero_room = false;
  auto medium = make_pmem_medium(open_file(path), options);
  medium->reserve(4 * kMebibyte);
  return medium;
}

// Whether checksums are of the bytes that lie there, though the caller's change meanwhile.
inline bool hashes_what_it_writes(Medium& medium) {
  std::vector<std::atomic<std::uint64_t>> words(kMebibyte / 8);  // the caller's
  const std::span<const std::byte> source(reinterpret_cast<const std::byte*>(words.data()),
                                          kMebibyte);
  std::atomic<bool> ended = false;
  std::atomic<std::uint64_t> stores = 0;
  std::thread other([&] {
    while (!ended) {
      const std::uint64_t now = ++stores;
      words[now % words.size()].store(now);
    }
  });
  bool right = true;
  // A round in which the other did not run shows nothing: beside other work many are such.
  for (int rounds = 0, shown = 0; shown < 50 && rounds < 100'000 && right; ++rounds) {
    const std::uint64_t before = stores;
    const auto ticket = medium.write(0, source, 7);
    shown += stores - before > 1000;
    right = hash_bytes(medium.view({0, kMebibyte}), 7) == ticket.checksum;
  }
  ended = true;
  other.join();
  return right;
}

class Variable {  // of the environment, for one scope
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// The mapping of the file that the medium writes through, which it shows to nobody.
inline std::span<std::byte> work_mapping(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(path.native()) || line.find("rw-s") == std::string::npos) continue;
    unsigned long begin = 0;
    unsigned long end = 0;
    REQUIRE(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2);
    return {reinterpret_cast<std::byte*>(begin), end - begin};
  }
  FAIL("no writable mapping of " << path);
  return {};
}

}  // namespace tensorshelf::testing
