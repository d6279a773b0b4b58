// Saves by a pipeline: the order of a plan, which lines are probed, who rests and who does not, and
// a file that goes away meanwhile.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tensorshelf/pipeline.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fault_guard.hpp"
#include "catch.hpp"
#include "fed_shelf.hpp"
#include "feed/access.hpp"
#include "feed/save.hpp"
#include "held_medium.hpp"
#include "scratch.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

TensorRef make_bytes(Shelf& shelf, const std::string& name, std::uint64_t size) {
  const std::array shape = {static_cast<std::int64_t>(size)};
  return shelf.create(name, DType::uint8, shape);
}

Source source(const TensorRef& target, const Bytes& bytes, bool lazy = true) {
  return {target, std::span<const std::byte>(bytes), lazy};
}

std::shared_ptr<const SavePlan> plan_of(std::vector<Source> sources) {
  return std::make_shared<const SavePlan>(std::move(sources));
}

}  // namespace

TEST_CASE("a plan has its eager sources first, and keeps the order of each kind") {
  Fed fed;
  const Bytes bytes(8);
  std::vector<Source> sources;
  for (const char* name : {"a", "b", "C", "d", "E"}) {
    sources.push_back(source(make_bytes(fed.shelf, name, 8), bytes, *name >= 'a'));
  }
  std::string order;
  const auto plan = plan_of(std::move(sources));
  for (const Source& each : plan->sources()) order += each.target.info().name;
  CHECK(order == "CEabd");
}

TEST_CASE("a pipeline is asked for no less niceness than there is") {
  Fed fed;
  std::thread([&] {  // has a nice value of its own
    const auto thread = static_cast<id_t>(::gettid());
    const int own = std::min(19, std::max(::getpriority(PRIO_PROCESS, thread) + 1, 5));
    REQUIRE(::setpriority(PRIO_PROCESS, thread, own) == 0);
    const auto error = error_of([&] { Pipeline pipeline(fed.shelf, {.nice = own - 1}); });
    REQUIRE(error);
    CHECK(error->code() == Errc::bad_argument);
    CHECK(error->remedy().find(std::to_string(own)) != std::string::npos);
    for (const int nice : {0, own}) {
      Pipeline pipeline(fed.shelf, {.nice = nice});
      pipeline.save(fed.plan()).value().wait_durable();
    }
  })
      .join();
}

TEST_CASE("a plan tells which of its tensors were erased or renamed") {
  Fed fed;
  const Bytes bytes(8);
  std::vector<Source> sources;
  for (const char* name : {"a", "b", "c", "d"}) {
    sources.push_back(source(make_bytes(fed.shelf, name, 8), bytes, *name != 'd'));
  }
  const auto plan = plan_of(std::move(sources));
  const auto told = [&] {
    std::string all;
    for (const auto& [name, name_now] : plan->departed()) all += name + ">" + name_now + " ";
    return all;
  };
  CHECK(told().empty());
  fed.shelf.rename("b", "elsewhere");
  fed.shelf.erase("c");
  CHECK(told() == "b>elsewhere c>c ");
  make_bytes(fed.shelf, "c", 8);  // another one, with its name
  fed.shelf.rename("d", "last");
  CHECK(told() == "d>last b>elsewhere c>c ");
  fed.shelf.rename("elsewhere", "b");
  CHECK(told() == "d>last c>c ");
}

TEST_CASE("several workers take the largest sources of each kind first, one as they were given") {
  Fed fed;
  const Bytes bytes(300);
  struct Row {
    const char* name;
    std::size_t size;
  };
  std::vector<Source> sources;
  for (const auto& [name, size] :
       {Row{"a", 100}, Row{"b", 300}, Row{"C", 100}, Row{"d", 200}, Row{"E", 200}, Row{"f", 300}}) {
    const auto part = std::span<const std::byte>(bytes).first(size);
    sources.push_back({make_bytes(fed.shelf, name, size), part, *name >= 'a'});
  }
  const auto plan = plan_of(std::move(sources));
  std::string order;
  for (const std::size_t at : plan->largest_first())
    order += plan->sources()[at].target.info().name;
  CHECK(order == "ECbfda");
  const Save save(FeedAccess::store(fed.shelf), plan, {}, {}, 0);
  for (const unsigned workers : {1U, 2U}) {
    std::string turns;
    for (std::size_t turn = 0; turn < 6; ++turn) turns += save.at(turn, workers).target.info().name;
    CHECK(turns == (workers == 1 ? "CEabdf" : order));
  }
  fed.shelf.persist();
  for (const unsigned workers : {1U, 2U}) {
    CAPTURE(workers);
    Pipeline pipeline(fed.shelf, {.workers = workers, .trace = true});
    const auto ticket = pipeline.save(plan).value();
    ticket.wait_durable();
    std::set<std::size_t> copied;
    std::string lazy;
    for (const CopyTimes& each : ticket.copies()) {
      CHECK(copied.insert(each.source).second);
      if (workers == 1) lazy += plan->sources()[each.source].target.info().name;
    }
    CHECK(copied.size() == 6);
    if (workers == 1) CHECK(lazy == "CEabdf");
  }
}

TEST_CASE("which line of a source is probed goes round") {
  Fed fed;
  constexpr std::uint64_t kLines = 8;
  Bytes probed(kLines * 64);
  const Bytes other(10);
  const auto plan = plan_of({source(make_bytes(fed.shelf, "probed", probed.size()), probed),
                             source(make_bytes(fed.shelf, "other", other.size()), other)});
  fed.shelf.persist();
  unsigned writes = 0;
  fed.hook->before_write = [&] {
    if (++writes == 2) probed[3 * 64] ^= std::byte{1};  // behind its copy, always the same line
  };
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  unsigned torn = 0;
  for (unsigned round = 0; round < 200; ++round) {
    writes = 0;
    const auto ticket = pipeline.save(plan).value();
    torn += error_of([&] { ticket.wait_durable(); }).has_value();
  }
  CHECK(torn > 0);
  CHECK(torn < 200);
}

TEST_CASE("who has given up waiting no longer lifts the limit of a save's rate") {
  Fed fed;
  const Bytes large(64 * kChunkBytes);  // 16 pieces
  const auto plan = plan_of({source(make_bytes(fed.shelf, "large", large.size()), large)});
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf, {.bytes_per_second = 1});
  const auto ticket = pipeline.save(plan).value();
  CHECK_FALSE(ticket.wait_staged_for(std::chrono::nanoseconds(0)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end && !ticket.staged()) std::this_thread::yield();
  CHECK_FALSE(ticket.staged());
  ticket.wait_durable();
}

TEST_CASE("a rate holds for all of a save, and not for its first piece alone") {
  Fed fed;
  const Bytes large(64 * kChunkBytes);  // 16 pieces
  const auto plan = plan_of({source(make_bytes(fed.shelf, "large", large.size()), large)});
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf, {.bytes_per_second = 32 * kChunkBytes});  // 2 s
  const auto ticket = pipeline.save(plan).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end && !ticket.staged()) std::this_thread::yield();
  CHECK_FALSE(ticket.staged());
  ticket.wait_durable();
}

TEST_CASE("a rate holds for what is copied in one piece, too") {
  Fed fed;
  const Bytes one(kPageBytes);
  const Bytes other(kPageBytes);
  const bool together = GENERATE(false, true);
  std::vector<Source> sources = {source(make_bytes(fed.shelf, "one", one.size()), one)};
  if (together) sources.push_back(source(make_bytes(fed.shelf, "other", other.size()), other));
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf, {.bytes_per_second = 1, .trace = true});
  const auto ticket = pipeline.save(plan_of(std::move(sources))).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end && !ticket.staged()) std::this_thread::yield();
  CHECK_FALSE(ticket.staged());
  CHECK(ticket.copies().empty());  // it rests behind the first source
  ticket.wait_durable();
  CHECK(ticket.copies().size() == (together ? 2 : 1));
}

TEST_CASE("closing a pipeline tells what the save that it waits for fails with") {
  Fed fed;
  Pipeline pipeline(fed.shelf);
  const auto plan = fed.plan();
  fed.shelf.erase("second");
  fed.shelf.persist();
  pipeline.save(plan, 2);
  CHECK(code_of([&] { pipeline.close(); }) == Errc::unknown_name);
  CHECK(fed.shelf.persist(3).version == 3);
}

TEST_CASE("a source whose file is cut short behind its copy is no end of the process") {
  arm_fault_guard();  // as a mapped medium does
  Fed fed;
  const scratch::Directory dir("/dev/shm");
  const std::string path = dir / "source";
  constexpr std::uint64_t kSize = 3 * kChunkBytes;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(::ftruncate(fd, kSize) == 0);
  void* const mapped = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(mapped != MAP_FAILED);
  const Source cut{make_bytes(fed.shelf, "cut", kSize),
                   std::span<const std::byte>(static_cast<std::byte*>(mapped), kSize), true};
  const auto plan = plan_of({cut, source(fed.tensor(1), fed.sources[1])});
  fed.shelf.persist();
  unsigned writes = 0;
  fed.hook->before_write = [&] {  // of the other one, first
    if (++writes == 4) CHECK(::ftruncate(fd, kSize - kChunkBytes) == 0);
  };
  Pipeline pipeline(fed.shelf, {.check_one_in = 1});
  CHECK(code_of([&] { pipeline.save(plan, 2).value().wait_durable(); }) == Errc::torn);
  CHECK(fed.shelf.persist(3).version == 3);
  ::munmap(mapped, kSize);
  ::close(fd);
}

TEST_CASE("several workers copy at once") {
  Fed fed;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> inside;
  const auto me = std::this_thread::get_id();
  fed.hook->before_write = [&] {
    if (std::this_thread::get_id() == me) return;
    std::unique_lock lock(mutex);
    inside.insert(std::this_thread::get_id());
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return inside.size() >= 2; });
  };
  Pipeline pipeline(fed.shelf, {.workers = 2});
  pipeline.save(fed.plan(), 2).value().wait_durable();
  CHECK(inside.size() >= 2);
}

TEST_CASE("a pipeline with a save that waited for its turn is not drained") {
  for (unsigned round = 0; round < 60; ++round) {
    Fed fed;
    Pipeline pipeline(fed.shelf);
    const auto plan = plan_of({source(fed.tensor(1), fed.sources[1])});  // four chunks
    std::atomic<unsigned> may = 0;                                       // so many copies
    std::atomic<unsigned> came = 0;
    fed.hook->before_write = [&] {
      const unsigned own = came++;
      while (may <= own) std::this_thread::yield();
    };
    pipeline.save(plan, 2);
    std::optional<SaveTicket> second;
    std::thread saver([&] { second = pipeline.save(plan, 3); });
    std::this_thread::yield();
    may = 4;
    saver.join();
    while (came < 5) std::this_thread::yield();
    REQUIRE_FALSE(pipeline.drain_for(std::chrono::nanoseconds(1)));
    may = 100;
    second->wait_durable();
  }
}

TEST_CASE("a file that loses its name while a save is staged is told, and nothing is left of it") {
  const scratch::Directory dir("/dev/shm");
  Shelf shelf = Shelf::open(dir / "run.shelf");
  const Bytes large = pattern(12 * kChunkBytes, 1);
  const auto plan = plan_of({source(make_bytes(shelf, "large", large.size()), large)});
  shelf.persist(1);
  Pipeline pipeline(shelf, {.bytes_per_second = 1});  // it rests behind the first piece
  const auto ticket = pipeline.save(plan, 2).value();
  const bool replaced = GENERATE(false, true);
  if (replaced) {
    scratch::put(dir / "other", "");
    std::filesystem::rename(dir / "other", dir / "run.shelf");
  } else {
    std::filesystem::remove(dir / "run.shelf");
  }
  CHECK(code_of([&] { ticket.wait_durable(); }) == Errc::gone);
  CHECK(shelf.info().step == 1U);
  CHECK_FALSE(shelf.has_uncommitted());
}
