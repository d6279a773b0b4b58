// Errors as users read them: printable, one style of remedies, and figures that tell.
#include <tensorshelf/shelf.hpp>

#include <fmt/format.h>

#include <fstream>
#include <optional>

#include "base/shell_quoted.hpp"
#include "base/size_text.hpp"
#include "catch.hpp"
#include "media/memory/medium.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a remedy is a sentence") {
  const char* const rows[][2] = {
      {"free some space", "Free some space."},
      {"Open it again.", "Open it again."},
      {"wait", "Wait."},
      {"correct it, or not", "Correct it, or not."},
      {"persist() first", "persist() first."},
      {"mode=\"r\" needs no lock", "mode=\"r\" needs no lock."},
      {"io_uring, if any", "io_uring, if any."},
      {"Really?", "Really?"},
      {"", ""},
  };
  for (const auto& [given, shown] : rows) CHECK(Error(Errc::io, "x", given).remedy() == shown);
}

TEST_CASE("control characters are shown, and end no text") {
  const std::string given("a\0b\n\x1b[31m\x7f\xc3\xa9", 12);
  const Error error(Errc::bad_name, given, given);
  CHECK(std::string(error.what()) == "a\\x00b\\x0a\\x1b[31m\\x7f\xc3\xa9");
  CHECK(error.remedy() == "a\\x00b\\x0a\\x1b[31m\\x7f\xc3\xa9.");

  auto medium = make_memory_medium(1 << 20, 16 << 20);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium));
  const auto refused = error_of([&] { shelf.create({"a\0b", 3}, DType::int8, {}); });
  REQUIRE(refused);
  CHECK(refused->code() == Errc::bad_name);
  CHECK(contains(refused->what(), "'a\\x00b' contains a NUL"));
}

TEST_CASE("a path in a command is one word of it") {
  const char* const rows[][2] = {
      {"/dev/shm/run-1.shelf", "/dev/shm/run-1.shelf"},
      {"my run.shelf", "'my run.shelf'"},
      {"o'clock", "'o'\\''clock'"},
      {"$(reboot);`x`", "'$(reboot);`x`'"},
      {"~/run", "'~/run'"},
      {"gr\xc3\xb6\xc3\x9f", "'gr\xc3\xb6\xc3\x9f'"},
      {"", "''"},
  };
  for (const auto& [given, quoted] : rows) CHECK(shell_quoted(given) == quoted);
}

TEST_CASE("sizes are exact, or say that they are rounded") {
  constexpr std::uint64_t kMiB = 1 << 20;
  struct Row {
    std::uint64_t bytes;
    const char* text;
  };
  const Row rows[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.5 KiB"},
      {1025, "1.0 KiB (1025 bytes)"},
      {kMiB - 1, "1024.0 KiB (1048575 bytes)"},
      {64 * kMiB, "64 MiB"},
      {64 * kMiB + 4096, "64.0 MiB (67112960 bytes)"},
      {std::uint64_t{3} << 50, "3 PiB"},
      {std::uint64_t{1} << 62, "4096 PiB"},
  };
  for (const Row& row : rows) CHECK(size_text(row.bytes) == row.text);
}

TEST_CASE("a full shelf says what is asked, what is free and where it ends") {
  const scratch::Directory dir;
  constexpr std::int64_t kMiB = 1 << 20;
  for (const char* const tier : {"auto", "block"}) {
    Shelf shelf = Shelf::open(dir / "run.shelf",
                              {.mode = Mode::replace, .tier = tier, .max_size_bytes = 8 * kMiB});
    const std::int64_t large[] = {8 * kMiB};
    const auto error = error_of([&] { shelf.create("w", DType::int8, large); });
    REQUIRE(error);
    const std::string text = error->what();
    INFO(text);
    CHECK(error->code() == Errc::full);
    CHECK(contains(text, "'w' needs 2 x 8 MiB"));
    CHECK(contains(text, "8 MiB"));
    CHECK(contains(text, size_text(shelf.info().capacity_bytes)));
    CHECK(contains(text, " free"));

    // Room enough in all, but in pieces: that must not read as "needs 2, has 4".
    std::vector<std::string> names;
    const std::int64_t third[] = {kMiB / 3};
    while (!error_of([&] { shelf.create(fmt::format("t{}", names.size()), DType::int8, third); })) {
      names.push_back(fmt::format("t{}", names.size()));
    }
    for (std::size_t i = 0; i < names.size(); i += 2) shelf.erase(names[i]);
    const std::int64_t two[] = {3 * kMiB / 2};
    const auto split = error_of([&] { shelf.create("w", DType::int8, two); });
    REQUIRE(split);
    INFO(split->what());
    CHECK(contains(split->what(), "needs 2 x 1.5 MiB"));
    CHECK(contains(split->what(), "in one piece"));
  }
}

TEST_CASE("a tier that there is not is refused by its name, and says which there are") {
  const scratch::Directory dir;
  const auto path = dir / "run.shelf";
  const auto refused = [&](const OpenOptions& options) {
    INFO(options.tier);
    const auto error = error_of([&] { Shelf::open(path, options); });
    REQUIRE(error);
    CHECK(error->code() == Errc::bad_argument);
    CHECK(std::string(error->what()) == "tier=\"" + options.tier + "\" is unknown");
    CHECK(error->remedy() == R"(Use one of "auto", "pmem", "block", "pool".)");
  };
  for (const char* const tier : {"tape", "memory", "Auto", ""}) refused({.tier = tier});
  CHECK(std::filesystem::is_empty(dir.path()));

  Shelf::open(path).persist(7);
  for (const Mode mode : {Mode::read, Mode::append, Mode::replace}) {
    refused({.mode = mode, .tier = "tape"});
  }
  CHECK(Shelf::open(path).info().step == 7U);
  CHECK(tiers() == std::vector<std::string>{"auto", "pmem", "block", "pool"});
}

TEST_CASE("a device is there already, and erased only by who asks for it") {
  const auto error = error_of([] { Shelf::open("/dev/null", {.mode = Mode::create}); });
  REQUIRE(error);
  CHECK(error->code() == Errc::exists);
  CHECK(std::string(error->what()) == "/dev/null is a device, and is there already");
  CHECK(error->remedy() == "Mode \"w\" makes a shelf of it and erases what there is.");
}

TEST_CASE("a shelf takes the place of a file of 0 bytes in mode a, and of no other") {
  const scratch::Directory dir;
  const auto path = dir / "run.shelf";
  for (const char* const tier : {"auto", "block"}) {
    std::ofstream(path).close();
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    for (const Mode mode : {Mode::read, Mode::update}) {
      const auto error = error_of([&] { Shelf::open(path, {.mode = mode, .tier = tier}); });
      REQUIRE(error);
      CHECK(error->code() == Errc::not_a_shelf);
    }
    CHECK(error_of([&] { Shelf::open(path, {.mode = Mode::create, .tier = tier}); })->code() ==
          Errc::exists);
    CHECK(std::filesystem::file_size(path) == 0);
    {
      Shelf shelf = Shelf::open(path, {.tier = tier});
      shelf.create("x", DType::int8, {});
      shelf.persist(3);
    }
    CHECK(std::filesystem::status(path).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK(Shelf::open(path, {.tier = tier}).info().step == 3U);  // and once only
    std::filesystem::remove(path);

    for (const std::string& other :
         {std::string(1, '\0'), std::string(100, 'x'), std::string(4095, '\0')}) {
      scratch::put(path, other);
      const auto error = error_of([&] { Shelf::open(path, {.tier = tier}); });
      REQUIRE(error);
      CHECK(error->code() == Errc::not_a_shelf);
      CHECK(scratch::contents(path) == other);
      std::filesystem::remove(path);
    }
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}
