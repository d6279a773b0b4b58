// Every medium that can be had here, one row each, as a test sees it: open it, open it again, and
// what it must promise. Real devices join by environment variable (they are overwritten!):
//   TENSORSHELF_TEST_FSDAX   a directory on a DAX file system
//   TENSORSHELF_TEST_DEVDAX  a DevDAX character device
//   TENSORSHELF_TEST_BLOCK   a block device
// Files go to TENSORSHELF_TEST_DIR, or where temporary files go.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "media/block/medium.hpp"
#include "media/media.hpp"
#include "media/memory/medium.hpp"
#include "media/pmem/medium.hpp"
#include "media/pool/medium.hpp"

namespace tensorshelf {

struct MediaRow {
  std::string name;
  std::string medium;  // what Promises::medium says
  bool mapped = false;
  std::vector<Survives> survives;        // any of these is right here
  std::vector<std::string> says = {};    // words that Promises::detail must have
  std::vector<std::string> omits = {};   // words that it must not have
  std::filesystem::path directory = {};  // for a file of each test's own
  std::filesystem::path device = {};     // or a device, which decides its size itself
  std::function<std::unique_ptr<Medium>(std::shared_ptr<ShelfFile>, OpenOptions, std::string note)>
      make;
  std::function<void(const std::filesystem::path&)> prepare = {};  // of a fixed size: makes it

  bool in_memory() const { return directory.empty() && device.empty(); }
  bool on_device() const { return !device.empty() || prepare; }  // its size is what it is
};

inline std::filesystem::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

constexpr std::uint64_t kPoolBytes = 16 * 1024 * 1024;

inline void prepare_pool(const std::filesystem::path& path) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  make_pool_medium(file, {.max_size_bytes = kPoolBytes})->barrier();
  file->publish(false);
}

inline void prepare_pool_set(const std::filesystem::path& path) {
  std::ofstream(path) << "PMEMPOOLSET\n16M " << path.native() << ".0\nREPLICA\n16M "
                      << path.native() << ".1\n";
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
  make_pool_medium(file, {.mode = Mode::create});
}

inline std::vector<MediaRow> media_rows() {
  const auto block = [](bool io_uring, bool direct) {
    return [=](std::shared_ptr<ShelfFile> file, OpenOptions options, std::string note) {
      options.block = {
          .buffer_bytes = 1 << 20, .queue_depth = 4, .io_uring = io_uring, .direct = direct};
      return make_block_medium(std::move(file), options, std::move(note));
    };
  };
  using enum Survives;
  std::filesystem::path files = environment_path("TENSORSHELF_TEST_DIR");
  if (files.empty()) files = std::filesystem::temp_directory_path();
  const std::vector<Survives> any_file = {process_crash, power_loss};  // a tmpfs or a disk

  const auto memory = [](const std::shared_ptr<ShelfFile>&, const OpenOptions& options,
                         const std::string&) {
    return make_memory_medium(0, options.max_size_bytes);
  };
  std::vector<MediaRow> rows = {
      {.name = "memory", .medium = "memory", .mapped = true, .survives = {nothing}, .make = memory},
  };
  for (const auto& [io_uring, direct] :
       {std::pair{true, true}, {false, true}, {true, false}, {false, false}}) {
    MediaRow row{.name = "block file",
                 .medium = "block",
                 .survives = any_file,
                 .directory = files,
                 .make = block(io_uring, direct)};
    if (!io_uring) row.name += ", pwrite", row.omits.emplace_back("io_uring");
    if (!direct) row.name += ", buffered", row.omits.emplace_back("O_DIRECT");
    rows.push_back(std::move(row));
  }
  const auto mapped = [](std::string name, Survives survives, std::string says) {
    return MediaRow{.name = std::move(name),
                    .medium = "pmem",
                    .mapped = true,
                    .survives = {survives},
                    .says = {std::move(says)},
                    .make = make_pmem_medium};
  };
  const auto pool = [](std::string name, std::vector<Survives> survives,
                       std::vector<std::string> says, const std::filesystem::path& directory) {
    return MediaRow{.name = std::move(name),
                    .medium = "pool",
                    .mapped = true,
                    .survives = std::move(survives),
                    .says = std::move(says),
                    .directory = directory,
                    .make = make_pool_medium,
                    .prepare = prepare_pool};
  };
  if (pmem_supported() && std::filesystem::is_directory("/dev/shm")) {
    MediaRow row = mapped("pmem tmpfs", process_crash, "tmpfs");
    row.directory = "/dev/shm";
    rows.push_back(row);
    row.name += ", room untouched";
    row.make = [](const std::shared_ptr<ShelfFile>& file, OpenOptions options,
                  const std::string& note) {
      options.zero_room = false;
      return make_pmem_medium(file, options, note);
    };
    rows.push_back(std::move(row));
  }
  if (pool_supported()) {
    rows.push_back(pool("pool", any_file, {"one replica"}, files));
    rows.push_back(pool("pool set of two replicas", any_file, {"2 replicas"}, files));
    rows.back().prepare = prepare_pool_set;
  }
  if (const auto path = environment_path("TENSORSHELF_TEST_FSDAX"); !path.empty()) {
    rows.push_back(mapped("pmem FS-DAX", power_loss, "FS-DAX"));
    rows.back().directory = path;
    if (pool_supported()) {
      rows.push_back(pool("pool FS-DAX", {power_loss}, {"with DAX", "one replica"}, path));
    }
  }
  if (const auto path = environment_path("TENSORSHELF_TEST_DEVDAX"); !path.empty()) {
    rows.push_back(mapped("pmem DevDAX", power_loss, "DevDAX"));
    rows.back().device = path;
  }
  if (const auto path = environment_path("TENSORSHELF_TEST_BLOCK"); !path.empty()) {
    rows.push_back({.name = "block device",
                    .medium = "block",
                    .survives = {power_loss},
                    .says = {"io_uring", "O_DIRECT"},
                    .device = path,
                    .make = block(true, true)});
  }
  return rows;
}

// One medium of a row, in a file of its own, which goes with it.
class MediumUnderTest {
 public:
  static constexpr std::uint64_t kCapBytes = 6 * 1024 * 1024;
  static constexpr const char* kNote = "chosen by a test";

  explicit MediumUnderTest(const MediaRow& row, std::uint64_t cap_bytes = kCapBytes)
      : row_(row), cap_bytes_(cap_bytes) {
    static int serial = 0;
    if (!row.device.empty()) {
      path_ = row.device;
    } else if (!row.in_memory()) {
      path_ = row.directory /
              ("tensorshelf_media_" + std::to_string(::getpid()) + "_" + std::to_string(++serial));
    }
    if (row.prepare) row.prepare(path_);
    reopen();
  }
  MediumUnderTest(const MediumUnderTest&) = delete;
  MediumUnderTest& operator=(const MediumUnderTest&) = delete;
  ~MediumUnderTest() {
    medium_.reset();
    std::error_code ignored;
    if (!row_.device.empty() || row_.in_memory()) return;
    std::filesystem::remove(path_, ignored);
    for (const char* part : {".0", ".1"}) {  // of a pool set
      std::filesystem::remove(path_.native() + part, ignored);
    }
  }

  GuardedMedium& operator*() { return *medium_; }
  GuardedMedium* operator->() { return medium_.get(); }
  const std::filesystem::path& path() const { return path_; }

  // Closes the medium and its file, and opens them again.
  void reopen() {
    medium_.reset();
    medium_ = std::make_unique<GuardedMedium>(
        row_.make(open_file(), {.max_size_bytes = cap_bytes_}, kNote));
  }

 private:
  std::shared_ptr<ShelfFile> open_file() const {
    if (row_.in_memory()) return nullptr;
    if (std::filesystem::exists(path_)) {
      return std::make_shared<ShelfFile>(ShelfFile::open(path_, true));
    }
    auto file = std::make_shared<ShelfFile>(ShelfFile::create(path_));
    file->publish(false);
    return file;
  }

  const MediaRow row_;
  const std::uint64_t cap_bytes_;
  std::filesystem::path path_;
  std::unique_ptr<GuardedMedium> medium_;
};

}  // namespace tensorshelf
