// Saves of device memory by a pipeline, on a runtime of host memory (fake_cudart.hpp): each is of
// the moment at which it was begun, and waits for nothing that is queued later.
#include <tensorshelf/pipeline.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "fake_cudart.hpp"
#include "fed_shelf.hpp"
#include "feed/cuda/copies.hpp"
#include "feed/cuda/lanes.hpp"
#include "feed/device_lines.hpp"
#include "held_medium.hpp"
#include "thrown.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t kSize = 9 * kChunkBytes + 13;  // two pieces

// "host", "one" and "two" are lazy, and saved in that order; the latter lie on devices 0 and 1.
struct OnDevices {
  Fed fed;
  std::array<Bytes, 2> memory = {Bytes(kSize, std::byte{1}), Bytes(kSize, std::byte{1})};
  CUstream_st first{.device = 0, .work = {}};
  CUstream_st second{.device = 1, .work = {}};
  std::vector<TensorRef> tensors;

  OnDevices() {
    fake::cuda() = {};
    fake::cuda().early = GENERATE(false, true);
    fake::cuda().in_use = {0, 1};
    for (int i = 0; i < 2; ++i) {
      fake::add_memory(memory[i].data(), kSize, i);
      const std::array shape = {static_cast<std::int64_t>(kSize)};
      tensors.push_back(fed.shelf.create(i == 0 ? "one" : "two", DType::uint8, shape));
    }
    fed.shelf.persist(1);
  }

  Source source(int i, bool lazy = true) {
    return {tensors[i], DeviceBytes{memory[i].data(), kSize, i == 0 ? &first : &second}, lazy};
  }
  std::shared_ptr<const SavePlan> plan() {
    return std::make_shared<const SavePlan>(std::vector<Source>{
        {fed.tensor(1), std::span<const std::byte>(fed.sources[1]), true}, source(0), source(1)});
  }
  void fill(int i, int value) {  // when its stream gets there
    fake::queue(i == 0 ? &first : &second,
                [this, i, value] { std::memset(memory[i].data(), value, kSize); });
  }
  // All bytes of it, where they are alike.
  std::optional<int> committed(int i) {
    Bytes bytes(kSize);
    tensors[i].read_committed(bytes);
    if (std::memcmp(bytes.data(), bytes.data() + 1, kSize - 1) != 0) return std::nullopt;
    return static_cast<int>(bytes[0]);
  }
  void hold_copies(Door& door) {
    door.shut();
    fed.hook->before_write = [&door] { door.pass(); };
  }
};

}  // namespace

TEST_CASE_METHOD(OnDevices,
                 "lazy device memory is saved as of the save, whatever is queued later") {
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf,
                                   PipelineOptions{.workers = GENERATE(1U, 3U), .check_one_in = 1});
  const auto saved = plan();
  for (int step = 2; step < 5; ++step) {
    CAPTURE(step);
    Door door;
    hold_copies(door);
    for (int i = 0; i < 2; ++i) fill(i, 10 * step + i);
    const auto ticket = pipeline->save(saved, step).value();
    for (int i = 0; i < 2; ++i) fill(i, 10 * step + 5);  // the next step's, which is queued early
    door.open();
    ticket.wait_durable();
    for (int i = 0; i < 2; ++i) {
      CHECK(committed(i) == 10 * step + i);
      CHECK(memory[i][kSize - 1] == static_cast<std::byte>(10 * step + i));  // nobody ran ahead
    }
    CHECK(first.work.size() == 2);  // the lines of the save, and what is queued behind them
    CHECK(second.work.size() == 2);
  }
  pipeline.reset();
  CHECK(fake::cuda().disturbed == 0);
  CHECK(fake::cuda().events == 3 * fake::cuda().streams);  // those of what is kept for later copies
}

TEST_CASE_METHOD(OnDevices, "eager device memory is copied when save() returns") {
  Pipeline pipeline(fed.shelf);
  const auto saved =
      std::make_shared<const SavePlan>(std::vector<Source>{source(0, false), source(1)});
  fill(0, 7);
  fill(1, 8);
  const auto ticket = pipeline.save(saved, 2).value();
  CHECK(first.work.empty());
  memory[0][1] = std::byte{99};
  ticket.wait_durable();
  CHECK(committed(0) == 7);
  CHECK(committed(1) == 8);
}

TEST_CASE_METHOD(OnDevices, "small eager sources are queued, and the host does not wait for them") {
  const std::array<std::int64_t, 1> shape = {1000};
  std::vector<TensorRef> small;
  std::vector<Source> sources;
  for (int i = 0; i < 3; ++i) {
    small.push_back(fed.shelf.create("small" + std::to_string(i), DType::uint8, shape));
    // Two of the first device's, and one of the other's.
    sources.push_back(
        {small[i], DeviceBytes{memory[i / 2].data() + 1000 * i, 1000, i < 2 ? &first : &second}});
  }
  fed.shelf.persist();
  sources.push_back({fed.tensor(0), std::span<const std::byte>(fed.sources[0])});
  const auto saved = std::make_shared<const SavePlan>(std::move(sources));
  fake::cuda().managed = GENERATE(false, true);
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf);
  for (int step = 2; step < 5; ++step) {
    for (int i = 0; i < 2; ++i) fill(i, step);
    const auto ticket = pipeline->save(saved, step).value();
    for (int i = 0; i < 2; ++i) fill(i, 99);  // behind the copies
    CHECK(cudaStreamSynchronize(&first) == cudaSuccess);
    CHECK(cudaStreamSynchronize(&second) == cudaSuccess);
    ticket.wait_durable();
    for (TensorRef& tensor : small) {
      Bytes bytes(1000);
      tensor.read_committed(bytes);
      CHECK(bytes == Bytes(1000, static_cast<std::byte>(step)));
    }
    CHECK(memory[0][0] == std::byte{99});
  }
  pipeline.reset();
  CHECK(fake::cuda().events == 3 * fake::cuda().streams);
  CHECK(fake::cuda().disturbed == 6);  // by our own waits above
}

TEST_CASE_METHOD(OnDevices,
                 "who waits for small eager sources is the pipeline, for managed ones save()") {
  const std::array<std::int64_t, 1> shape = {1000};
  TensorRef small = fed.shelf.create("small", DType::uint8, shape);
  fed.shelf.persist();
  const auto saved = std::make_shared<const SavePlan>(
      std::vector<Source>{{small, DeviceBytes{memory[0].data(), 1000, &first}}});
  fake::cuda().managed = GENERATE(false, true);
  fake::cuda().early = false;  // else save() runs what it queues
  std::thread::id ran;
  fake::queue(&first, [&] { ran = std::this_thread::get_id(); });
  Pipeline pipeline(fed.shelf);
  pipeline.save(saved, 2).value().wait_durable();
  CHECK((ran == std::this_thread::get_id()) == fake::cuda().managed);
}

TEST_CASE_METHOD(OnDevices, "device memory that changed while it was copied is told") {
  const bool in_parts = GENERATE(false, true);
  CAPTURE(in_parts);
  Source changing = source(0);
  if (in_parts) {  // of which the last comes first
    constexpr std::int64_t kPart = kSize / 11;
    static_assert(kPart * 11 == kSize);
    auto& bytes = std::get<DeviceBytes>(changing.bytes);
    bytes.data = memory[0].data() + 10 * kPart;
    bytes.axes = {{11, -kPart}};
  }
  const std::span<const std::byte> host(fed.sources[1]);
  const auto saved = std::make_shared<const SavePlan>(
      std::vector<Source>{{fed.tensor(1), host, true}, changing, source(1)});
  Pipeline pipeline(fed.shelf, {.check_one_in = 1});
  int writes = 0;
  // Behind the chunks of "host" and of "one"; eight of the latter are compared at once, then two.
  const std::uint64_t chunk = GENERATE(0, 1, 7, 8, 9);
  CAPTURE(in_parts, chunk);
  fed.hook->before_write = [&] {
    if (++writes == 4 + 10 + 1) memory[0][chunk * kChunkBytes + 7] ^= std::byte{1};
  };
  const auto ticket = pipeline.save(saved, 2).value();
  const auto error = error_of([&] { ticket.wait_durable(); });
  REQUIRE(error);
  CHECK(error->code() == Errc::torn);
  CHECK(std::string(error->what()).find("'one' changed") != std::string::npos);
  CHECK(fed.shelf.info().version == 2);
  fed.hook->before_write = {};
  pipeline.save(saved, 3).value().wait_durable();
  CHECK_FALSE(committed(0));
  CHECK(committed(1) == 1);
}

TEST_CASE_METHOD(OnDevices, "what changes before it is copied is told, of all sources at once") {
  const bool managed = GENERATE(false, true);
  fake::cuda().managed = managed;
  std::vector<Source> sources;
  std::vector<TensorRef> many;
  for (int i = 0; i < 40; ++i) {  // more than lines are taken of
    const std::array<std::int64_t, 1> shape = {1000};
    many.push_back(fed.shelf.create("many" + std::to_string(i), DType::uint8, shape));
    sources.push_back({many[i], DeviceBytes{memory[0].data() + 1000 * i, 1000, &first}, true});
  }
  fed.shelf.persist();
  const auto saved = std::make_shared<const SavePlan>(std::move(sources));
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  Door door;
  for (int step = 2; step < 6; ++step) {
    CAPTURE(step);
    const auto version = fed.shelf.info().version;
    fill(0, step);
    const bool changed = step % 2 == 0;
    hold_copies(door);
    const auto ticket = pipeline.save(saved, step).value();
    if (changed) {
      fill(0, 77);
      CHECK(cudaStreamSynchronize(&first) == cudaSuccess);  // before any of them is copied
    }
    door.open();
    const auto error = error_of([&] { ticket.wait_durable(); });
    // The host may change managed memory, whose lines are not taken.
    CHECK(error.has_value() == (changed && !managed));
    if (error) CHECK(error->code() == Errc::torn);
    CHECK(fed.shelf.info().version == version + (error ? 0 : 1));
  }
}

TEST_CASE_METHOD(OnDevices, "a few lines are taken, of other sources each time") {
  std::vector<Source> sources;
  for (int i = 0; i < 40; ++i) {
    const std::array<std::int64_t, 1> shape = {1000};
    auto target = fed.shelf.create("many" + std::to_string(i), DType::uint8, shape);
    sources.push_back({target, DeviceBytes{memory[0].data() + 1000 * i, 1000, &first}, true});
  }
  fed.shelf.persist();
  const auto saved = std::make_shared<const SavePlan>(std::move(sources));
  std::vector<const Source*> all;
  for (const Source& each : saved->sources()) all.push_back(&each);
  {
    const auto mark = make_cuda_mark(std::get<DeviceBytes>(all[0]->bytes));
    DeviceLines lines(all, mark, 3);
    CHECK(fake::cuda().bytes <= 16 * kLineBytes);
    CHECK(fake::cuda().calls["cudaMemcpyAsync"] == 16);
    lines.take();
    CHECK(lines.changed() == nullptr);
    fake::cuda().managed = true;  // freed, and memory of another kind in its place
    CHECK(lines.changed() != nullptr);
    fake::cuda().managed = false;
  }
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  for (int i = 0; i < 40; ++i) {
    bool found = false;
    for (int round = 0; round < 3 && !found; ++round) {  // 3 x 16 lines
      Door door;
      hold_copies(door);
      const auto ticket = pipeline.save(saved, 2).value();
      fake::queue(&first, [&] {
        std::ranges::fill(std::span(memory[0]).subspan(1000 * i, 1000),
                          std::byte(100 + i + 50 * round));
      });
      CHECK(cudaStreamSynchronize(&first) == cudaSuccess);
      door.open();
      const auto error = error_of([&] { ticket.wait_durable(); });
      found = error.has_value();
      if (error) {
        const std::string text = error->what();
        CHECK(text.find("'many" + std::to_string(i) + "'") != std::string::npos);
      }
    }
    CHECK(found);
  }
}

TEST_CASE_METHOD(OnDevices, "what cannot be saved from a device is told, and the shelf goes on") {
  struct Row {
    const char* what;
    std::function<void()> arrange;
    Errc code;
    bool at_once;  // by save(); else by its ticket
  };
  const auto fails = [](const char* function) {
    return [function] { fake::cuda().fail = function; };
  };
  const Row rows[] = {
      {"no device", [] { fake::cuda().devices = 0; }, Errc::unsupported, true},
      {"a stream that captures", [] { fake::cuda().capturing = true; }, Errc::unsupported, true},
      {"no event", fails("cudaEventCreate"), Errc::io, true},
      {"an event that cannot be recorded", fails("cudaEventRecord"), Errc::io, true},
      {"a copy that fails", fails("cudaMemcpyAsync"), Errc::io, true},  // of a line
      {"a copy that ends ill", fails("cudaEventSynchronize"), Errc::io, false},
  };
  std::optional<Pipeline> pipeline(std::in_place, fed.shelf);
  TensorRef small = fed.shelf.create("small", DType::uint8, std::array<std::int64_t, 1>{8});
  fed.shelf.persist();
  auto sources = plan()->sources();
  const bool with_eager = GENERATE(false, true);
  if (with_eager) sources.push_back({small, DeviceBytes{memory[1].data(), 8, &second}});
  const auto saved = std::make_shared<const SavePlan>(std::move(sources));
  for (const Row& row : rows) {
    INFO(row.what);
    const auto before = fake::cuda();
    row.arrange();
    std::optional<SaveTicket> ticket;
    auto error = error_of([&] { ticket = pipeline->save(saved, 9); });
    CHECK(error.has_value() == row.at_once);
    if (!error) error = error_of([&] { ticket->wait_durable(); });
    REQUIRE(error);
    CHECK(error->code() == row.code);
    CHECK_FALSE(error->remedy().empty());
    CHECK(fake::cuda().last == cudaSuccess);
    fake::cuda().devices = before.devices;
    fake::cuda().capturing = false;
    fake::cuda().fail.clear();
    fake::cuda().calls.clear();
    const auto version = fed.shelf.info().version;
    CHECK(pipeline->save(saved, 10).value().wait_durable().version == version + 1);
    CHECK(committed(0) == 1);
  }
  pipeline.reset();
  CHECK(fake::cuda().events == 3 * fake::cuda().streams);
}

TEST_CASE_METHOD(OnDevices, "a batch that cannot be queued leaves no copy under way") {
  const std::array sources = {DeviceBytes{memory[0].data(), 1000, &first},
                              DeviceBytes{memory[0].data() + 1000, 1000, &first}};
  for (const char* function : {"cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpyAsync"}) {
    for (int at = 1; at <= 2; ++at) {
      INFO(function << ", call " << at);
      fake::cuda().calls.clear();
      fake::cuda().fail = function;
      fake::cuda().fail_at = at;
      CHECK(error_of([&] { make_cuda_batch(sources); }));
      CHECK(fake::cuda().abandoned == 0);
    }
  }
  fake::cuda().fail.clear();
  const auto batch = make_cuda_batch(sources);
  CHECK(same(batch->wait(1), std::span(memory[0]).subspan(1000, 1000)));
}

TEST_CASE_METHOD(OnDevices, "a mark is made once for each stream, and none for nothing") {
  const std::array<std::int64_t, 1> none = {0};
  auto empty = fed.shelf.create("empty", DType::uint8, none);
  auto other = fed.shelf.create("other", DType::uint8, std::array<std::int64_t, 1>{8});
  fed.shelf.persist();
  CUstream_st third{.device = 1, .work = {}};
  DeviceBytes named = {memory[0].data(), 8, &first, 0};
  const auto saved = std::make_shared<const SavePlan>(std::vector<Source>{
      {empty, DeviceBytes{nullptr, 0, &third}, true}, source(0), {other, named, true}});
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  pipeline.save(saved, 2).value().wait_durable();
  fake::cuda().calls.clear();
  pipeline.save(saved, 3).value().wait_durable();
  pipeline.close();
  CHECK(fake::cuda().calls["cudaEventCreate"] == 1);
}

TEST_CASE_METHOD(OnDevices, "each device's default stream has a mark of its own") {
  const bool named = GENERATE(false, true);
  std::vector<Source> sources;
  for (int i = 0; i < 2; ++i) {
    const int device = named ? i : -1;
    sources.push_back({tensors[i], DeviceBytes{memory[i].data(), kSize, nullptr, device}, true});
  }
  const auto saved = std::make_shared<const SavePlan>(std::move(sources));
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  pipeline.save(saved, 2).value().wait_durable();  // makes lanes
  fake::cuda().calls.clear();
  pipeline.save(saved, 3).value().wait_durable();
  pipeline.close();
  CHECK(fake::cuda().calls["cudaEventCreate"] == 2);
}

TEST_CASE_METHOD(OnDevices, "managed memory beside it hides no change of a device's") {
  const bool all = GENERATE(false, true);  // then there is no line to tell it
  fake::cuda().managed_at.insert(memory[0].data());
  if (all) fake::cuda().managed_at.insert(memory[1].data());
  Source other = source(1);
  std::get<DeviceBytes>(other.bytes).stream = &first;
  fake::cuda().memory[memory[1].data()].second = 0;  // of one stream of one device
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  for (int step = 2; step < 8; ++step) {  // whichever of them comes first
    for (auto& each : memory) std::memset(each.data(), step, kSize);
    Door door;
    hold_copies(door);
    const auto saved = std::make_shared<const SavePlan>(std::vector<Source>{source(0), other});
    const auto ticket = pipeline.save(saved, step).value();
    for (int i = 0; i < 2; ++i) {
      fake::queue(&first, [&, i] { std::memset(memory[i].data(), 99, kSize); });
    }
    CHECK(cudaStreamSynchronize(&first) == cudaSuccess);
    door.open();
    const auto error = error_of([&] { ticket.wait_durable(); });
    CHECK(error.has_value() != all);
    if (error) CHECK(std::string(error->what()).find("'two' changed") != std::string::npos);
  }
}

TEST_CASE_METHOD(OnDevices, "a save that failed keeps nothing of what it had queued") {
  std::vector<std::unique_ptr<cuda::CopyLane>> idle;  // from other tests: all of that device
  for (const int there = fake::cuda().buffers; fake::cuda().buffers == there;) {
    idle.push_back(cuda::pool().take(1, {}));
  }
  Pipeline pipeline(fed.shelf);
  pipeline.save(plan(), 2).value().wait_durable();
  fake::cuda().calls.clear();
  fake::cuda().fail = "cudaEventSynchronize";  // of the lines of one of the streams
  const auto ticket = pipeline.save(plan(), 3).value();
  CHECK(error_of([&] { ticket.wait_durable(); }));
  fake::cuda().fail.clear();
  const int buffers = fake::cuda().buffers;
  const auto lane = cuda::pool().take(1, {});  // which waits there while the ticket lives
  CHECK(fake::cuda().buffers == buffers);
}

TEST_CASE_METHOD(OnDevices, "copies from a device keep to a rate, and end with who waits") {
  const auto saved = std::make_shared<const SavePlan>(std::vector<Source>{source(0)});
  Pipeline pipeline(fed.shelf, {.bytes_per_second = 1});
  const auto ticket = pipeline.save(saved, 2).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < end && !ticket.staged()) std::this_thread::yield();
  CHECK_FALSE(ticket.staged());  // it rests behind the first of two pieces
  ticket.wait_durable();
  CHECK(committed(0) == 1);
}

TEST_CASE_METHOD(OnDevices, "sources of one buffer in all are queued together, to the last byte") {
  constexpr std::uint64_t kBuffer = 8 * kChunkBytes;
  Bytes large(kBuffer + 1);
  fake::add_memory(large.data(), large.size(), 0);
  const auto queued = [&](const std::vector<std::uint64_t>& sizes) {
    std::vector<DeviceBytes> sources;
    for (const std::uint64_t size : sizes) sources.push_back({large.data(), size, &first});
    const auto batch = make_cuda_batch(sources);
    return batch ? batch->count() : 0;
  };
  CHECK(queued({kBuffer}) == 1);
  CHECK(queued({kBuffer + 1}) == 0);
  CHECK(queued({kBuffer - 1000, 1000}) == 2);
  CHECK(queued({kBuffer - 1000, 1001}) == 1);
  CHECK(queued({1, kBuffer}) == 1);
}

TEST_CASE_METHOD(OnDevices, "sources of two streams of one device are not queued together") {
  CUstream_st third{.device = 0, .work = {}};
  const std::array sources = {DeviceBytes{memory[0].data(), 8, &first},
                              DeviceBytes{memory[0].data() + 8, 8, &third}};
  CHECK(make_cuda_batch(sources)->count() == 1);
}

TEST_CASE_METHOD(OnDevices, "an eager source without bytes is looked up nowhere") {
  const std::array<std::int64_t, 1> none = {0};
  const Source empty{fed.shelf.create("none", DType::uint8, none),
                     DeviceBytes{.data = nullptr, .stream = &first}, false};
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf);
  for (const auto& sources : {std::vector<Source>{empty},
                              {empty, source(0, false)},
                              {source(0, false), empty, source(1, false)}}) {
    fill(0, 7);
    fill(1, 8);
    const auto saved = std::make_shared<const SavePlan>(std::vector<Source>(sources));
    CHECK_FALSE(error_of([&] { pipeline.save(saved).value().wait_durable(); }));
  }
  CHECK(committed(0) == 7);
  CHECK(committed(1) == 8);
}

TEST_CASE_METHOD(OnDevices, "a save that is refused waits for the copies that it had queued") {
  const std::array<std::int64_t, 1> shape = {1000};
  TensorRef small = fed.shelf.create("small", DType::uint8, shape);
  fed.shelf.erase("second");
  fed.shelf.persist();
  const auto saved = std::make_shared<const SavePlan>(
      std::vector<Source>{{small, DeviceBytes{memory[0].data(), 1000, &first}, false},
                          {fed.tensor(1), std::span<const std::byte>(fed.sources[1]), false}});
  fed.shelf.erase("first");
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf);
  fake::cuda().calls.clear();
  CHECK(code_of([&] { pipeline.save(saved, 2); }) == Errc::unknown_name);
  CHECK(fake::cuda().calls["cudaMemcpyAsync"] == 1);
  CHECK(fake::cuda().calls["cudaStreamSynchronize"] == 1);  // its memory may go now
}

TEST_CASE_METHOD(OnDevices,
                 "what changes on any of several streams is seen by the lines of its own") {
  const int which = GENERATE(0, 1);
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  Door door;
  hold_copies(door);
  const auto saved = plan();
  const auto ticket = pipeline.save(saved, 2).value();
  fill(which, 99);
  CHECK(cudaStreamSynchronize(which == 0 ? &first : &second) == cudaSuccess);
  door.open();
  CHECK(error_of([&] { ticket.wait_durable(); }));
}

TEST_CASE_METHOD(OnDevices, "what lies behind a source may change while it is saved") {
  const std::array<std::int64_t, 1> shape = {70};
  const auto small = fed.shelf.create("small", DType::uint8, shape);
  fed.shelf.persist();
  Pipeline pipeline(fed.shelf, {.check_one_in = 0});
  const auto saved = std::make_shared<const SavePlan>(
      std::vector<Source>{{small, DeviceBytes{memory[0].data(), 70, &first}, true}});
  for (unsigned step = 2; step < 12; ++step) {
    Door door;
    hold_copies(door);
    const auto ticket = pipeline.save(saved, step).value();
    door.await_someone();
    std::memset(memory[0].data() + 70, static_cast<int>(step), 100);
    door.open();
    CHECK_FALSE(error_of([&] { ticket.wait_durable(); }));
  }
}

TEST_CASE_METHOD(OnDevices, "no bytes behind the end of a tensor are refused") {
  auto assignment = tensors[0].assign();
  CHECK(error_of([&] { write_from_device(assignment, DeviceBytes{nullptr, 0}, kSize + 1); }));
}
