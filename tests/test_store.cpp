// The store on plain memory: what a user of shelf.hpp may rely on, crash aside (crashtest/).
#include <numeric>
#include <thread>

#include "store_bench.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

TEST_CASE("a value survives persist and reopen, and reads see own writes before it") {
  Bench bench;
  const auto old_value = pattern(3 * kMiB + 17, 1);
  const auto new_value = pattern(3 * kMiB + 17, 2);
  {
    Shelf shelf = bench.open();
    auto w = make(shelf, "w", static_cast<std::int64_t>(old_value.size()));
    CHECK(value(w) == std::vector<std::byte>(old_value.size()));  // zeros until assigned
    w.write(old_value);
    CHECK(value(w) == old_value);
    CHECK(shelf.persist(7).version == 1);
    w.write(new_value);
    CHECK(value(w) == new_value);
    CHECK(value(w, true) == old_value);
  }  // not persisted: dropped
  Shelf shelf = bench.open();
  CHECK(shelf.info().version == 1);
  CHECK(shelf.info().step == 7U);
  CHECK(value(*shelf.find("w")) == old_value);
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("partial writes keep the rest, over many versions and reopenings") {
  Bench bench;
  const std::uint64_t size = 2 * kMiB + 1000;
  std::vector<std::byte> model(size);
  std::mt19937_64 random(12345);
  for (int round = 0; round < 6; ++round) {
    Shelf shelf = bench.open();
    auto w = shelf.find("w") ? *shelf.find("w") : make(shelf, "w", static_cast<std::int64_t>(size));
    for (int version = 0; version < 5; ++version) {
      for (int writes = 0; writes < 3; ++writes) {
        const std::uint64_t offset = random() % size;
        const std::uint64_t length =
            std::min<std::uint64_t>(random() % (3 * kMiB / 2), size - offset);
        const auto bytes = pattern(length, static_cast<unsigned>(random()));
        w.write(bytes, offset);
        std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
        REQUIRE((value(w) == model));  // parenthesised: Catch would print megabytes
      }
      shelf.persist();
      REQUIRE((value(w, true) == model));
    }
  }
}

TEST_CASE("a partial update copies forward only what differs") {
  Bench bench;
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", 16 * kMiB);
  w.write(pattern(16 * kMiB, 1));
  shelf.persist();
  w.write(pattern(kMiB, 2), 3 * kMiB);  // the other slot holds nothing yet: all else is copied
  shelf.persist();
  CHECK(shelf.stats().bytes_copied_forward == 15 * kMiB);
  w.write(pattern(kMiB, 3), 5 * kMiB);  // now only chunk 3 differs between the slots
  shelf.persist();
  CHECK(shelf.stats().bytes_copied_forward == 16 * kMiB);
  w.write(pattern(kMiB, 4), 5 * kMiB);  // and chunk 5 is overwritten whole
  shelf.persist();
  CHECK(shelf.stats().bytes_copied_forward == 16 * kMiB);
}

TEST_CASE("of a chunk that both slots have, an update writes the pages that it changes") {
  Bench bench;
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", 4 * kMiB + 100);
  auto model = pattern(4 * kMiB + 100, 1);
  w.write(model);
  shelf.persist();
  w.write(std::span(model).first(kMiB));  // the rest is copied forward
  shelf.persist();
  const auto put = [&](std::uint64_t offset, std::uint64_t size, unsigned seed) {
    const auto bytes = pattern(size, seed);
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    const std::uint64_t before = shelf.stats().medium_bytes;
    w.write(bytes, offset);
    return shelf.stats().medium_bytes - before;
  };
  CHECK(put(2 * kMiB + 5000, 100, 2) == kPageBytes);
  CHECK(put(2 * kMiB + 5100, 100, 3) == kPageBytes);   // what the attempt has already
  CHECK(put(3 * kMiB - 10, 20, 4) == 2 * kPageBytes);  // in two chunks
  CHECK(put(4 * kMiB + 50, 10, 5) == 100);             // where the tensor ends
  shelf.persist();
  CHECK((value(w, true) == model));
  CHECK(put(2 * kMiB, 10, 6) == kMiB);  // not in the slot that is free now
  shelf.persist();
  CHECK((value(w, true) == model));
  CHECK(shelf.verify().damage.empty());
  w.write(std::vector<std::byte>(3), 3 * kMiB + 9);
  shelf.discard();
  shelf.persist();
  CHECK((value(w, true) == model));
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("create, replace and erase take effect at the flip, all together") {
  Bench bench;
  {
    Shelf shelf = bench.open();
    make(shelf, "a", 10).write(pattern(10, 1));
    make(shelf, "b", 10).write(pattern(10, 2));
    shelf.persist();
    shelf.erase("a");
    shelf.replace("b", DType::uint8, std::vector<std::int64_t>{20}).write(pattern(20, 3));
    make(shelf, "c", 5);
    CHECK(shelf.names() == std::vector<std::string>{"b", "c"});
  }
  {
    Shelf shelf = bench.open();
    CHECK(shelf.names() == std::vector<std::string>{"a", "b"});
    CHECK(value(*shelf.find("b")) == pattern(10, 2));
    shelf.erase("a");
    shelf.replace("b", DType::uint8, std::vector<std::int64_t>{20}).write(pattern(20, 3));
    make(shelf, "c", 5);
    shelf.persist();
  }
  Shelf shelf = bench.open();
  CHECK(shelf.names() == std::vector<std::string>{"b", "c"});
  CHECK(value(*shelf.find("b")) == pattern(20, 3));
  CHECK(value(*shelf.find("c")) == std::vector<std::byte>(5));
}

TEST_CASE("erased space is used again, and churn does not grow the shelf without end") {
  Bench bench;
  Shelf shelf = bench.open();
  std::uint64_t capacity = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string name = "t" + std::to_string(round);
    make(shelf, name.c_str(), 300'000 + round * 1000).write(pattern(1000, 1));
    if (round > 0) shelf.erase("t" + std::to_string(round - 1));
    shelf.persist();
    if (round == 20) capacity = shelf.info().capacity_bytes;
  }
  CHECK(shelf.info().capacity_bytes <= capacity + kMiB);
  CHECK(shelf.info().tensors == 1);
}

TEST_CASE("tensors that come and go leave neither more nor less room") {
  const std::int64_t size = GENERATE(100, 20'000, 260'000, 300'000);
  Bench bench;
  Shelf shelf = bench.open();
  make(shelf, "stays", 5000).write(pattern(5000, 1));
  std::vector<std::uint64_t> free;
  std::vector<std::uint64_t> capacity;
  for (int round = 0; round < 120; ++round) {
    for (int i = 0; i < 7; ++i) make(shelf, "t" + std::to_string(i), size).write(pattern(50, 2));
    shelf.persist();
    for (int i = 0; i < 7; ++i) shelf.erase("t" + std::to_string(i));
    shelf.persist();
    free.push_back(shelf.info().free_bytes);
    capacity.push_back(shelf.info().capacity_bytes);
  }
  // What is set aside for small tensors grows at first, to a limit, and comes and goes after that.
  CHECK(capacity.back() == capacity[60]);
  if (size > 256 * 1024) CHECK(free.back() == free[60]);
  shelf.close();
  CHECK(bench.open().info().free_bytes >= free.back());  // what was set aside is free again
}

TEST_CASE("names that come and go leave a manifest of the same size, in whatever order they go") {
  const auto seed = Catch::rngSeed();
  const bool oldest_first = GENERATE(true, false);  // else any
  CAPTURE(seed, oldest_first);
  std::mt19937_64 random(seed);
  const Bench bench;
  Shelf shelf = bench.open();
  std::vector<std::string> live;
  std::vector<std::uint64_t> capacity;
  for (int round = 0; round < 600; ++round) {
    live.push_back(std::to_string(1000 + round) + std::string(1000, 'n'));  // three fill a page
    make(shelf, live.back(), 0);
    if (live.size() > 30) {
      const std::size_t goes = oldest_first ? 0 : random() % live.size();
      shelf.erase(live[goes]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(goes));
    }
    if (round % 10 == 0) shelf.persist();
    capacity.push_back(shelf.info().capacity_bytes);
  }
  CHECK(capacity.back() == capacity[100]);
  CHECK(shelf.names().size() == 30);
}

TEST_CASE("a create that is refused half-way gives back what it took") {
  Bench bench(8 * kMiB);
  Shelf shelf = bench.open();
  make(shelf, "w", 5 * kMiB / 2).write(pattern(100, 1));
  shelf.persist();
  const std::uint64_t before = shelf.info().free_bytes;
  for (int i = 0; i < 20; ++i) {  // one slot of it would fit, two do not
    CHECK(code_of([&] { make(shelf, "x", 2 * kMiB); }) == Errc::full);
  }
  CHECK(shelf.info().free_bytes >= before);
  make(shelf, "y", 300'000).write(pattern(300'000, 2));
  shelf.persist();
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("thousands of tensors, of every awkward size, under one flip") {
  Bench bench;
  const std::vector<std::int64_t> sizes = {0, 1, 7, 4095, 4096, 4097, 10000};
  {
    Shelf shelf = bench.open();
    for (int i = 0; i < 2000; ++i) {
      const auto size = sizes[static_cast<std::size_t>(i) % sizes.size()];
      make(shelf, ("layer." + std::to_string(i)).c_str(), size)
          .write(pattern(static_cast<std::size_t>(size), static_cast<unsigned>(i)));
    }
    shelf.persist(1);
  }
  Shelf shelf = bench.open(Mode::update, Verify::on_open);
  CHECK(shelf.info().tensors == 2000);
  for (int i = 0; i < 2000; ++i) {
    const auto tensor = shelf.find("layer." + std::to_string(i));
    REQUIRE(tensor);
    const auto size = static_cast<std::size_t>(sizes[static_cast<std::size_t>(i) % sizes.size()]);
    REQUIRE(value(*tensor) == pattern(size, static_cast<unsigned>(i)));
  }
}

TEST_CASE("a full shelf refuses create, never persist, and loses nothing") {
  Bench bench(8 * kMiB);
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", kMiB);
  w.write(pattern(kMiB, 1));
  shelf.persist();
  CHECK(code_of([&] { make(shelf, "big", 5 * kMiB); }) == Errc::full);
  int small = 0;
  CHECK(code_of([&] {
          for (;; ++small) {
            make(shelf, ("s" + std::to_string(small)).c_str(), 5000).write(pattern(5000, 1));
            if (small % 10 == 0) shelf.persist();
          }
        }) == Errc::full);
  CHECK(small > 100);
  for (unsigned version = 0; version < 20; ++version) {
    w.write(pattern(kMiB, version));
    for (int i = 0; i < small; ++i) {
      shelf.find("s" + std::to_string(i))->write(pattern(5000, version));
    }
    shelf.persist();
  }
  Shelf closing = std::move(shelf);
  closing.close();
  Shelf again = bench.open();
  CHECK(value(*again.find("w")) == pattern(kMiB, 19));
  again.find("w")->write(pattern(kMiB, 50));
  CHECK(again.persist().version > 20);
}

TEST_CASE("a lease pins its slot: no write touches it, and the error says so") {
  Bench bench;
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", 2 * kMiB);
  w.write(pattern(2 * kMiB, 1));
  shelf.persist();
  auto view = std::make_unique<Lease>(w.lease());
  CHECK(view->in_place());
  w.write(pattern(2 * kMiB, 2));  // the other slot
  shelf.persist();
  CHECK(code_of([&] { w.write(pattern(10, 3)); }) == Errc::leased);
  const auto expected = pattern(2 * kMiB, 1);
  CHECK(std::equal(expected.begin(), expected.end(), view->bytes().begin()));
  shelf.erase("w");
  shelf.persist();
  make(shelf, "other", 2 * kMiB).write(pattern(2 * kMiB, 4));  // may not take the pinned slot
  shelf.persist();
  CHECK(std::equal(expected.begin(), expected.end(), view->bytes().begin()));
  shelf.close();
  CHECK(std::equal(expected.begin(), expected.end(), view->bytes().begin()));
}

TEST_CASE("a handle to an erased tensor never shows what came to lie in its slots") {
  Bench bench;
  Shelf shelf = bench.open();
  auto dead = make(shelf, "dead", 4096);
  dead.write(pattern(4096, 1));
  shelf.persist();
  CHECK((value(dead, true) == pattern(4096, 1)));
  shelf.erase("dead");
  CHECK((value(dead, true) == pattern(4096, 1)));  // still the committed version
  shelf.persist();
  for (int i = 0; i < 8; ++i) {
    make(shelf, ("other" + std::to_string(i)).c_str(), 4096).write(pattern(4096, 7));
  }
  shelf.persist();
  CHECK(code_of([&] { value(dead, true); }) == Errc::unknown_name);
  CHECK(code_of([&] { dead.lease_committed(); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(dead); }) == Errc::unknown_name);
}

TEST_CASE("a handle to a replaced tensor shows its committed value as long as there is one") {
  Bench bench(64 * kMiB, GENERATE(true, false));
  Shelf shelf = bench.open();
  TensorRef old = make(shelf, "w", 4096);
  old.write(pattern(4096, 1));
  shelf.persist();
  TensorRef fresh = shelf.replace("w", DType::uint8, std::vector<std::int64_t>{5000});
  fresh.write(pattern(5000, 2));
  CHECK(code_of([&] { value(old); }) == Errc::unknown_name);
  CHECK((value(old, true) == pattern(4096, 1)));
  CHECK(code_of([&] { value(fresh, true); }) == Errc::unknown_name);
  CHECK(old.info().version == 1);
  CHECK(fresh.info().version == 0);
  shelf.persist();
  for (int i = 0; i < 8; ++i) {  // what it owned is theirs
    make(shelf, "other" + std::to_string(i), 4096).write(pattern(4096, 7));
  }
  shelf.persist();
  const auto error = error_of([&] { value(old, true); });
  REQUIRE(error);
  CHECK(error->code() == Errc::unknown_name);
  CHECK(contains(error->what(), "'w' was erased or replaced"));
  CHECK(code_of([&] { old.lease_committed(); }) == Errc::unknown_name);
  CHECK(code_of([&] { old.write(pattern(10, 3)); }) == Errc::unknown_name);
  CHECK(old.info().version == 0);
  CHECK(fresh.info().version == 2);
  CHECK((value(fresh, true) == pattern(5000, 2)));
}

TEST_CASE("a refused create sets nothing aside") {
  Bench bench(16 * kMiB);
  Shelf shelf = bench.open();
  make(shelf, "w", kMiB).write(pattern(kMiB, 1));
  shelf.persist();
  const std::uint64_t capacity = shelf.info().capacity_bytes;
  const std::uint64_t free = shelf.info().free_bytes;
  for (const std::int64_t size : {std::int64_t{9} << 20, std::int64_t{1} << 40}) {
    CHECK(code_of([&] { make(shelf, "big", size); }) == Errc::full);
  }
  CHECK(shelf.info().capacity_bytes == capacity);
  CHECK(shelf.info().free_bytes == free);
  make(shelf, "fits", 5 * kMiB).write(pattern(kMiB, 2));
  CHECK(shelf.persist().version == 2);
}

TEST_CASE("a reader beside a writer gets the version it opened, or is told that it is gone") {
  Bench bench(64 * kMiB, GENERATE(true, false));
  const std::uint64_t size = GENERATE(as<std::uint64_t>{}, kMiB, 2 * kMiB + 100);
  CAPTURE(bench.mapped, size);
  Shelf writer = bench.open();
  auto w = make(writer, "w", static_cast<std::int64_t>(size));
  w.write(pattern(size, 1));
  writer.persist();
  for (const Verify verify : {Verify::on_load, Verify::never}) {
    w.write(pattern(size, 2));
    const std::uint64_t version = writer.persist().version;
    Shelf reader = bench.open(Mode::read, verify);
    CHECK(reader.info().version == version);
    CHECK((value(*reader.find("w")) == pattern(size, 2)));
    make(writer, verify == Verify::never ? "big" : "huge", 8 * kMiB);  // the medium grows meanwhile
    w.write(pattern(size, 3));
    writer.persist();
    CHECK((value(*reader.find("w")) == pattern(size, 2)));  // its slot is not yet used again
    w.write(pattern(size, 4));
    CHECK(code_of([&] { value(*reader.find("w")); }) == Errc::stale);
    CHECK((value(*bench.open(Mode::read, verify).find("w")) == pattern(size, 3)));
    writer.persist();
  }
}

TEST_CASE("without a step, the last one stated stays") {
  Bench bench;
  Shelf shelf = bench.open();
  CHECK_FALSE(shelf.persist().step);
  CHECK(shelf.persist(50).step == 50U);
  CHECK(shelf.persist().step == 50U);
  shelf.close();
  CHECK(bench.open().info().step == 50U);
}

TEST_CASE(
    "a tensor may have the longest name and the most dimensions that there are, and no more") {
  Bench bench;
  std::vector<std::int64_t> shape(kMaxDims, 1);
  shape[40] = 100;
  const std::string name(kMaxNameBytes, 'n');
  {
    Shelf shelf = bench.open();
    shelf.create(name, DType::uint8, shape).write(pattern(100, 1));
    shelf.persist();
    CHECK(code_of([&] { make(shelf, name + "n", 5); }) == Errc::bad_name);
    shape.push_back(1);
    CHECK(code_of([&] { shelf.create("x", DType::uint8, shape); }) == Errc::layout);
    shape.pop_back();
  }
  const Shelf shelf = bench.open();
  const TensorRef w = shelf.find(name).value();
  CHECK(w.info().shape == shape);
  CHECK((value(w) == pattern(100, 1)));
}

TEST_CASE("errors of use name themselves") {
  Bench bench;
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", 100);
  const std::vector<std::int64_t> negative = {-1};
  const std::vector<std::int64_t> shape = {4};
  CHECK(code_of([&] { w.write(pattern(10, 1), 95); }) == Errc::layout);
  CHECK(code_of([&] { make(shelf, "w", 5); }) == Errc::name_taken);
  CHECK(code_of([&] { make(shelf, "", 5); }) == Errc::bad_name);
  CHECK(code_of([&] { make(shelf, "\xff", 5); }) == Errc::bad_name);
  CHECK(code_of([&] { shelf.create("x", DType::float32, negative); }) == Errc::layout);
  CHECK(code_of([&] { shelf.erase("nothing"); }) == Errc::unknown_name);
  CHECK(code_of([&] { shelf.replace("nothing", DType::float32, shape); }) == Errc::unknown_name);
  CHECK(code_of([&] { value(w, true); }) == Errc::unknown_name);
  shelf.erase("w");
  CHECK(code_of([&] { value(w); }) == Errc::unknown_name);
  shelf.close();
  shelf.close();
  CHECK(code_of([&] { shelf.persist(); }) == Errc::closed);
  CHECK(code_of([&] { value(w); }) == Errc::closed);
  Shelf reader = bench.open(Mode::read);
  CHECK(code_of([&] { reader.persist(); }) == Errc::read_only);
}

TEST_CASE("damage is found when loaded, on demand and at open, and healed by assigning") {
  Bench bench;
  {
    Shelf shelf = bench.open();
    make(shelf, "good", 100).write(pattern(100, 1));
    make(shelf, "w", 2 * kMiB).write(pattern(2 * kMiB, 2));
    shelf.persist();
  }
  Extent where;
  {
    Shelf shelf = bench.open();
    const auto view = shelf.find("w")->lease().bytes();
    const auto base = bench.medium->view({0, kPageBytes});
    where.at = static_cast<std::uint64_t>(view.data() - base.data());
  }
  const auto bad = pattern(100, 9);
  bench.medium->write(where.at + kMiB, bad, 0);
  CHECK(code_of([&] { bench.open(Mode::update, Verify::on_open); }) == Errc::corrupt);
  CHECK(code_of([&] { bench.open(Mode::read, Verify::on_open); }) == Errc::corrupt);
  Shelf shelf = bench.open();
  const auto report = shelf.verify();
  REQUIRE(report.damage.size() == 1);
  CHECK(report.damage[0].tensor == "w");
  CHECK(report.damage[0].chunk == 1);
  CHECK(code_of([&] { value(*shelf.find("w")); }) == Errc::corrupt);
  CHECK(code_of([&] { shelf.find("w")->write(pattern(10, 1), kMiB); }) == Errc::corrupt);
  CHECK(value(*shelf.find("good")) == pattern(100, 1));
  // A partial write elsewhere cannot carry the damage forward in silence.
  shelf.find("w")->write(pattern(10, 1), 0);
  CHECK(code_of([&] { shelf.persist(); }) == Errc::corrupt);
  shelf.find("w")->write(pattern(2 * kMiB, 3));
  shelf.persist();
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("threads write different tensors while others read and one persists") {
  Bench bench;
  Shelf shelf = bench.open();
  std::vector<TensorRef> tensors;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(make(shelf, ("t" + std::to_string(i)).c_str(), 300'000));
  }
  shelf.persist();
  std::vector<std::thread> threads;
  std::atomic<int> torn = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    threads.emplace_back([&, i] {
      for (unsigned round = 1; round <= 30; ++round) {
        tensors[i].write(std::vector<std::byte>(300'000, static_cast<std::byte>(round)));
      }
    });
    threads.emplace_back([&, i] {
      for (int round = 0; round < 30; ++round) {
        const auto now = value(tensors[i], true);
        if (std::adjacent_find(now.begin(), now.end(), std::not_equal_to<>()) != now.end()) ++torn;
      }
    });
  }
  threads.emplace_back([&] {
    for (int round = 0; round < 20; ++round) {
      if (round % 2 == 0) {
        shelf.persist();
      } else {
        shelf.persist_async().wait();
      }
    }
  });
  for (auto& thread : threads) thread.join();
  CHECK(torn == 0);
  shelf.persist();
  for (const auto& tensor : tensors) CHECK(value(tensor)[0] == std::byte{30});
  CHECK(shelf.verify().damage.empty());
}

TEST_CASE("persist_async returns a version closed to later writes") {
  Bench bench;
  Shelf shelf = bench.open();
  auto w = make(shelf, "w", 8 * kMiB);
  w.write(pattern(8 * kMiB, 1));
  const auto first = shelf.persist_async(1);
  w.write(pattern(8 * kMiB, 2));
  CHECK(first.get().version == 1);
  CHECK(value(w, true) == pattern(8 * kMiB, 1));
  shelf.persist_async(2);
  shelf.close();
  CHECK(value(*bench.open().find("w")) == pattern(8 * kMiB, 2));
}
