// The contract of src/media/file.hpp: one writer, names that appear whole or not at all, and an
// error that says what to do for each thing that a path can turn out to be.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "media/file.hpp"
#include "media/file_lock.hpp"
#include "media/file_temporary.hpp"
#include "media/media.hpp"
#include "media/path_errors.hpp"
#include "refused_call.hpp"
#include "scratch.hpp"
#include "tensorshelf/error.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

std::optional<Errc> code_if_any(const std::function<void()>& body) {
  const auto error = error_of(body);
  return error ? std::optional(error->code()) : std::nullopt;
}

void write_text(const ShelfFile& file, const std::string& text) {
  REQUIRE(::pwrite(file.fd(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
}

constexpr const char* kHolderPath = "TENSORSHELF_TEST_HOLDER_PATH";

// Another program (this one, executed anew) that holds a path open for writing until destroyed.
class Holder {
 public:
  explicit Holder(const fs::path& path) {
    std::array<int, 2> to_child{}, from_child{};
    REQUIRE(::pipe2(to_child.data(), O_CLOEXEC) == 0);
    REQUIRE(::pipe2(from_child.data(), O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      ::setenv(kHolderPath, path.c_str(), 1);
      ::execl("/proc/self/exe", "test_file", "holder", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    REQUIRE(pid_ > 0);
    ::close(to_child[0]);
    ::close(from_child[1]);
    stop_ = to_child[1];
    char ready = 0;
    REQUIRE(::read(from_child[0], &ready, 1) == 1);
    ::close(from_child[0]);
    REQUIRE(ready == '+');
  }
  Holder(const Holder&) = delete;
  ~Holder() {
    ::close(stop_);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int stop_ = -1;
};

}  // namespace

TEST_CASE("holder", "[.]") {  // run by Holder, in a process of its own
  const char* path = ::getenv(kHolderPath);
  REQUIRE(path != nullptr);
  const ShelfFile file = ShelfFile::open(path, true);
  REQUIRE(::write(1, "+", 1) == 1);
  char end = 0;
  REQUIRE(::read(0, &end, 1) == 0);
}

TEST_CASE("open: what is not a shelf's file is refused, and the text says why") {
  const scratch::Directory dir;
  scratch::put(dir / "file", "x");
  fs::create_directory(dir / "directory");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0644) == 0);
  fs::create_symlink("gone", dir / "broken");
  fs::create_symlink("loop", dir / "loop");
  const std::string too_long(300, 'n');

  struct Row {
    fs::path path;
    Errc code;
    const char* text;
  };
  const Row rows[] = {
      {dir / "none", Errc::not_found, "no shelf at"},
      {dir / "no/such/run.shelf", Errc::not_found, "does not exist"},
      {dir / "file/run.shelf", Errc::not_found, "is no directory"},
      {dir / "broken", Errc::not_found, "symbolic link to gone"},
      {dir / "loop", Errc::not_a_shelf, "loops"},
      {dir / "directory", Errc::not_a_shelf, "is a directory"},
      {dir / "fifo", Errc::not_a_shelf, "is a FIFO"},
      {"/dev/null", Errc::not_a_shelf, "character device"},
      {dir / too_long.c_str(), Errc::bad_argument, "too long"},
      {"", Errc::bad_argument, "empty"},
  };
  for (const Row& row : rows) {
    for (const bool writable : {false, true}) {
      INFO(row.path << (writable ? " for writing" : " for reading"));
      const auto error = error_of([&] { ShelfFile::open(row.path, writable); });
      REQUIRE(error);
      CHECK(error->code() == row.code);
      CHECK(contains(error->what(), row.text));
      CHECK_FALSE(error->remedy().empty());
    }
  }
  const auto error = error_of([&] { ShelfFile::open(dir / "my runs/1/run.shelf", true); });
  REQUIRE(error);
  const auto pattern = error_of([&] { ShelfFile::open(dir / "run.*.shelf", false); });
  REQUIRE(pattern);
  CHECK(contains(pattern->remedy(), "No file matches"));
  CHECK(contains(error->remedy(), "`mkdir -p '" + (dir / "my runs/1").native() + "'`"));
}

TEST_CASE("open: files and links to them, with kind, size and flags") {
  const scratch::Directory dir;
  scratch::put(dir / "file", std::string(5000, 'x'));
  fs::create_symlink("file", dir / "link");
  for (const char* name : {"file", "link"}) {
    for (const bool writable : {false, true}) {
      const ShelfFile file = ShelfFile::open(dir / name, writable);
      CHECK(file.kind() == FileKind::regular);
      CHECK(file.writable() == writable);
      CHECK(file.size_bytes() == 5000);
      CHECK(file.path() == dir / name);
      CHECK((::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC) != 0);
      CHECK((::fcntl(file.fd(), F_GETFL) & O_NONBLOCK) == 0);
    }
  }
}

TEST_CASE("open: a writer excludes writers, not readers, and is named") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "x");

  SECTION("another process, which is named by its pid") {
    const Holder holder(path);
    const auto error = error_of([&] { ShelfFile::open(path, true); });
    REQUIRE(error);
    CHECK(error->code() == Errc::busy);
    CHECK(contains(error->what(), path.native()));
    if (fs::exists("/proc/locks") && !scratch::contents("/proc/locks").empty()) {
      CHECK(contains(error->what(), "by pid " + std::to_string(holder.pid())));
    }
    CHECK(contains(error->remedy(), "mode=\"r\""));
    ShelfFile::open(path, false);  // readers do not care
  }
  SECTION("another process, until it is killed") {
    { const Holder holder(path); }
    ShelfFile::open(path, true);
  }
  SECTION("this process") {
    const ShelfFile file = ShelfFile::open(path, true);
    CHECK(code_if_any([&] { ShelfFile::open(path, true); }) == Errc::busy);
    ShelfFile::open(path, false);
  }
  SECTION("this process, until it closes, whatever else closes the file meanwhile") {
    {
      const ShelfFile file = ShelfFile::open(path, true);
      { const ShelfFile reader = ShelfFile::open(path, false); }
      CHECK(code_if_any([&] { ShelfFile::open(path, true); }) == Errc::busy);
    }
    ShelfFile::open(path, true);
  }
  SECTION("a forked child that destroys its copy does not unlock its parent's") {
    std::optional<ShelfFile> file = ShelfFile::open(path, true);
    CHECK(scratch::exited_well(scratch::in_child([&] {
      file.reset();
      return true;
    })));
    CHECK(code_if_any([&] { ShelfFile::open(path, true); }) == Errc::busy);
  }
  SECTION("readers hold no lock") {
    const ShelfFile reader = ShelfFile::open(path, false);
    ShelfFile::open(path, true);
  }
}

TEST_CASE("busy: of a writer that was killed, the child that keeps its file is named") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "x");
  std::array<int, 2> said{};
  std::array<int, 2> held{};
  REQUIRE(::pipe(said.data()) == 0);
  REQUIRE(::pipe(held.data()) == 0);
  const bool took = scratch::exited_well(scratch::in_child([&] {
    const int fd = open_to_lock(path);
    if (fd < 0 || !try_lock(fd, path)) return false;
    const pid_t worker = ::fork();
    if (worker == 0) {  // as a loader's worker: it has all of its parent's descriptors
      ::close(held[1]);
      char none = 0;
      [[maybe_unused]] const auto ended = ::read(held[0], &none, 1);
      ::_exit(0);
    }
    return ::write(said[1], &worker, sizeof worker) == sizeof worker;
  }));
  pid_t worker = 0;
  CHECK((took && ::read(said[0], &worker, sizeof worker) == sizeof worker));
  struct stat inode = {};
  CHECK(::stat(path.c_str(), &inode) == 0);
  const auto error = error_of([&] { throw_busy(path, inode); });
  REQUIRE(error);
  CHECK(error->code() == Errc::busy);
  if (lock_holder(inode) != 0) {  // where /proc/locks names the writer
    CHECK(contains(error->what(), "by pid " + std::to_string(worker) + ", a child of pid "));
    CHECK(contains(error->what(), "which itself has ended"));
    CHECK(contains(error->remedy(), "stop that child"));
  }
  for (const int fd : {said[0], said[1], held[0], held[1]}) ::close(fd);  // the worker ends
}

TEST_CASE("open: without permission it is read_only, and reading still works") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "x");
  REQUIRE(::chmod(path.c_str(), 0444) == 0);
  const bool root = ::geteuid() == 0;
  const int status = scratch::in_child([&] {
    if (root && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(3);
    ShelfFile::open(path, false);
    return code_if_any([&] { ShelfFile::open(path, true); }) == Errc::read_only &&
           code_if_any([&] { ShelfFile::create(dir / "new"); }) ==
               (root ? std::optional(Errc::read_only) : std::nullopt);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
    WARN("skipped: permissions (running as root, and it may not become nobody)");
    return;
  }
  CHECK(scratch::exited_well(status));
}

TEST_CASE("create: a file system without room is full, and so is a quota that has ended") {
  for (const int cause : {ENOSPC, EDQUOT}) {
    CAPTURE(cause);
    const auto error = error_of([&] { throw_path_error("/there/run.shelf", "created", cause); });
    REQUIRE(error);
    CHECK(error->code() == Errc::full);
    CHECK(error->os_error() == cause);
    CHECK(contains(error->what(), "/there/run.shelf cannot be created"));
  }
}

TEST_CASE("create: nothing has the name before publish(), and all is there after") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  {
    ShelfFile file = ShelfFile::create(path);
    CHECK(file.writable());
    CHECK(file.size_bytes() == 0);
    CHECK(file.path() == path);
    CHECK_FALSE(fs::exists(path));
    CHECK(scratch::entries(dir.path()) == 1);  // the hidden temporary file
    CHECK(fs::directory_iterator(dir.path())->path().filename().native().starts_with("."));
    write_text(file, "whole");
    file.publish(false);
    CHECK(scratch::contents(path) == "whole");
    CHECK(scratch::entries(dir.path()) == 1);
    CHECK(code_if_any([&] { ShelfFile::open(path, true); }) == Errc::busy);  // still locked
  }
  CHECK(scratch::contents(path) == "whole");
  const ShelfFile again = ShelfFile::open(path, true);
  struct stat node {};
  REQUIRE(::fstat(again.fd(), &node) == 0);
  CHECK((node.st_mode & 0777 & ~0644) == 0);
}

TEST_CASE("create: a file that is never published leaves nothing") {
  const scratch::Directory dir;
  { const ShelfFile file = ShelfFile::create(dir / "run.shelf"); }
  CHECK(scratch::entries(dir.path()) == 0);

  SECTION("moved from: removed once, by the last owner") {
    ShelfFile first = ShelfFile::create(dir / "run.shelf");
    {
      const ShelfFile second = std::move(first);
      CHECK(scratch::entries(dir.path()) == 1);
    }
    CHECK(scratch::entries(dir.path()) == 0);
  }
  SECTION("a forked child leaves it to its parent") {
    std::optional<ShelfFile> file = ShelfFile::create(dir / "run.shelf");
    CHECK(scratch::exited_well(scratch::in_child([&] {
      file.reset();
      return true;
    })));
    CHECK(scratch::entries(dir.path()) == 1);
  }
  SECTION("that of a killed creator is removed by the next one, that of a live one is not") {
    const ShelfFile live = ShelfFile::create(dir / "run.shelf");
    const int status = scratch::in_child([&] {
      const ShelfFile abandoned = ShelfFile::create(dir / "run.shelf");
      return ::raise(SIGKILL) != 0;
    });
    CHECK(WIFSIGNALED(status));
    CHECK(scratch::entries(dir.path()) == 2);
    const ShelfFile next = ShelfFile::create(dir / "run.shelf");
    CHECK(scratch::entries(dir.path()) == 2);  // live's and next's
  }
}

TEST_CASE("create: only names that a creator gives are removed, and what looks similar stays") {
  const scratch::Directory dir;
  const std::vector<std::string> kept = {
      ".run.shelf.4211.0123456789abcde.tmp",          // 15 digits of chance
      ".run.shelf.4211.0123456789abcdef0.tmp",        // 17
      ".run.shelf.4211.0123456789ABCDEF.tmp",         // capitals
      ".run.shelf.4211.0123456789abcdeg.tmp",         // no hexadecimal
      ".run.shelf.4211.0123456789abcdef.tmp.bak",     // more behind
      ".run.shelf.4211.0123456789abcdef.tmp~",        //
      ".run.shelf.4211.0123456789abcdef.tmp ",        //
      ".run.shelf.4211.0123456789abcdef.TMP",         // another ending
      ".run.shelf.4211.0123456789abcdef",             // none
      ".run.shelf.4211.0123456789abcdeftmp",          // no dot
      ".run.shelf..0123456789abcdef.tmp",             // no pid
      ".run.shelf.04211.0123456789abcdef.tmp",        // no pid is written so
      ".run.shelf.12345678901.0123456789abcdef.tmp",  // nor so
      ".run.shelf.-4211.0123456789abcdef.tmp",        //
      ".run.shelf.4211 .0123456789abcdef.tmp",        //
      ".run.shelf.pid.0123456789abcdef.tmp",          //
      ".run.shelf.4211-0123456789abcdef.tmp",         // another sign between
      ".run.shelf.1.4211.0123456789abcdef.tmp",       // of a shelf run.shelf.1
      ".run.shelf4211.0123456789abcdef.tmp",          //
      "run.shelf.4211.0123456789abcdef.tmp",          // no dot before
      "..run.shelf.4211.0123456789abcdef.tmp",        //
      ".other.shelf.4211.0123456789abcdef.tmp",       // another shelf's
      ".run.shelf.tmp",
      "run.shelf.tmp",
      "run.shelf.bak",
      ".run.shelf",
  };
  for (const std::string& name : kept) scratch::put(dir.path() / name, "precious");
  const std::vector<std::string> abandoned = {
      ".run.shelf.1.0123456789abcdef.tmp",
      ".run.shelf.4211.0000000000000000.tmp",
      ".run.shelf.4194304.fedcba9876543210.tmp",
  };
  for (const std::string& name : abandoned) scratch::put(dir.path() / name, "");
  // The right name on what is no file, and on a file that is in use.
  fs::create_directory(dir / ".run.shelf.1.aaaaaaaaaaaaaaaa.tmp");
  scratch::put(dir / "target", "precious");
  fs::create_symlink("target", dir / ".run.shelf.1.bbbbbbbbbbbbbbbb.tmp");
  REQUIRE(::mkfifo((dir / ".run.shelf.1.cccccccccccccccc.tmp").c_str(), 0644) == 0);
  scratch::put(dir / ".run.shelf.1.dddddddddddddddd.tmp", "precious");
  const int in_use = ::open((dir / ".run.shelf.1.dddddddddddddddd.tmp").c_str(), O_RDONLY);
  REQUIRE(::flock(in_use, LOCK_EX) == 0);

  { ShelfFile::create(dir / "run.shelf").publish(false); }
  for (const std::string& name : kept) {
    CAPTURE(name);
    CHECK(scratch::contents(dir.path() / name) == "precious");
  }
  for (const std::string& name : abandoned) {
    CAPTURE(name);
    CHECK_FALSE(fs::exists(dir.path() / name));
  }
  CHECK(fs::is_directory(dir / ".run.shelf.1.aaaaaaaaaaaaaaaa.tmp"));
  CHECK(fs::is_symlink(dir / ".run.shelf.1.bbbbbbbbbbbbbbbb.tmp"));
  CHECK(fs::is_fifo(dir / ".run.shelf.1.cccccccccccccccc.tmp"));
  CHECK(scratch::contents(dir / ".run.shelf.1.dddddddddddddddd.tmp") == "precious");
  CHECK(scratch::contents(dir / "target") == "precious");
  ::close(in_use);
}

TEST_CASE("create: what cannot become a shelf is refused") {
  const scratch::Directory dir;
  fs::create_directory(dir / "directory");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0644) == 0);
  fs::create_symlink("loop", dir / "loop");
  CHECK(code_if_any([&] { ShelfFile::create(""); }) == Errc::bad_argument);
  CHECK(code_if_any([&] { ShelfFile::create(dir / "directory"); }) == Errc::not_a_shelf);
  CHECK(code_if_any([&] { ShelfFile::create(dir / "directory/"); }) == Errc::not_a_shelf);
  CHECK(code_if_any([&] { ShelfFile::create(dir / "fifo"); }) == Errc::not_a_shelf);
  CHECK(code_if_any([&] { ShelfFile::create(dir / "loop"); }) == Errc::not_a_shelf);
  CHECK(code_if_any([&] { ShelfFile::create(dir / "no/run.shelf"); }) == Errc::not_found);
  CHECK(scratch::entries(dir.path()) == 3);

  SECTION("the longest name there can be works") {
    const std::string name(255, 'n');
    ShelfFile file = ShelfFile::create(dir / name.c_str());
    file.publish(false);
    CHECK(fs::exists(dir / name.c_str()));
  }
}

TEST_CASE("publish: symbolic links stay links") {
  const scratch::Directory dir;
  fs::create_directory(dir / "real");
  fs::create_symlink("real/run.shelf", dir / "link");

  ShelfFile first = ShelfFile::create(dir / "link");  // leads to a file that is not there yet
  write_text(first, "first");
  first.publish(false);
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(scratch::contents(dir / "real/run.shelf") == "first");

  { const ShelfFile done = std::move(first); }
  ShelfFile second = ShelfFile::create(dir / "link");
  write_text(second, "second");
  CHECK(code_if_any([&] { second.publish(false); }) == Errc::exists);
  second.publish(true);
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(scratch::contents(dir / "real/run.shelf") == "second");
}

TEST_CASE("publish without replace: of many at once exactly one wins, whole") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  constexpr int kCreators = 8;
  std::vector<ShelfFile> files;
  for (int i = 0; i < kCreators; ++i) {
    files.push_back(ShelfFile::create(path));
    write_text(files.back(), "creator " + std::to_string(i));
  }
  std::atomic<int> winners = 0, losers = 0, winner = -1;
  std::vector<std::thread> threads;
  for (int i = 0; i < kCreators; ++i) {
    threads.emplace_back([&, i] {
      const auto code = code_if_any([&] { files[i].publish(false); });
      if (!code) winner = i;
      ++(code ? losers : winners);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(winners == 1);
  CHECK(losers == kCreators - 1);
  CHECK(scratch::contents(path) == "creator " + std::to_string(winner));
  files.clear();
  CHECK(scratch::entries(dir.path()) == 1);
}

TEST_CASE("publish with replace") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";

  SECTION("nothing was there") {
    ShelfFile file = ShelfFile::create(path);
    file.publish(true);
    CHECK(fs::exists(path));
  }
  SECTION("the old file keeps its name until then, and its readers keep it after") {
    scratch::put(path, "old");
    const ShelfFile reader = ShelfFile::open(path, false);
    ShelfFile file = ShelfFile::create(path);
    write_text(file, "newer");
    CHECK(scratch::contents(path) == "old");
    file.publish(true);
    CHECK(scratch::contents(path) == "newer");
    CHECK(reader.size_bytes() == 3);
    CHECK(code_if_any([&] { ShelfFile::open(path, true); }) == Errc::busy);
  }
  SECTION("a writer has it: busy, and it stays") {
    scratch::put(path, "old");
    {
      const Holder holder(path);
      ShelfFile file = ShelfFile::create(path);
      CHECK(code_if_any([&] { file.publish(true); }) == Errc::busy);
      CHECK(scratch::contents(path) == "old");
    }
    CHECK(scratch::entries(dir.path()) == 1);
  }
}

TEST_CASE("check_name: a reader hears that its file was replaced or deleted, and what to do") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "old");
  const ShelfFile reader = ShelfFile::open(path, false);
  CHECK_FALSE(error_of([&] { reader.check_name(); }));
  fs::rename(path, dir / "moved");
  CHECK_FALSE(error_of([&] { reader.check_name(); }));  // it has a name still
  scratch::put(path, "newer");
  for (const std::string why : {"another file has taken the place", "was deleted"}) {
    const auto error = error_of([&] { reader.check_name(); });
    REQUIRE(error);
    CHECK(error->code() == Errc::gone);
    CHECK(contains(error->what(), why));
    CHECK(contains(error->remedy(), "open it again"));
    fs::remove(path);
    fs::remove(dir / "moved");
  }
}

TEST_CASE("create: files whose long names begin alike do not share what is abandoned") {
  const scratch::Directory dir;
  const std::string begin(226, 'n');
  const std::uint32_t which = 0x1234abcd;
  const auto abandon = [&](const std::string& name) {
    ShelfFile file = ShelfFile::create(dir.path() / name, which);
    file.leave();
  };
  abandon(begin + "1");
  abandon(begin + "2");
  const auto left = temporaries_of(dir.path() / (begin + "1"));
  REQUIRE(left.size() == 1);
  CHECK(stands_for(left[0], which));
  CHECK_FALSE(stands_for(left[0], which + 1));
  CHECK(left[0].filename().native().size() <= 255);
  { ShelfFile::create(dir.path() / (begin + "1")); }
  CHECK(temporaries_of(dir.path() / (begin + "1")).empty());
  CHECK(temporaries_of(dir.path() / (begin + "2")).size() == 1);
}

TEST_CASE(
    "check_name: a file that has another name yet is gone with its own, and moved it is not") {
  const scratch::Directory dir;
  ShelfFile file = ShelfFile::create(dir / "run.shelf");
  file.publish(false);
  SECTION("deleted") {
    fs::create_hard_link(dir / "run.shelf", dir / "other");
    fs::remove(dir / "run.shelf");
    CHECK(code_if_any([&] { file.check_name(); }) == Errc::gone);
  }
  SECTION("moved") {
    fs::rename(dir / "run.shelf", dir / "other");
    file.check_name();
  }
}

TEST_CASE("publish where every rename replaces: what is there stays, and the name is the file's") {
  const scratch::Directory dir;
  scratch::put(dir / "there", "old");
  CHECK(in_child([&]() -> std::string {
          if (!refuse_call(SYS_renameat2, EINVAL)) return "no seccomp";
          {
            ShelfFile file = ShelfFile::create(dir / "there");
            if (code_if_any([&] { file.publish(false); }) != Errc::exists) return "replaced";
          }
          ShelfFile file = ShelfFile::create(dir / "run.shelf");
          file.publish(false);
          file.check_name();
          fs::rename(dir / "run.shelf", dir / "aside");
          file.check_name();  // nothing is in its place
          scratch::put(dir / "run.shelf", "another");
          return code_if_any([&] { file.check_name(); }) == Errc::gone ? "" : "not seen";
        }) == "");
  CHECK(scratch::contents(dir / "there") == "old");
  CHECK(scratch::entries(dir.path()) == 3);
}

TEST_CASE("publish: a directory that may not be read refuses before anything has changed") {
  if (::geteuid() != 0) {
    WARN("skipped: permissions (another user is taken on as root alone)");
    return;
  }
  const scratch::Directory dir;
  scratch::put(dir / "run.shelf", "");
  REQUIRE(::chown(dir.path().c_str(), 65534, 65534) == 0);
  REQUIRE(::chown((dir / "run.shelf").c_str(), 65534, 65534) == 0);
  REQUIRE(::chmod(dir.path().c_str(), 0300) == 0);
  CHECK(in_child([&]() -> std::string {
          if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) {
            return "another user cannot be taken on";
          }
          { ShelfFile::open(dir / "run.shelf", true); }  // whose name nobody here can settle
          for (const bool replace : {true, false}) {
            const fs::path path = dir / (replace ? "run.shelf" : "new.shelf");
            ShelfFile file = ShelfFile::create(path);
            const auto error = error_of([&] { file.publish(replace); });
            if (!error || error->remedy().find("permission to read") == std::string::npos) {
              return error ? error->remedy() : "published";
            }
            if (!file.unpublished()) return "it has its name";
          }
          return "";
        }) == "");
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("publish over an empty file: of many at once exactly one wins, whole") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "");
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  std::vector<ShelfFile> files;
  for (int i = 0; i < 8; ++i) {
    files.push_back(ShelfFile::create(path));
    write_text(files.back(), std::string(5, static_cast<char>('a' + i)));
  }
  std::atomic<int> won = -1;
  std::atomic<int> wins = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto code = code_if_any([&] { files[i].publish_over_empty(); });
      if (!code) {
        ++wins;
        won = i;
      } else if (code != Errc::exists && code != Errc::busy) {
        wins += 1000;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wins == 1);
  CHECK(scratch::contents(path) == std::string(5, static_cast<char>('a' + won)));
  CHECK((fs::status(path).permissions() & fs::perms::all) == fs::perms(0600));
  files.clear();
  CHECK(scratch::entries(dir.path()) == 1);
}

TEST_CASE("open: by this process already") {
  const scratch::Directory dir;
  scratch::put(dir / "run.shelf", "x");
  const ShelfFile held = ShelfFile::open(dir / "run.shelf", true);
  const auto error = error_of([&] { ShelfFile::open(dir / "run.shelf", true); });
  REQUIRE(error);
  CHECK(error->code() == Errc::busy);
  if (fs::exists("/proc/locks") && !scratch::contents("/proc/locks").empty()) {
    CHECK(error->os_error() == EDEADLK);
    CHECK(contains(error->what(), "in this process"));
    CHECK(contains(error->remedy(), "views"));
  }
}

TEST_CASE("open against replace: a writer never holds a file that lost its name") {
  const scratch::Directory dir;
  const fs::path path = dir / "run.shelf";
  scratch::put(path, "old");
  std::atomic<bool> stop = false;
  std::atomic<int> opened = 0;
  std::thread opener([&] {
    while (!stop) {
      try {
        const ShelfFile file = ShelfFile::open(path, true);
        struct stat held {
        }, named{};
        const bool same = ::fstat(file.fd(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
                          held.st_ino == named.st_ino;
        opened += same ? 1 : 1000000;
      } catch (const Error& error) {
        if (error.code() != Errc::busy) opened += 1000000;
      }
    }
  });
  int replaced = 0;
  while (replaced < 200) {
    ShelfFile file = ShelfFile::create(path);
    const auto code = code_if_any([&] { file.publish(true); });
    CHECK((!code || code == Errc::busy));
    if (!code) ++replaced;
  }
  stop = true;
  opener.join();
  CHECK(opened < 1000000);
}

TEST_CASE("made_as follows links, knows devices and keeps no file open") {
  const scratch::Directory scratch;
  scratch::put(scratch / "run.set", "PMEMPOOLSET\n16M /nowhere/a\n");
  scratch::put(scratch / "plain", "nothing");
  std::filesystem::create_symlink("/dev/null", scratch / "device.link");
  std::filesystem::create_symlink(scratch / "run.set", scratch / "set.link");
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  CHECK(made_as("/dev/null") == MadeAs::device);
  CHECK(made_as(scratch / "device.link") == MadeAs::device);
  CHECK(made_as(scratch / "run.set") == MadeAs::parts);
  CHECK(made_as(scratch / "set.link") == MadeAs::parts);
  CHECK(made_as(scratch / "plain") == MadeAs::file);
  CHECK(made_as(scratch / "none") == MadeAs::file);
  CHECK(made_as(scratch.path()) == MadeAs::file);
  CHECK(open_files() == before);
}

TEST_CASE("create: what takes the place of another file is of its group, with its mode") {
  const scratch::Directory dir;
  const auto path = dir / "run.shelf";
  scratch::put(path, "old");
  // Who may not give files away keeps them.
  if (::chown(path.c_str(), static_cast<uid_t>(-1), 65533) != 0) return;
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  ShelfFile::create(path).publish(true);
  struct stat node {};
  REQUIRE(::stat(path.c_str(), &node) == 0);
  CHECK(node.st_gid == 65533);
  CHECK((node.st_mode & 0777) == 0640);
}
