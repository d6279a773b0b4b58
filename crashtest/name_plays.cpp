#include "name_plays.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/shelf.hpp>

#include "entropy.hpp"
#include "folder.hpp"
#include "model.hpp"
#include "recorded_names.hpp"

namespace tensorshelf::crash {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Shape = std::array<std::int64_t, 1>;

constexpr std::int64_t kBytes = 5000;

// The files of a play, and what a cut leaves of them: in a folder, and in one beside it that has
// further media.
struct Place {
  fs::path root;
  std::string name = "a.shelf";
  fs::path shelf() const { return root / name; }
  std::string part() const { return root / "beside" / "a.part"; }
};

// Everything goes by calls that are watched.
OpenOptions opening(Mode mode) {
  OpenOptions options{.mode = mode, .tier = "block"};
  options.block.io_uring = false;
  return options;
}

Bytes value() {
  Bytes bytes(kBytes);
  stamp(bytes, "a", 1, 0);
  return bytes;
}

void fill(Shelf& shelf) {
  shelf.create("a", DType::uint8, Shape{kBytes}).write(value());
  shelf.persist(1);
}

// What is at a path.
enum class Found { nothing, empty_file, empty_shelf, value, wrong_value };

// Throws what opening throws.
Found found(const fs::path& path, OpenOptions options) {
  if (!fs::exists(path)) return Found::nothing;
  if (fs::file_size(path) == 0) return Found::empty_file;
  options.mode = Mode::read;
  const Shelf shelf = Shelf::open(path, options);
  const auto tensor = shelf.find("a");
  if (!tensor) return Found::empty_shelf;
  Bytes bytes(kBytes);
  tensor->read(bytes);
  return bytes == value() ? Found::value : Found::wrong_value;
}

struct Play {
  std::function<void(const Place&)> before;  // whose names and files are durable
  std::function<void(const Place&)> act;
  // What is wrong with what a cut left; told: the act had returned.
  std::function<std::string(const Place&, bool told)> judge;
};

void lay_out(const Tree& tree, const fs::path& root) {
  for (const auto& [name, content] : tree) {
    fs::create_directories((root / name).parent_path());
    std::ofstream file(root / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(content->data()),
               static_cast<std::streamsize>(content->size()));
    if (!file.flush()) throw std::runtime_error("no room for what a cut left");
  }
}

std::string listed(const Tree& tree) {
  std::string all;
  for (const auto& [name, content] : tree) {
    all += "\n    " + name.native() + ", " + std::to_string(content->size()) + " bytes";
  }
  return all;
}

// The cuts of one run, in which one call may fail.
struct Run {
  std::set<RecordedNames::Cut> cuts;
  bool failed = false;
  std::string problem;
};

Run run_once(const Play& play, unsigned fails_at) {
  const Folder folder;
  const Place place{.root = folder.shelf().parent_path()};
  fs::create_directory(place.root / "beside");
  if (play.before) play.before(place);
  RecordedNames names(place.root, fails_at);
  entropy_salt = 1;  // another shelf has another id
  try {
    play.act(place);
    names.told();
  } catch (const Error&) {
    if (!names.failed()) throw;
    names.gave_up();
  }
  entropy_salt = 0;
  return {names.cuts(), names.failed(), names.problem()};
}

std::string judge_all(const Play& play, const std::set<RecordedNames::Cut>& cuts) {
  for (const auto& [told, tree] : cuts) {
    const Folder left;
    const Place there{.root = left.shelf().parent_path()};
    fs::create_directory(there.root / "beside");
    lay_out(tree, there.root);
    std::string problem;
    try {
      problem = play.judge(there, told);
    } catch (const std::exception& error) {
      problem = std::string("refused: ") + error.what();
    }
    if (problem.empty()) continue;
    return problem + (told ? "; it was told of" : "; it was not told of yet") + listed(tree);
  }
  return "";
}

// With no call that fails, and then with each of them.
std::string play_all(const Play& play) {
  const Run whole = run_once(play, RecordedNames::kNone);
  if (whole.cuts.size() < 4) return "nothing was watched";
  std::set<RecordedNames::Cut> cuts = whole.cuts;
  for (unsigned call = 0;; ++call) {
    const Run run = run_once(play, call);
    if (!run.problem.empty()) return run.problem;
    if (!run.failed) break;
    cuts.insert(run.cuts.begin(), run.cuts.end());
  }
  return whole.problem.empty() ? judge_all(play, cuts) : whole.problem;
}

}  // namespace

std::string new_shelf_is_named_whole() {
  return play_all({
      .before = {},
      .act = [](const Place& place) { Shelf::open(place.shelf(), opening(Mode::create)); },
      .judge = [](const Place& place, bool told) -> std::string {
        const Found there = found(place.shelf(), opening(Mode::read));
        if (there != Found::empty_shelf && (told || there != Found::nothing)) return "no shelf";
        Shelf::open(place.shelf(), opening(Mode::append));
        return "";
      },
  });
}

std::string replaced_shelf_is_the_old_or_the_new() {
  return play_all({
      .before =
          [](const Place& place) {
            Shelf shelf = Shelf::open(place.shelf(), opening(Mode::create));
            fill(shelf);
          },
      .act = [](const Place& place) { Shelf::open(place.shelf(), opening(Mode::replace)); },
      .judge = [](const Place& place, bool told) -> std::string {
        const Found there = found(place.shelf(), opening(Mode::read));
        if (there == Found::empty_shelf || (!told && there == Found::value)) return "";
        return "neither the old shelf nor the new one";
      },
  });
}

std::string shelf_in_an_empty_file_is_named_whole() {
  return play_all({
      .before = [](const Place& place) { std::ofstream{place.shelf()}; },
      .act = [](const Place& place) { Shelf::open(place.shelf(), opening(Mode::append)); },
      .judge = [](const Place& place, bool told) -> std::string {
        const Found there = found(place.shelf(), opening(Mode::read));
        if (there != Found::empty_shelf && (told || there != Found::empty_file)) return "no shelf";
        Shelf::open(place.shelf(), opening(Mode::append));
        return "";
      },
  });
}

std::string snapshot_is_named_whole() {
  return play_all({
      .before = {},
      .act =
          [](const Place& place) {
            const Folder source;
            Shelf shelf = Shelf::open(source.shelf(), opening(Mode::create));
            fill(shelf);
            shelf.snapshot(place.shelf(), opening(Mode::create));
          },
      .judge = [](const Place& place, bool told) -> std::string {
        const Found there = found(place.shelf(), opening(Mode::read));
        if (there == Found::value || (!told && there == Found::nothing)) return "";
        return "not the version that was copied";
      },
  });
}

namespace {

OpenOptions with_part(const Place& place, Mode mode) {
  OpenOptions options = opening(mode);
  options.also = {place.part()};
  return options;
}

// Half made or half replaced it may be refused for what is not there, and then made anew.
std::string judge_set(const Place& place, bool told, std::set<Found> whole) {
  try {
    const Found there = found(place.shelf(), with_part(place, Mode::read));
    if (told ? there != Found::empty_shelf : !whole.contains(there)) return "another shelf";
  } catch (const Error& error) {
    const bool missing = error.code() == Errc::medium_missing || error.code() == Errc::not_found;
    if (told || !missing) throw;
  }
  Shelf::open(place.shelf(), with_part(place, Mode::replace));
  return found(place.shelf(), with_part(place, Mode::read)) == Found::empty_shelf
             ? ""
             : "it was not made anew";
}

}  // namespace

std::string shelf_of_several_media_is_named_whole() {
  return play_all({
      .before = {},
      .act = [](const Place& place) { Shelf::open(place.shelf(), with_part(place, Mode::create)); },
      .judge =
          [](const Place& place, bool told) {
            return judge_set(place, told, {Found::nothing, Found::empty_shelf});
          },
  });
}

std::string replaced_media_can_be_replaced_again() {
  return play_all({
      .before =
          [](const Place& place) {
            Shelf shelf = Shelf::open(place.shelf(), with_part(place, Mode::create));
            fill(shelf);
          },
      .act =
          [](const Place& place) { Shelf::open(place.shelf(), with_part(place, Mode::replace)); },
      .judge =
          [](const Place& place, bool told) {
            return judge_set(place, told, {Found::value, Found::empty_shelf});
          },
  });
}

namespace {

std::string added(const std::function<OpenOptions(const Place&)>& options) {
  return play_all({
      .before =
          [](const Place& place) {
            Shelf shelf = Shelf::open(place.shelf(), opening(Mode::create));
            fill(shelf);
          },
      .act = [&](const Place& place) { Shelf::open(place.shelf(), options(place)).persist(2); },
      .judge = [&](const Place& place, bool told) -> std::string {
        {
          Shelf shelf = Shelf::open(place.shelf(), options(place));
          if (told && shelf.step() != 2) return "the version that was told of is lost";
          shelf.persist();
        }
        return found(place.shelf(), options(place)) == Found::value ? "" : "the value is lost";
      },
  });
}

}  // namespace

std::string added_medium_is_named_whole() {
  return added([](const Place& place) { return with_part(place, Mode::update); });
}

// Who gave the name was killed before it was durable.
std::string found_name_is_made_durable() {
  return play_all({
      .before =
          [](const Place& place) {
            Shelf::open(place.shelf(), opening(Mode::create));
            fs::rename(place.shelf(), place.root / "named later");
          },
      .act =
          [](const Place& place) {
            ::rename((place.root / "named later").c_str(), place.shelf().c_str());
            Shelf shelf = Shelf::open(place.shelf(), opening(Mode::append));
            fill(shelf);
          },
      .judge = [](const Place& place, bool told) -> std::string {
        const Found there = found(place.shelf(), opening(Mode::read));
        if (there == Found::value) return "";
        if (told) return "the version that was told of is lost";
        return there == Found::wrong_value ? "another value" : "";
      },
  });
}

// What an adding that was killed left stands for nothing that lies there by now.
std::string what_an_adding_left_takes_no_place() {
  return play_all({
      .before = [](const Place& place) { Shelf::open(place.shelf(), opening(Mode::create)); },
      .act =
          [](const Place& place) {
            Shelf::open(place.shelf(), with_part(place, Mode::update)).persist();
          },
      .judge = [](const Place& place, bool told) -> std::string {
        if (told || fs::exists(place.part())) return "";
        Place other = place;
        other.name = "other.shelf";
        OpenOptions options = opening(Mode::create);
        options.also = {place.part() + ".other"};
        {
          entropy_salt = 2;
          Shelf shelf = Shelf::open(other.shelf(), options);
          entropy_salt = 0;
          fill(shelf);
        }
        fs::rename(options.also[0], place.part());
        try {
          Shelf::open(place.shelf(), with_part(place, Mode::replace));
          return "another shelf's medium was replaced";
        } catch (const Error& error) {
          if (error.code() != Errc::not_a_shelf) throw;
        }
        return found(other.shelf(), with_part(other, Mode::read)) == Found::value
                   ? ""
                   : "another shelf's value is lost";
      },
  });
}

std::string added_mirror_is_named_whole() {
  return added([](const Place& place) {
    OpenOptions options = opening(Mode::update);
    options.mirrors = {{place.part(), 0}};
    return options;
  });
}

}  // namespace tensorshelf::crash
