// What a power loss leaves of a mapped shelf, instruction by instruction: the medium, its kernels
// and libpmem2 as released, on a file of tmpfs that is given out as persistent memory, under
// tests/store_tracer.hpp. QEMU cannot see these: it loses nothing that was stored.
//
// Also built with the medium's planted bugs (TENSORSHELF_PLANTED_BUGS): each must be found.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "base/copy_kernels.hpp"
#include "base/planted.hpp"
#include "bytes.hpp"
#include "media/file_system.hpp"
#include "pmem_fixture.hpp"
#include "store_tracer.hpp"

namespace tensorshelf {
namespace {

struct Place {
  const char* name;
  bool dax;
  PowerFailDomain domain;
  const char* granularity;  // that libpmem2 is made to find
  testing::Caches caches;
};
constexpr Place kAdr = {"ADR", true, PowerFailDomain::memory_controller, "CACHE_LINE",
                        testing::Caches::lost};
constexpr Place kEadr = {"eADR", true, PowerFailDomain::cpu_cache, "BYTE", testing::Caches::kept};
[[maybe_unused]] constexpr Place kMemory = {"tmpfs", false, PowerFailDomain::unknown, "",
                                            testing::Caches::kept};
const Place* place = &kAdr;

}  // namespace

// In place of src/media/file_system.cpp.
FileSystem probe_file_system(int) {
  FileSystem found;
  found.name = place->name;
  found.tmpfs = !place->dax;
  found.dax = place->dax;
  return found;
}
std::uint64_t free_bytes(int) { return 0; }
bool exceeds_free_space(int, std::uint64_t) { return false; }
std::string_view option_without_flushes(std::string_view) { return {}; }
PowerFailDomain power_fail_domain(int, const std::filesystem::path&) { return place->domain; }

}  // namespace tensorshelf

using namespace tensorshelf;
using namespace tensorshelf::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kStreamed = 256 << 10;  // where small writes stay in the cache, not this
constexpr std::size_t kWatched = 24 << 10;

// Why the tests here cannot run, or nothing.
bool can_trace() {
  if (pmem_supported() && StoreTracer::supported()) return true;
  WARN("skipped: tracing stores (x86-64, libpmem2, and no sanitizer)");
  return false;
}

// A medium at a place, and the tracer over its first bytes.
struct Traced {
  explicit Traced(const Place& at, std::size_t watched = kWatched)
      : granularity((place = &at, "PMEM2_FORCE_GRANULARITY"), at.granularity),
        dir(kTmpfs),
        medium(make_pmem_medium(open_file(dir / "s"), {})) {
    medium->reserve(watched);
    medium->write(0, pattern(watched, 99), 0);
    tracer.emplace(work_mapping(dir / "s").first(watched), at.caches);
  }

  // In a thread of its own: no later fence of another can help it.
  void write_elsewhere(std::uint64_t at, std::span<const std::byte> bytes) {
    std::thread([&] { tracer->run([&] { medium->wait(medium->write(at, bytes, 0)); }); }).join();
  }
  std::span<const std::byte> left(std::uint64_t at, std::size_t size) const {
    return tracer->durable().subspan(at, size);
  }

  Variable granularity;
  scratch::Directory dir;
  std::unique_ptr<Medium> medium;
  std::optional<StoreTracer> tracer;
};

std::string fault_of_write(Traced& traced, std::size_t size) {
  const auto bytes = pattern(size, static_cast<unsigned>(size));
  traced.write_elsewhere(kPageBytes, bytes);
  if (same(traced.left(kPageBytes, size), bytes)) return {};
  return fmt::format("a power loss takes part of a write of {} bytes that returned", size);
}

// I7: what write() stored is durable when it returns, whoever passes the barrier.
std::string fault_of_writes(const Place& at) {
  std::string found;
  Traced traced(at);
  for (const std::size_t size : {1, 8, 63, 64, 65, 240, 241, 4095, 4096, 4097, 20001}) {
    if (found.empty()) found = fault_of_write(traced, size);
  }
  if (!found.empty() || !at.dax || at.caches == Caches::lost) return found;
  Traced large(at, kPageBytes + kStreamed);
  found = fault_of_write(large, kStreamed);
  if (found.empty() && large.tracer->counts().streams == 0) found = "a large write is not streamed";
  return found;
}

// I4: a word goes in one store of its eight bytes, and is durable after the barrier.
std::string fault_of_words(const Place& at) {
  Traced traced(at);
  for (const std::uint64_t offset : {0, 8, 56, 64, 4088, 4096}) {
    std::uint64_t word = 0;
    std::memcpy(&word, traced.left(offset, sizeof word).data(), sizeof word);
    word = ~word;
    traced.tracer->reset_counts();
    traced.tracer->run([&] { traced.medium->store_word(offset, word); });
    const auto counts = traced.tracer->counts();
    if (counts.stores != 1 || counts.streams != 0 || counts.largest_store != sizeof word) {
      return fmt::format("a word in {} stores, the largest of {} bytes",
                         counts.stores + counts.streams, counts.largest_store);
    }
    traced.tracer->reset_counts();
    traced.tracer->run([&] { traced.medium->barrier(); });
    // store_word() drains too, so a barrier that does not is seen by its want of a fence alone.
    if (traced.tracer->counts().fences == 0) return "a barrier without a fence";
    if (std::memcmp(traced.left(offset, sizeof word).data(), &word, sizeof word) != 0) {
      return fmt::format("a power loss takes the word at {} behind its barrier", offset);
    }
  }
  return {};
}

std::string fault_of(const Place& at) {
  std::string found = fault_of_writes(at);
  return found.empty() ? fault_of_words(at) : found;
}

}  // namespace

#ifdef TENSORSHELF_PLANTED_BUGS

TEST_CASE("each planted bug of the mapped medium is found", "[pmem]") {
  if (!can_trace()) return;
  struct Row {
    Bug bug;
    const char* name;
    bool faulty;
    bool faulty_on_eadr;  // where less is needed, less can be missing
  };
  const Row rows[] = {
      {Bug::none, "none", false, false},
      {Bug::write_not_drained, "write_not_drained", true, true},
      {Bug::write_kept_in_cache, "write_kept_in_cache", true, false},
      {Bug::barrier_not_drained, "barrier_not_drained", true, true},
      {Bug::word_not_flushed, "word_not_flushed", true, false},
      {Bug::word_flushed_beside, "word_flushed_beside", true, false},
      {Bug::word_in_halves, "word_in_halves", true, true},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    planted_bug = row.bug;
    const std::string on_adr = fault_of(kAdr);
    const std::string on_eadr = row.faulty == row.faulty_on_eadr ? fault_of(kEadr) : "";
    planted_bug = Bug::none;
    INFO("ADR: " << on_adr << "\neADR: " << on_eadr);
    CHECK(on_adr.empty() != row.faulty);
    CHECK(on_eadr.empty() != row.faulty_on_eadr);
  }
}

TEST_CASE("a chunk that is hashed before it is copied is found", "[pmem]") {
  if (!pmem_supported()) return;
  place = &kMemory;
  const scratch::Directory dir(kTmpfs);
  const auto medium = made_by_file(dir / "s");
  CHECK(hashes_what_it_writes(*medium));
  planted_bug = Bug::write_hashed_first;
  CHECK_FALSE(hashes_what_it_writes(*medium));
  planted_bug = Bug::none;
  place = &kAdr;
}

#else

TEST_CASE("ADR: what returned outlives a power loss", "[pmem]") {
  if (!can_trace()) return;
  CHECK(fault_of(kAdr) == "");
}

TEST_CASE("eADR: the same without a flush, and small writes stay in the cache", "[pmem]") {
  if (!can_trace()) return;
  CHECK(fault_of(kEadr) == "");
  Traced traced(kEadr);
  traced.write_elsewhere(0, pattern(20001, 1));
  traced.tracer->run([&] { traced.medium->store_word(8, 1); });
  CHECK(traced.tracer->counts().flushes == 0);
  CHECK(traced.tracer->counts().streams == 0);
}

TEST_CASE("what outlives a power loss is promised where the platform protects it", "[pmem]") {
  if (!pmem_supported()) return;
  const auto promises_at = [](PowerFailDomain domain) {
    Place at = kAdr;
    at.domain = domain;
    place = &at;
    const Variable granularity("PMEM2_FORCE_GRANULARITY", at.granularity);
    const scratch::Directory dir(kTmpfs);
    const Promises found = make_pmem_medium(open_file(dir / "s"), {})->promises();
    place = &kAdr;
    return found;
  };
  using enum PowerFailDomain;
  for (const PowerFailDomain domain : {unknown, memory_controller, cpu_cache}) {
    const Promises found = promises_at(domain);
    CHECK(found.survives == Survives::power_loss);
    CHECK_FALSE(mentions(found.notes, "no power-fail protection"));
  }
  const Promises found = promises_at(none);
  CHECK(found.survives == Survives::process_crash);
  CHECK(mentions(found.notes, "no power-fail protection"));
}

TEST_CASE("tmpfs: nothing is flushed, and a word is one store", "[pmem]") {
  if (!can_trace()) return;
  CHECK(fault_of(kMemory) == "");
  Traced traced(kMemory);
  traced.write_elsewhere(0, pattern(20001, 1));
  traced.tracer->run([&] { traced.medium->store_word(8, 1); });
  CHECK(traced.tracer->counts().flushes == 0);
  CHECK(traced.tracer->counts().streams == 0);
}

TEST_CASE("each kernel's streaming stores wait for their own thread's drain", "[pmem]") {
  if (!can_trace()) return;
  alignas(64) static std::byte target[17024];
  for (const CopyKernel& kernel : copy_kernels()) {
    for (const std::size_t size : {1UL, 63UL, 64UL, 65UL, 240UL, 241UL, 4097UL, 17001UL}) {
      for (const bool hashed : {true, false}) {
        INFO(kernel.name << (hashed ? ", hashed, " : ", ") << size << " bytes");
        const auto bytes = pattern(size, static_cast<unsigned>(size));
        std::memset(target, 0x55, sizeof target);
        const std::vector<std::byte> old(std::begin(target), std::end(target));
        StoreTracer tracer(target, Caches::lost);
        const auto copy = [&](Stores stores) {
          if (hashed) {
            kernel.copy_and_hash(target, bytes.data(), size, 0, stores);
          } else {
            kernel.copy(target, bytes.data(), size, stores);
          }
        };
        tracer.run([&] { copy(Stores::streaming); });
        CHECK(same(tracer.durable(), old));
        std::thread([&] { tracer.run(drain_stores); }).join();
        CHECK(same(tracer.durable(), old));  // I7
        tracer.run(drain_stores);
        CHECK(same(tracer.durable().first(size), bytes));

        std::memset(target, 0x55, sizeof target);
        StoreTracer cached(target, Caches::lost);
        cached.run([&] { copy(Stores::cached); });
        CHECK(cached.counts().streams + cached.counts().flushes == 0);
      }
    }
  }
}

TEST_CASE("the tracer tells stores, flushes and fences apart", "[pmem]") {
  if (!can_trace()) return;
  alignas(64) static std::uint64_t words[64] = {};
  const auto watched = std::as_bytes(std::span(words));
  const auto durable_word = [](const StoreTracer& tracer, std::size_t index) {
    std::uint64_t word = 0;
    std::memcpy(&word, tracer.durable().data() + index * sizeof word, sizeof word);
    return word;
  };
  const auto store = [](std::size_t index, std::uint64_t word) {
    static_cast<volatile std::uint64_t&>(words[index]) = word;
  };

  StoreTracer adr(watched, Caches::lost);
  adr.run([&] { store(9, ~0UL); });
  adr.run(drain_stores);
  CHECK(durable_word(adr, 9) == 0);  // nobody flushed it
  CHECK(adr.counts().stores == 1);
  CHECK(adr.counts().largest_store == 8);
  CHECK(adr.counts().fences == 1);
#if defined(__x86_64__)
  adr.run([] { __builtin_ia32_clflush(&words[16]); });
  adr.run(drain_stores);
  CHECK(durable_word(adr, 9) == 0);  // another line
  adr.run([] { __builtin_ia32_clflush(&words[15]); });
  CHECK(durable_word(adr, 9) == 0);  // not yet
  std::thread([&] { adr.run(drain_stores); }).join();
  CHECK(durable_word(adr, 9) == 0);  // not by another
  adr.run([&] { store(9, 5); });     // after the flush: may land or not
  adr.run(drain_stores);
  CHECK(durable_word(adr, 9) == ~0UL);
  CHECK(adr.counts().flushes == 2);
#endif
  adr.reset_counts();
  adr.run([&] {
    auto* const halves = reinterpret_cast<volatile std::uint32_t*>(&words[20]);
    halves[0] = 1;
    halves[1] = 1;
  });
  CHECK(adr.counts().stores == 2);

  StoreTracer eadr(watched, Caches::kept);
  eadr.run([&] { store(30, 7); });
  CHECK(durable_word(eadr, 30) == 7);
}

#endif
