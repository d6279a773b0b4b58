#include "workload.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

struct Grammar {
  std::string_view word;
  Verb verb;
  bool name;
  int numbers;
};

constexpr std::array kGrammar = {
    Grammar{"create", Verb::create, true, 1},    Grammar{"assign", Verb::assign, true, 0},
    Grammar{"part", Verb::part, true, 2},        Grammar{"thread", Verb::thread, true, 0},
    Grammar{"undo", Verb::undo, true, 2},        Grammar{"lend", Verb::lend, true, 0},
    Grammar{"erase", Verb::erase, true, 0},      Grammar{"replace", Verb::replace, true, 1},
    Grammar{"rename", Verb::rename, true, 1},    Grammar{"resize", Verb::resize, true, 1},
    Grammar{"move", Verb::move, true, 1},        Grammar{"remove", Verb::remove, false, 0},
    Grammar{"persist", Verb::persist, false, 0}, Grammar{"quiet", Verb::quiet, false, 0},
    Grammar{"async", Verb::async, false, 0},     Grammar{"reopen", Verb::reopen, false, 0},
    Grammar{"many", Verb::many, false, 2},       Grammar{"named", Verb::named, false, 2},
    Grammar{"all", Verb::all, false, 0},         Grammar{"refuse", Verb::refuse, true, 1},
    Grammar{"lease", Verb::lease, true, 0},      Grammar{"hold", Verb::hold, true, 0},
    Grammar{"drop", Verb::drop, false, 0},       Grammar{"reserve", Verb::reserve, false, 1},
    Grammar{"pin", Verb::pin, false, 0},         Grammar{"unpin", Verb::unpin, false, 0},
    Grammar{"shelf", Verb::shelf, false, 2},     Grammar{"media", Verb::media, false, 1},
    Grammar{"placed", Verb::placed, true, 0},    Grammar{"mirror", Verb::mirror, false, 0},
    Grammar{"launch", Verb::launch, false, 0},   Grammar{"go", Verb::go, false, 1},
    Grammar{"land", Verb::land, false, 0},       Grammar{"discard", Verb::discard, false, 0},
    Grammar{"begin", Verb::begin, false, 0},     Grammar{"commit", Verb::commit, false, 0},
    Grammar{"forget", Verb::forget, false, 0},   Grammar{"rollback", Verb::rollback, false, 1},
    Grammar{"split", Verb::split, false, 2},     Grammar{"prepare", Verb::prepare, false, 0},
    Grammar{"resolve", Verb::resolve, false, 0}, Grammar{"abandon", Verb::abandon, false, 0},
    Grammar{"format", Verb::format, false, 1},   Grammar{"same", Verb::same, true, 0},
    Grammar{"feed", Verb::feed, false, 0},       Grammar{"fly", Verb::fly, false, 0},
    Grammar{"offer", Verb::offer, false, 0},     Grammar{"tear", Verb::tear, false, 0},
    Grammar{"fall", Verb::fall, false, 0},       Grammar{"compact", Verb::compact, false, 0},
};

Op parse_op(const std::string& text) {
  std::istringstream in(text);
  std::string word;
  in >> word;
  for (const Grammar& rule : kGrammar) {
    if (rule.word != word) continue;
    Op op;
    op.verb = rule.verb;
    if (rule.name) in >> op.name;
    if (rule.numbers > 0) in >> op.first;
    if (rule.numbers > 1) in >> op.second;
    std::string rest;
    if (in.fail() || in >> rest) break;
    return op;
  }
  throw std::invalid_argument(fmt::format("workload operation \"{}\" cannot be read", text));
}

}  // namespace

std::string long_name(std::uint64_t number, std::uint64_t length) {
  return fmt::format("{:n<{}}", fmt::format("{}-", number), length);
}

std::vector<Op> parse(std::string_view program) {
  std::vector<Op> ops;
  std::istringstream in{std::string(program)};
  for (std::string text; std::getline(in, text, ';');) ops.push_back(parse_op(text));
  return ops;
}

Shape shape_of(const std::vector<Op>& ops) {
  Shape shape;
  for (const Op& op : ops) {
    if (op.verb == Verb::shelf) {
      shape.keep = static_cast<unsigned>(op.first);
      shape.in_flight = static_cast<unsigned>(op.second);
      shape.stated = true;
    }
    if (op.verb == Verb::format) shape.format_version = op.first;
    if (op.verb == Verb::media) shape.media = op.first;
    if (op.verb == Verb::mirror) {
      shape.media = 2;
      shape.mirrored = true;
    }
    if (op.verb == Verb::placed) {
      shape.placement = op.name == "whole" ? Placement::whole : Placement::by_chunk;
    }
  }
  return shape;
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> table = {
      {"empty", "persist; quiet; persist"},
      {"assign", "create a 64; assign a; persist; assign a; persist; assign a; persist"},
      {"clean",
       "create a 48; create b 48; assign a; assign b; persist; assign a; persist;"
       "assign b; persist; assign a; persist"},
      {"part",
       "create a 96; assign a; persist; part a 8 16; persist; part a 40 24; persist;"
       "part a 0 8; part a 88 8; persist"},
      {"part-reopen",
       "create a 96; assign a; persist; assign a; persist; reopen; part a 16 8;"
       "persist; part a 32 8; persist"},
      {"lent",
       "shelf 0 2; create a 8192; create b 4100; lend a; assign b; persist; lend a; lend a; lend b;"
       "launch; part a 8 16; lend a; go 3; lend b; land; persist; lend a; async; reopen; lend b;"
       "persist"},
      {"lent-chunks",
       "create a 1052672; lend a; persist; part a 8 8; lend a; persist; lend a; quiet"},
      {"undone",
       "shelf 0 2; create a 96; create b 48; undo b 0 48; assign a; persist; undo a 8 16; assign b;"
       "persist; assign a; undo a 90 4; undo b 0 48; launch; undo a 0 96; part b 8 8; undo b 0 4;"
       "go 3; undo a 8 8; launch; land; undo a 4 8; part a 8 8; reopen; undo a 0 8; persist"},
      {"undone-whole",
       "shelf 0 2; placed whole; create a 1048640; assign a; persist; undo a 1048570 20;"
       "part a 0 8; launch; part a 8 8; undo a 1048600 8; persist; undo a 0 8; part a 1048600 8;"
       "undo a 1048576 64; persist",
       128},
      {"undone-chunks",
       "placed chunk; create a 1048640; part a 8 8; persist; undo a 1048570 20; part a 0 8;"
       "undo a 1048600 8; persist; part a 1048600 8; undo a 1048590 20; persist; undo a 0 1048640;"
       "persist",
       64},
      {"erase",
       "format 2; create a 64; create b 64; assign a; assign b; persist; erase a; persist;"
       "create c 64; assign c; assign b; persist; create a 32; assign a; persist"},
      {"replace",
       "create a 64; assign a; persist; replace a 128; assign a; persist;"
       "replace a 16; persist; assign a; persist"},
      {"reuse",
       "create a 64; assign a; persist; erase a; create b 64; assign b; persist;"
       "erase b; create c 64; assign c; persist; assign c; persist"},
      {"abandon",
       "create a 64; assign a; persist; assign a; create b 32; assign b; reopen;"
       "assign a; persist; reopen; create c 32; assign c; persist"},
      {"reopen",
       "create a 64; assign a; persist; reopen; reopen; assign a; persist; reopen;"
       "assign a; persist; assign a; persist"},
      {"zero-size",
       "create z 0; create a 8; persist; assign z; assign a; persist; erase z;"
       "persist"},
      {"unassigned",
       "create a 4100; persist; create b 40; assign b; persist; part a 4090 10;"
       "persist"},
      {"threads",
       "create a 64; create b 64; thread a; thread b; persist; thread a; assign b;"
       "persist; thread b; persist"},
      {"async", "create a 64; assign a; async; assign a; async; part a 8 8; async"},
      {"multi",
       "many 5 40; persist; assign m1; assign m3; persist; part m0 0 8; erase m2;"
       "persist"},
      {"pages",
       "many 40 8; persist; assign m0; persist; assign m39; part m20 0 4; persist;"
       "erase m7; persist",
       2},
      {"pages-2",
       "format 2; many 40 8; persist; assign m0; persist; assign m39; part m20 0 4; persist;"
       "erase m7; persist",
       4},
      {"grow",
       "create a 64; assign a; persist; create b 300000; part b 299992 8; persist;"
       "assign a; persist; reopen; create c 700000; part c 0 16; persist"},
      {"chunks",
       "create a 1048640; assign a; persist; part a 1048600 8; persist; part a 0 8;"
       "persist; part a 1048576 8; persist",
       16},
      {"shared",  // large enough, here, for two threads to copy
       "shelf 0 2; create a 2097160; assign a; persist; part a 4096 2093064; launch; assign a; "
       "go 3; undo a 0 2097160; assign a; land; part a 8 1048576; persist; assign a; persist",
       128},
      {"several",  // the first version of some chunks is zeros, of others merged into zeros
       "create a 1048640; part a 8 8; part a 1048600 8; persist; part a 0 4; persist", 32},
      {"large-reuse",  // above kSmallSlotBytes, where slots are not laid side by side
       "create a 262148; part a 262140 8; persist; erase a; create b 262148; part b 0 8; persist;"
       "erase b; create c 266240; part c 266232 8; persist; part c 0 8; persist",
       8},
      {"full",
       "create a 64; assign a; persist; assign a; refuse b 9000000; persist; erase a;"
       "create c 64; refuse d 9000000; assign c; persist; reopen; assign c; persist"},
      {"leases",
       "create a 64; assign a; persist; lease a; assign a; persist; assign a; hold a; assign a;"
       "drop; assign a; lease a; assign a; persist; assign a; persist; assign a; drop; persist"},
      {"lease-reuse",
       "create a 64; create b 64; assign a; assign b; persist; assign a; lease a; hold a; hold b;"
       "erase a; erase b; persist; create c 64; assign c; create d 64; assign d; persist; assign c;"
       "persist; drop; create e 64; assign e; persist; assign e; persist"},
      // What gets the bytes that it has keeps its slot.
      {"same",
       "shelf 0 1; placed chunk; create a 96; create b 48; assign a; assign b; persist; same a;"
       "assign b; persist; assign a; same a; same b; persist; assign a; persist; same a; reopen;"
       "same a; assign b; persist; same a; persist; assign a; persist"},
      {"same-whole",
       "shelf 1 1; placed whole; create a 1048640; assign a; persist; same a; persist; same a;"
       "part a 1048600 8; persist; same a; persist; assign a; same a; persist; assign a; persist",
       64},
      {"same-flight",
       "shelf 1 2; placed chunk; create a 64; create b 48; assign a; assign b; persist; assign a;"
       "launch; same a; same b; launch; go 3; assign a; same a; undo b 0 48; same b; go 4; launch;"
       "same a; discard; assign a; persist; rollback 1; same a; prepare; same b; resolve; same b;"
       "persist"},
      // What a pipeline saves.
      {"feed",
       "shelf 0 1; create a 64; create b 48; create c 5000; feed; feed; part a 8 8; tear; feed;"
       "assign b; fall; reopen; assign c; feed; persist; tear; fall; feed"},
      {"feed-whole",
       "shelf 1 1; placed whole; create a 1048640; create b 40; assign a; persist; feed; tear;"
       "part a 1048600 8; persist; fall; feed",
       64},
      {"feed-flight",
       "shelf 1 2; create a 64; create b 48; fly; go 1; fly; tear; go 2; fall; go 3; fly; go 4;"
       "assign a; fly; land; erase b; feed; fly; reopen; tear; feed"},
      {"feed-prepare",
       "shelf 0 2; create a 64; create b 48; feed; offer; assign a; resolve; offer; reopen; "
       "resolve;"
       "tear; offer; abandon"},
      // Attempts in flight, in each of their states.
      {"flight",
       "shelf 0 1; create a 64; create b 5000; assign a; launch; assign b; go 1; part b 8 16; go 2;"
       "go 3; assign b; go 4; land; assign a; assign b; launch; assign a; persist"},
      {"flights",
       "shelf 0 2; create a 64; create b 48; assign a; assign b; persist; assign a; launch; assign "
       "a;"
       "launch; go 2; assign b; go 4; assign a; land; go 1; assign a; go 3; part a 8 8; persist"},
      {"flights-keep",
       "shelf 2 2; create a 64; assign a; launch; create b 40; assign b; launch; part a 0 8; "
       "launch;"
       "go 3; erase b; launch; land; go 4; assign a; launch; reopen; assign a; launch; launch; "
       "land"},
      {"flights-3",
       "shelf 1 3; placed chunk; create a 64; assign a; launch; assign a; launch; assign a; launch;"
       "go 2; assign a; launch; go 4; assign a; launch; land; persist; reopen; assign a; persist"},
      // Versions that are retained, and gone back to.
      {"keep",
       "shelf 1 1; create a 64; create b 40; assign a; persist; assign b; persist; part a 8 8;"
       "persist; erase b; persist; assign a; reopen; assign a; persist"},
      {"keep-3",
       "shelf 3 1; placed whole; create a 64; assign a; persist; assign a; persist; assign a;"
       "persist; assign a; persist; assign a; persist; reopen; part a 8 8; persist"},
      {"rollback",
       "shelf 2 1; format 2; create a 64; create b 48; assign a; assign b; persist; erase b;"
       "assign a; persist;"
       "create c 48; assign c; rollback 1; discard; rollback 1; assign b; persist; rollback 1;"
       "rollback 3; rollback 9; create d 48; assign d; persist; rollback 1; rollback 1"},
      {"revive",
       "shelf 3 1; create a 64; assign a; persist; replace a 96; assign a; persist; erase a; "
       "persist;"
       "create c 64; assign c; rollback 2; persist; rollback 3; create d 64; assign d; assign a;"
       "persist; rollback 2; assign c; persist; create e 96; assign e; persist; rollback 3; create "
       "f 64; assign f; persist; reopen"},
      {"rollback-flight",
       "shelf 2 2; create a 64; assign a; persist; assign a; launch; rollback 1; assign a; launch;"
       "go 2; rollback 1; persist; rollback 2; assign a; launch; go 4; assign a; persist"},
      // Attempts that come to nothing.
      {"discard",
       "shelf 0 1; create a 96; create b 48; assign a; persist; part a 8 8; discard; part a 16 8;"
       "persist; create c 48; assign c; erase b; discard; assign b; persist; assign a; discard;"
       "persist"},
      {"discard-flight",
       "shelf 1 2; create a 64; create b 48; assign a; persist; assign a; launch; assign b; "
       "discard;"
       "go 1; assign b; discard; go 2; assign a; go 3; discard; assign a; go 4; erase b; discard;"
       "land; assign b; persist"},
      {"discard-labels",  // what was discarded lies in a slot that is used one version later
       "shelf 0 2; placed whole; create a 1048640; assign a; persist; part a 0 8; launch;"
       "part a 0 8; discard; land; part a 0 8; persist; part a 1048600 8; launch;"
       "part a 1048608 8; persist",
       64},
      {"transaction",
       "shelf 1 2; create a 64; create b 48; persist; begin; assign a; assign b; commit; begin;"
       "assign a; erase b; forget; assign b; launch; begin; assign b; create c 40; go 4; commit;"
       "begin; assign c; forget; assign a; persist"},
      {"reserve",
       "create a 64; assign a; persist; reserve 300000; assign a; create b 100000; part b 8 8; "
       "persist;"
       "reserve 500000; reopen; create c 200000; part c 8 8; persist; reserve 100; erase b; "
       "persist;"
       "reserve 600000; assign a; persist"},
      // A medium and its mirror.
      {"mirror",
       "mirror; create a 64; create b 5000; assign a; assign b; persist; assign a; part b 8 8;"
       "persist; reopen; assign b; persist; erase a; create c 300000; part c 8 8; persist;"
       "rollback 1; persist",
       8},
      // Two media.
      {"media",
       "shelf 1 1; media 2; create a 64; create b 48; create d 5000; assign a; assign b; persist;"
       "assign a; persist; assign b; part d 8 8; persist; erase a; persist; create c 64; assign c;"
       "reopen; create e 300000; part e 8 8; persist; assign d; assign e; persist; rollback 1;"
       "assign b; persist; discard; replace e 64; assign e; persist",
       8},
      {"media-stripes",
       "shelf 0 1; media 2; create a 1048640; create b 40; part a 8 8; persist; assign a; launch;"
       "part a 1048600 8; go 3; assign b; land; persist; undo a 1048570 20; assign a; reopen;"
       "part a 1048600 8; persist; resize a 1048700; part a 1048690 10; persist; part a 0 8;"
       "persist",
       256},
      {"media-whole",
       "shelf 1 1; placed whole; media 2; create a 48; create b 64; assign a; persist; assign b;"
       "persist; part a 8 8; part b 8 8; persist; reopen; lease a; assign a; persist; pin; assign "
       "a;"
       "unpin; drop; assign a; rename a 1; persist; assign r1; persist",
       6},
      {"media-flight",
       "shelf 1 2; media 2; create a 64; create b 48; assign a; launch; assign b; launch; go 2;"
       "assign a; go 4; land; launch; discard; assign a; prepare; reopen; resolve; assign b;"
       "prepare; abandon; create c 40; assign c; prepare; reopen; abandon; feed; offer; resolve; "
       "fly; tear; feed",
       16},
      {"media-moved",
       "shelf 1 1; media 2; create a 64; create b 48; assign a; assign b; persist; move a 0;"
       "persist; move b 1; assign a; persist; move a 1; discard; part a 8 8; persist; reopen;"
       "move b 0; persist; remove; persist; assign b; persist; reopen; move a 1; persist; assign a;"
       "persist; rollback 1; move a 0; persist; remove; discard; assign a; persist; remove; "
       "prepare;"
       "abandon; part a 0 8; persist",
       10},
      // Other names, other lengths.
      {"rename",
       "shelf 2 1; create a 64; create b 48; assign a; assign b; persist; rename a 1; persist;"
       "part r1 8 8; rename b 2; create b 40; assign b; persist; rename r1 3; assign r3; persist;"
       "reopen; rename r3 1; part r1 0 8; persist; erase r1; rename r2 1; assign r1; persist; "
       "reopen;"
       "rollback 1; rename r1 4; persist; assign r4; persist",
       4},
      {"rename-dropped",
       "shelf 1 2; create a 64; create b 48; assign a; persist; rename a 1; assign r1; discard;"
       "part a 8 8; persist; rename a 1; launch; rename r1 2; go 3; discard; part r1 16 8; land;"
       "persist; begin; rename r1 5; rename b 1; assign r1; forget; rollback 1; assign r1; persist;"
       "rename r1 6; persist; rollback 1; part r1 0 8; persist; reopen; assign r1; persist",
       4},
      {"rename-prepared",
       "shelf 1 1; create a 64; assign a; persist; rename a 1; prepare; abandon; assign a; persist;"
       "rename a 2; part r2 8 8; prepare; reopen; resolve; assign r2; persist; rename r2 3; "
       "prepare;"
       "reopen; abandon; assign r2; rename r2 4; persist",
       4},
      {"rename-many",  // more records than a page has
       "named 5 1000; persist; rename " + long_name(2, 1000) + " 1; persist; assign r1; rename " +
           long_name(0, 1000) +
           " 2; persist; erase r1; create c 8; assign c; rename r2 1; persist; reopen; assign r1; "
           "persist",
       16},
      {"resize",
       "shelf 1 1; create a 64; assign a; persist; resize a 100; persist; part a 60 40; resize a "
       "80;"
       "persist; assign a; resize a 0; persist; resize a 5000; part a 4000 8; persist; reopen;"
       "resize a 6000; discard; part a 0 8; persist; resize a 40; rename a 1; persist; rollback 1;"
       "assign a; persist",
       4},
      {"resize-chunks",
       "shelf 0 2; placed chunk; create a 1048640; part a 8 8; persist; resize a 2100000; launch;"
       "part a 2000000 8; go 3; resize a 1048600; part a 1048590 8; launch; land; land; part a 8 8;"
       "persist; reopen; resize a 1048640; persist",
       128},
      {"resize-whole",
       "shelf 0 2; placed whole; create a 1048640; part a 8 8; persist; resize a 1100000; launch;"
       "part a 1048640 8; go 2; resize a 1048600; part a 1048590 8; persist; part a 8 8; persist;"
       "reopen; resize a 1048640; persist",
       128},
      // Slots that lie elsewhere by and by.
      {"compact",
       "create a 70000; create b 70000; create c 64; all; persist; erase a; persist; compact;"
       "assign b; persist; compact; reopen; assign c; persist; create d 70000; assign d; persist",
       48},
      {"compact-kept",
       "shelf 2 1; create a 40000; create b 40000; create c 64; all; persist; part b 8 8; persist;"
       "erase a; compact; persist; compact; rollback 1; part b 16 8; persist; reopen; part b 0 8;"
       "persist; create a 40000; assign a; persist; rollback 2; assign c; persist",
       48},
      {"compact-dirty",  // beside what somebody has assigned and not committed
       "shelf 1 1; create a 200000; create b 40000; create c 40000; assign b; assign c; persist;"
       "erase a; persist; quiet; part b 8 8; compact; undo c 8 8; part c 0 8; persist; compact;"
       "part b 0 8; compact; discard; create d 200000; create e 40000; assign c; persist; erase d;"
       "persist; quiet; part b 8 8; compact; create f 40000; part f 8 8; persist; reopen; assign e;"
       "erase b; compact; persist; quiet; compact; part c 8 8; persist",
       96},
      {"compact-whole",
       "shelf 0 2; placed whole; create a 1048640; create b 1048640; all; persist; part b 16 8;"
       "persist; erase a; persist; lease b; compact; part b 8 8; compact; drop; persist;"
       "part b 1048600 8; persist",
       1536},
      {"compact-chunks",
       "placed chunk; create a 1048640; create b 1048640; all; persist; part b 8 8; erase a; "
       "persist;"
       "compact; part b 1048600 8; persist; reopen; part b 8 8; undo b 0 16; persist",
       1536},
      {"compact-prepared",
       "shelf 0 2; create a 40000; create b 40000; all; persist; erase a; persist; quiet; quiet;"
       "part b 8 8; compact; prepare; compact; reopen; compact; resolve; compact; part b 0 8;"
       "compact; prepare; abandon; compact; assign b; prepare; reopen; abandon; compact; part b 8 "
       "8;"
       "persist",
       48},
      {"compact-flight",
       "shelf 0 3; create a 40000; create b 40000; create c 40000; all; persist; erase a; launch;"
       "part b 8 8; launch; part c 8 8; compact; go 3; compact; land; land; compact; part b 0 8;"
       "launch; go 2; compact; part c 0 8; persist; reopen; assign b; persist",
       48},
      {"compact-pins",
       "shelf 0 2; create a 40000; create b 40000; all; persist; pin; erase a; persist; compact;"
       "part b 8 8; persist; compact; unpin; compact; pin; part b 0 8; persist; compact; unpin;"
       "assign b; persist",
       48},
      {"compact-many",
       "named 8 1000; many 6 5000; persist; erase m0; erase m1; erase m2; erase " +
           long_name(0, 1000) +
           "; persist; compact; part m5 8 8; persist; reopen; erase m3; persist; "
           "compact; rename m4 1; compact; persist; all; persist",
       192},
      {"compact-media",
       "media 2; create a 70000; create b 70000; create c 64; all; persist; erase a; persist; "
       "compact; assign b; persist; erase b; persist; compact; assign c; persist; reopen; part c 8 "
       "8;"
       "persist",
       48},
      // Readers that hold versions.
      {"pins",
       "shelf 0 2; create a 64; create b 48; assign a; assign b; persist; pin; assign a; persist;"
       "erase b; assign a; persist; create c 48; assign c; persist; replace a 96; assign a; "
       "persist;"
       "assign a; persist; unpin; assign a; persist; create d 64; assign d; persist; assign a;"
       "persist"},
      {"pins-full",
       "shelf 0 1; create a 64; assign a; persist; pin; assign a; persist; assign a; unpin;"
       "assign a; persist; pin; part a 8 8; persist; part a 8 8; unpin; part a 16 8; persist;"
       "assign a; persist"},
      {"pins-reopen",
       "shelf 0 2; placed whole; create a 96; assign a; persist; pin; reopen; part a 8 8; persist;"
       "part a 16 8; persist; part a 24 8; persist; reopen; assign a; persist; assign a; persist"},
      {"pins-flight",
       "shelf 1 3; create a 64; create b 40; assign a; persist; pin; assign a; launch; assign b;"
       "launch; go 3; assign a; go 4; land; land; pin; assign a; launch; go 2; assign b; land;"
       "assign a; persist; rollback 1; assign a; persist; unpin; assign a; persist"},
      // Commits in two halves.
      {"prepare",
       "shelf 0 1; create a 64; create b 48; assign a; assign b; persist; assign a; prepare;"
       "assign b; assign a; persist; resolve; assign a; persist; part a 8 8; prepare; assign b;"
       "abandon; part a 16 8; persist; resolve; abandon"},
      {"prepare-reopen",
       "shelf 1 1; create a 64; assign a; persist; assign a; create b 40; assign b; prepare; "
       "reopen;"
       "assign a; reopen; resolve; assign b; erase a; prepare; reopen; abandon; assign a; assign b;"
       "persist; part a 0 8; prepare; reopen; abandon; part a 8 8; persist"},
      {"prepare-refused",  // a write that fails, before a commit that is refused
       "shelf 1 1; placed whole; create a 20000; create b 20000; persist; assign b; prepare;"
       "assign a; part b 0 8; persist; resolve; persist; prepare; assign b; persist; resolve"},
      {"prepare-again",  // two attempts of one opening at one version
       "shelf 0 1; format 2; create a 64; assign a; persist; assign a; prepare; abandon; assign a;"
       "persist; assign a; prepare; abandon; assign a; prepare; resolve; quiet; prepare; resolve"},
      {"prepare-flight",
       "shelf 1 2; create a 64; create b 40; assign a; persist; assign a; launch; go 2; assign b;"
       "prepare; assign a; assign b; launch; rollback 1; discard; assign b; resolve; launch; go 4;"
       "assign a; prepare; begin; assign b; commit; resolve; commit; prepare; begin; assign a;"
       "abandon; forget; assign b; rollback 1; discard; rollback 1; prepare; rollback 1; abandon"},
      {"prepare-labels",
       "shelf 0 2; placed whole; create a 1048640; assign a; persist; part a 0 8; prepare;"
       "part a 1048600 8; abandon; part a 8 8; persist; part a 1048608 8; launch; part a 16 8;"
       "persist",
       64},
      {"prepare-grow",
       "shelf 0 1; create a 64; persist; create b 300000; part b 8 8; prepare; create c 500000;"
       "part c 8 8; reopen; abandon; create d 400000; part d 0 8; prepare; reopen; resolve;"
       "create e 64; assign e; persist",
       8},
      // What a shelf is opened with.
      {"split",
       "shelf 2 1; create a 64; assign a; persist; assign a; persist; assign a; persist; split 1 2;"
       "assign a; launch; assign a; launch; reopen; assign a; persist; split 0 3;"
       "assign a; launch; assign a; launch; land; split 2 1; assign a; persist; assign a; persist"},
      {"split-kept",  // a split that was asked for is none before it is stored
       "shelf 2 1; placed chunk; create a 64; assign a; persist; assign a; persist; assign a; "
       "persist;"
       "split 0 3; assign a; reopen; assign a; split 0 3; assign a; launch; assign a; persist"},
      // Chunks of zeros, and chunks with slots of their own.
      {"zeros",
       "shelf 2 1; placed chunk; create a 1048640; create b 4100; persist; part a 1048600 8; "
       "persist;"
       "part b 4090 10; rollback 1; discard; rollback 1; part a 8 8; persist; reopen; part a 0 4;"
       "rollback 2; persist",
       32},
      {"by-chunk",
       "shelf 0 1; placed chunk; create a 1048640; assign a; persist; part a 1048600 8; persist;"
       "part a 0 8; persist; part a 8 8; part a 1048576 8; discard; reopen; part a 0 8; persist",
       32},
      {"whole",
       "shelf 1 1; placed whole; create a 1048640; part a 8 8; persist; part a 1048600 8; persist;"
       "part a 0 8; persist; reopen; part a 1048576 8; persist",
       32},
  };
  return table;
}

}  // namespace tensorshelf::crash
