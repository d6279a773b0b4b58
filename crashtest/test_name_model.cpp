// The facts of the model of names (names.hpp), and what its watch (recorded_names.hpp) hears.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "crashtest/folder.hpp"
#include "crashtest/names.hpp"
#include "crashtest/recorded_names.hpp"
#include "tests/catch.hpp"

namespace tensorshelf::crash {
namespace {

using Files = std::map<std::string, std::string>;  // what is in each, by name

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

Files files_of(const Tree& tree) {
  Files files;
  for (const auto& [name, content] : tree) {
    files[name.native()] = {reinterpret_cast<const char*>(content->data()), content->size()};
  }
  return files;
}

std::set<Files> cuts_of(const Names& names) {
  std::set<Files> all;
  names.each_cut([&](const Tree& tree) { all.insert(files_of(tree)); });
  return all;
}

// A file that is there for good.
Names with(const std::string& name, const std::string& text) {
  Names names;
  names.made(name);
  names.holds(name, bytes_of(text));
  names.synced_file(name);
  names.synced_folder("");
  return names;
}

const std::string kZeros(3, '\0');

}  // namespace

TEST_CASE("what a file holds stays once it is synced") {
  Names names = with("a", "old");
  names.holds("a", bytes_of("newer"));
  const std::string grown = "old" + std::string(2, '\0');
  REQUIRE(cuts_of(names) == std::set<Files>{{{"a", "old"}}, {{"a", "newer"}}, {{"a", grown}}});
  names.synced_file("a");
  REQUIRE(cuts_of(names) == std::set<Files>{{{"a", "newer"}}});
}

TEST_CASE("a name stays once its folder is synced, and no other folder's does") {
  Names names;
  names.made("a");
  names.made("beside/b");
  const Files a = {{"a", ""}};
  const Files b = {{"beside/b", ""}};
  const Files both = {{"a", ""}, {"beside/b", ""}};
  REQUIRE(cuts_of(names) == std::set<Files>{{}, a, b, both});
  names.synced_folder("beside");
  REQUIRE(cuts_of(names) == std::set<Files>{b, both});
}

TEST_CASE("a file takes the place of another in one step") {
  Names names = with("a", "old");
  names.made("t");
  names.holds("t", bytes_of("new"));
  names.synced_file("t");
  names.moved("t", "a");
  // The last: the file is moved, and where it came from is there still by the step before.
  REQUIRE(cuts_of(names) ==
          std::set<Files>{{{"a", "old"}}, {{"a", "old"}, {"t", "new"}}, {{"a", "new"}}});
  names.synced_folder("");
  REQUIRE(cuts_of(names) == std::set<Files>{{{"a", "new"}}});
}

TEST_CASE("a file that is not synced may be named, and have nothing") {
  Names names;
  names.made("t");
  names.holds("t", bytes_of("new"));
  names.moved("t", "a");
  names.synced_folder("");
  REQUIRE(cuts_of(names) == std::set<Files>{{{"a", ""}}, {{"a", "new"}}, {{"a", kZeros}}});
}

TEST_CASE("what is removed may be there again") {
  Names names = with("a", "old");
  names.removed("a");
  REQUIRE(cuts_of(names) == std::set<Files>{{}, {{"a", "old"}}});
  REQUIRE(names.now().empty());
  names.synced_folder("");
  REQUIRE(cuts_of(names) == std::set{Files{}});
}

TEST_CASE("a link is one more name of a file") {
  Names names = with("a", "old");
  names.linked("a", "b");
  names.removed("a");
  names.synced_folder("");
  names.holds("b", bytes_of("new"));
  REQUIRE(cuts_of(names) == std::set<Files>{{{"b", "old"}}, {{"b", "new"}}});
}

TEST_CASE("calls that change names are watched, and each moment between them is kept") {
  const Folder folder;
  const std::filesystem::path root = folder.shelf().parent_path();
  RecordedNames names(root);
  const int file = ::open((root / "t").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(::write(file, "new", 3) == 3);
  SECTION("synced, named, and the name synced") {
    REQUIRE(::fsync(file) == 0);
    REQUIRE(::rename((root / "t").c_str(), (root / "a").c_str()) == 0);
    const int there = ::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(::fsync(there) == 0);
    ::close(there);
    names.told();
    std::set<Files> told, before;
    for (const auto& cut : names.cuts()) (cut.told ? told : before).insert(files_of(cut.tree));
    REQUIRE(told == std::set<Files>{{{"a", "new"}}});
    REQUIRE(before ==
            std::set<Files>{{}, {{"t", ""}}, {{"t", "new"}}, {{"t", kZeros}}, {{"a", "new"}}});
    REQUIRE(names.problem().empty());
  }
  SECTION("a name that comes about unseen is told") {
    std::filesystem::rename(root / "t", root / "a");
    names.told();
    REQUIRE_FALSE(names.problem().empty());
  }
  ::close(file);
}

}  // namespace tensorshelf::crash
