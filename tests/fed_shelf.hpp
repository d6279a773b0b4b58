// A shelf that a pipeline feeds, on a medium which calls a test before each write of a tensor: in
// the thread that copies, at a known moment between two copies.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include "bytes.hpp"
#include "format/layout.hpp"
#include "forwarding_medium.hpp"
#include "held_medium.hpp"
#include "media/memory/medium.hpp"

namespace tensorshelf::testing {

struct Hook {
  std::function<void()> before_write = {};  // set while nothing is written
  std::function<void()> before_barrier = {};
  std::function<void()> before_read = {};
};

class HookedMedium final : public ForwardingMedium {
 public:
  HookedMedium(std::shared_ptr<Medium> medium, std::shared_ptr<Hook> hook, bool mapped)
      : ForwardingMedium(std::move(medium)), hook_(std::move(hook)), mapped_(mapped) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    if (at >= format::kHeapAt && bytes.size() != kPageBytes && hook_->before_write) {
      hook_->before_write();
    }
    return ForwardingMedium::write(at, bytes, seed);
  }
  void barrier() override {
    if (hook_->before_barrier) hook_->before_barrier();
    ForwardingMedium::barrier();
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (hook_->before_read) hook_->before_read();
    ForwardingMedium::read(at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    return mapped_ ? ForwardingMedium::view(extent) : std::span<const std::byte>();
  }
  Promises promises() const override {
    Promises promises = ForwardingMedium::promises();
    promises.mapped = mapped_;
    return promises;
  }

 private:
  std::shared_ptr<Hook> hook_;
  bool mapped_;
};

inline constexpr std::uint64_t kFedBytes = 3 * kChunkBytes + 100;

// "eager", and "first" and "second", which are lazy; in that order. At version 1 they have
// pattern(kFedBytes, 1), and so has the memory that they are saved from.
struct Fed {
  std::shared_ptr<Hook> hook = std::make_shared<Hook>();
  std::shared_ptr<Medium> medium;
  bool mapped;
  std::function<void()> while_waiting = {};  // of a shelf that is opened from here on
  Shelf shelf;
  std::array<const char*, 3> names = {"eager", "first", "second"};
  std::array<Bytes, 3> sources;

  explicit Fed(bool is_mapped = true)
      : medium(make_memory_medium(0, 256 * kChunkBytes)), mapped(is_mapped), shelf(format()) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::array shape = {static_cast<std::int64_t>(kFedBytes)};
      sources[i] = pattern(kFedBytes, 1);
      shelf.create(names[i], DType::uint8, shape).write(sources[i]);
    }
    shelf.persist(1);
  }
  Shelf open() {
    return Shelf::open(std::make_unique<HookedMedium>(medium, hook, mapped),
                       {.mode = Mode::update, .while_waiting = while_waiting});
  }
  void reopen() {
    shelf.close();
    shelf = open();
  }
  TensorRef tensor(std::size_t i) { return shelf.find(names[i]).value(); }
  // What the trainer does in a step: from the next save on the tensors are to have this.
  void train(std::uint64_t seed) {
    for (std::size_t i = 0; i < sources.size(); ++i) change(i, seed);
  }
  void change(std::size_t i, std::uint64_t seed) {  // where it lies
    const Bytes bytes = pattern(kFedBytes, seed);
    std::memcpy(sources[i].data(), bytes.data(), bytes.size());
  }
  std::shared_ptr<const SavePlan> plan() {
    std::vector<Source> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      all.push_back({tensor(i), std::span<const std::byte>(sources[i]), i > 0});
    }
    return std::make_shared<const SavePlan>(std::move(all));
  }
  // Before a pipeline's last copy of a save that is begun from here on: somebody reads the first
  // lazy tensor, at the door, so that comparing it waits. Of a medium that is not mapped. The door
  // lives as long as this is used.
  void hold_comparison(Door& door, std::thread& reader) {
    const auto me = std::this_thread::get_id();
    door.shut();
    hook->before_write = [this, me, &door, &reader, count = std::make_shared<unsigned>(0)] {
      if (std::this_thread::get_id() == me || ++*count != 8) return;
      hook->before_read = [&door] { door.pass(); };
      reader = std::thread([first = tensor(1)] {
        Bytes bytes(kFedBytes);
        first.read(bytes);
      });
      door.await_someone();
    };
  }
  // Empty, or which tensor is not of that pattern in the newest version.
  std::string committed_difference(std::uint64_t seed) {
    const Bytes expected = pattern(kFedBytes, seed);
    for (std::size_t i = 0; i < names.size(); ++i) {
      Bytes found(kFedBytes);
      tensor(i).read_committed(found);
      if (!same(found, expected)) return names[i];
    }
    return "";
  }

 private:
  Shelf format() {
    Shelf::format(*medium, {.in_flight = 2});
    return open();
  }
};

// Another thread than that of the test is kept before it writes.
inline void hold_copies(Fed& fed, Door& door) {
  const auto me = std::this_thread::get_id();
  door.shut();
  fed.hook->before_write = [&door, me] {
    if (std::this_thread::get_id() != me) door.pass();
  };
}

// Before the copying thread's write number `at`, from 0.
inline void before_copy(Fed& fed, unsigned at, std::function<void()> act) {
  const auto me = std::this_thread::get_id();
  fed.hook->before_write = [=, count = std::make_shared<unsigned>(0)] {
    if (std::this_thread::get_id() != me && (*count)++ == at) act();
  };
}

}  // namespace tensorshelf::testing
