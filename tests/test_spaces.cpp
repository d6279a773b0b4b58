// Small sets and rules by themselves, at their edges: free space, chunks of one tensor, names.
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/make_capacity.hpp"
#include "base/small_vector.hpp"
#include "catch.hpp"
#include "format/format.hpp"
#include "store/commit/assignment.hpp"
#include "store/manifest/chunk_set.hpp"
#include "store/places/space.hpp"

using namespace tensorshelf;

TEST_CASE("a space is taken from at the end that was asked for") {
  Space space;
  space.release(0, 10 * kPageBytes);
  CHECK(space.take_high(kPageBytes) == 9 * kPageBytes);
  CHECK(space.take_low(kPageBytes) == 0U);
  CHECK(space.take(kPageBytes) == kPageBytes);
  CHECK(space.take_high(2 * kPageBytes) == 7 * kPageBytes);
  CHECK(space.total() == 5 * kPageBytes);
  CHECK_FALSE(space.take_high(6 * kPageBytes));
  space.release(20 * kPageBytes, 3 * kPageBytes);
  CHECK(space.take_high(3 * kPageBytes) == 20 * kPageBytes);  // of the highest range that holds it
  CHECK(space.take_high(5 * kPageBytes) == 2 * kPageBytes);
  CHECK(space.total() == 0);
}

TEST_CASE("where room was made nothing is moved, and making it one by one moves little") {
  const std::size_t more = GENERATE(1u, 2u, 100u, 5000u);
  CAPTURE(more);
  std::vector<int> list(1000);
  list.shrink_to_fit();
  make_capacity(list, more);
  const int* const first = list.data();
  list.insert(list.end(), more, 7);
  CHECK(list.data() == first);
  std::size_t moves = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t before = list.capacity();
    make_capacity(list);
    moves += list.capacity() != before;
    list.push_back(i);
  }
  CHECK(moves <= 5);  // each time into twice as much
}

TEST_CASE("a small vector is a vector, on either side of what it holds itself") {
  using Small = SmallVector<std::uint64_t, 4>;
  std::mt19937 random(GENERATE(range(1u, 30u)));
  std::vector<std::uint64_t> model;
  Small small;
  const auto check = [&](const Small& there) {
    REQUIRE(there.size() == model.size());
    CHECK(std::equal(there.begin(), there.end(), model.begin(), model.end()));
  };
  for (int step = 0; step < 60; ++step) {
    switch (random() % 6) {
      case 0:
        model.resize(random() % 9);
        small.resize(model.size());
        break;
      case 1:
        for (auto& value : model) value = random();
        small.assign(model.begin(), model.end());
        break;
      case 2:
        if (!model.empty()) {
          model.pop_back();
          small.pop_back();
        }
        break;
      case 3: {
        Small moved = std::move(small);
        CHECK(small.size() == 0);  // NOLINT(bugprone-use-after-move): that is asked
        check(moved);
        small = Small(3);
        small = std::move(moved);
        CHECK(moved.size() == 0);  // NOLINT(bugprone-use-after-move)
        break;
      }
      case 4: {
        const Small copied = small;
        CHECK(copied == small);
        small.push_back(7);
        CHECK_FALSE(copied == small);
        check(copied);
        small = copied;
        break;
      }
      default:
        model.push_back(model.empty() ? step : model.front());
        small.push_back(small.size() == 0 ? step : small[0]);
    }
    check(small);
  }
}

TEST_CASE("a set of chunks has those that were put in and not taken out, wherever they lie") {
  const std::uint64_t count = GENERATE(1, 2, 63, 64, 65, 100, 128, 129, 200);
  CAPTURE(count);
  ChunkSet set(count);
  const auto check = [&](std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t chunk = 0; chunk < count; ++chunk) {
      CHECK(set.contains(chunk) == (chunk >= first && chunk < end));
    }
  };
  check(0, 0);
  for (std::uint64_t chunk = 0; chunk < count; ++chunk) {
    set.insert(chunk);
    check(0, chunk + 1);
  }
  for (std::uint64_t chunk = 0; chunk < count / 2; ++chunk) {
    set.erase(chunk);
    check(chunk + 1, count);
  }
  set.clear();
  check(0, 0);
  set.insert(count - 1);
  check(count - 1, count);
}

TEST_CASE("all bytes are written when each of them was, in whatever order and however often") {
  const auto seed = GENERATE(range(1u, 200u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t size = 1 + random() % 40;
  std::vector<bool> model(size, false);
  WrittenBytes written;
  CHECK_FALSE(written.are_all(size));
  for (bool all = false; !all;) {
    const std::size_t begin = random() % size;
    const std::size_t end = begin + random() % std::min<std::size_t>(size - begin + 1, 8);
    if (begin == end) continue;
    written.add(begin, end);
    std::fill(model.begin() + static_cast<std::ptrdiff_t>(begin),
              model.begin() + static_cast<std::ptrdiff_t>(end), true);
    all = std::all_of(model.begin(), model.end(), [](bool one) { return one; });
    REQUIRE(written.are_all(size) == all);
  }
}

TEST_CASE("a name is well-formed UTF-8, sequence by sequence") {
  // The Unicode Standard, table 3-7: the ends of each row, and what lies just beyond them.
  const std::vector<std::string> good = {
      "\x7F",
      "\xC2\x80",
      "\xDF\xBF",
      "\xE0\xA0\x80",
      "\xE0\xBF\xBF",
      "\xE1\x80\x80",
      "\xEC\xBF\xBF",
      "\xED\x80\x80",
      "\xED\x9F\xBF",
      "\xEE\x80\x80",
      "\xEF\xBF\xBF",
      "\xF0\x90\x80\x80",
      "\xF0\xBF\xBF\xBF",
      "\xF1\x80\x80\x80",
      "\xF3\xBF\xBF\xBF",
      "\xF4\x80\x80\x80",
      "\xF4\x8F\xBF\xBF",
  };
  const std::vector<std::string> bad = {
      "\x80",
      "\xBF",
      "\xC0\x80",
      "\xC1\xBF",
      "\xE0\x80\x80",
      "\xE0\x9F\xBF",
      "\xED\xA0\x80",
      "\xED\xBF\xBF",
      "\xF0\x80\x80\x80",
      "\xF0\x8F\xBF\xBF",
      "\xF4\x90\x80\x80",
      "\xF5\x80\x80\x80",
      "\xFE",
      "\xFF",
      "\xC2\x7F",
      "\xC2\xC0",
      "\xE1\x80\xC0",
      "\xF1\x80\x80\x7F",
      "\x80\x80\x80",  // nothing but tails
      "\xBF\xBF\xBF\xBF",
      "\xC1\x80\x80\x80",
  };
  for (const std::string& text : good) {
    CAPTURE(text);
    CHECK_FALSE(format::name_problem(text));
    CHECK_FALSE(format::name_problem("a" + text + "b"));
    for (std::size_t size = 1; size < text.size(); ++size) {  // cut off, at the end and within
      CHECK(format::name_problem(text.substr(0, size)));
      CHECK(format::name_problem(text.substr(0, size) + "b"));
    }
  }
  for (const std::string& text : bad) {
    CAPTURE(text);
    CHECK(format::name_problem(text));
    CHECK(format::name_problem("a" + text + "b"));
  }
}
