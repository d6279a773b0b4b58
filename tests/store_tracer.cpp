#include "store_tracer.hpp"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

namespace tensorshelf::testing {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

constexpr std::uintptr_t kLineBytes = 64;
constexpr greg_t kTrapFlag = 0x100;

enum class Kind { other, stream, flush, fence };
struct Instruction {
  Kind kind = Kind::other;
  std::uintptr_t address = 0;  // of a flush
};

std::int32_t displacement(const std::uint8_t* at, unsigned mod) {
  std::int32_t wide = 0;
  if (mod == 1) return static_cast<std::int8_t>(*at);
  if (mod == 2) std::memcpy(&wide, at, sizeof wide);
  return wide;
}

// Of a memory operand without an immediate behind it (Intel's manual, volume 2, section 2.1.5).
std::uintptr_t effective_address(const greg_t* registers, const std::uint8_t* modrm, unsigned rex) {
  constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  const auto value = [&](unsigned number) {
    return static_cast<std::uintptr_t>(registers[kOrder[number]]);
  };
  const unsigned mod = *modrm >> 6;
  const unsigned rm = *modrm & 7;
  const std::uint8_t* next = modrm + 1;
  if (rm != 4) {
    if (mod == 0 && rm == 5) {  // relative to the next instruction
      return reinterpret_cast<std::uintptr_t>(next + 4) +
             static_cast<std::uintptr_t>(displacement(next, 2));
    }
    return value(rm | (rex & 1) << 3) + static_cast<std::uintptr_t>(displacement(next, mod));
  }
  const unsigned sib = *next++;
  const unsigned index = ((sib >> 3) & 7) | (rex & 2) << 2;
  const std::uintptr_t scaled = index == 4 ? 0 : value(index) << (sib >> 6);
  if (mod == 0 && (sib & 7) == 5) {
    return scaled + static_cast<std::uintptr_t>(displacement(next, 2));
  }
  return scaled + value((sib & 7) | (rex & 1) << 3) +
         static_cast<std::uintptr_t>(displacement(next, mod));
}

bool is_streaming(unsigned opcode) {  // movntdq and movntq, movntps and movntpd, movnti
  return opcode == 0xE7 || opcode == 0x2B || opcode == 0xC3;
}

// The instruction that the registers stand before.
Instruction upcoming(const greg_t* registers) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  bool wide = false;  // prefix 66, which makes clflush clflushopt, and xsaveopt clwb
  const auto is_prefix = [](std::uint8_t byte) {
    constexpr std::uint8_t kPrefixes[] = {0x66, 0x67, 0xF0, 0xF2, 0xF3, 0x26,
                                          0x2E, 0x36, 0x3E, 0x64, 0x65};
    return std::find(std::begin(kPrefixes), std::end(kPrefixes), byte) != std::end(kPrefixes);
  };
  for (; is_prefix(*at); ++at) wide = wide || *at == 0x66;
  unsigned rex = 0;
  if ((*at & 0xF0) == 0x40) rex = *at++;
  if (*at == 0xC5 && is_streaming(at[2])) return {Kind::stream};                         // VEX
  if (*at == 0xC4 && (at[1] & 0x1F) == 1 && is_streaming(at[3])) return {Kind::stream};  // VEX
  if (*at == 0x62 && (at[1] & 7) == 1 && is_streaming(at[4])) return {Kind::stream};     // EVEX
  if (*at != 0x0F) return {};
  if (is_streaming(at[1])) return {Kind::stream};
  if (at[1] != 0xAE) return {};
  const unsigned extension = (at[2] >> 3) & 7;
  if (at[2] >> 6 == 3) return {extension >= 6 && !wide ? Kind::fence : Kind::other};
  const bool flushes = extension == 7 || (extension == 6 && wide);
  if (!flushes) return {};
  return {Kind::flush, effective_address(registers, at + 2, rex)};
}

}  // namespace

struct StoreTracer::State {
  struct Thread {
    std::vector<std::byte> on_the_way;
    std::vector<char> is_on_the_way;  // each byte
    Instruction instruction;
    bool stop = false;
  };

  std::span<const std::byte> watched;
  Caches caches;
  std::vector<std::byte> visible;
  std::vector<std::byte> durable;
  std::map<std::thread::id, Thread> threads;
  Counts counts;

  static thread_local State* tracing;
  static thread_local Thread* tracing_thread;

  void put_on_the_way(Thread& thread, std::size_t begin, std::size_t end) {
    std::copy(visible.begin() + static_cast<std::ptrdiff_t>(begin),
              visible.begin() + static_cast<std::ptrdiff_t>(end),
              thread.on_the_way.begin() + static_cast<std::ptrdiff_t>(begin));
    std::fill(thread.is_on_the_way.begin() + static_cast<std::ptrdiff_t>(begin),
              thread.is_on_the_way.begin() + static_cast<std::ptrdiff_t>(end), char{1});
  }

  // What the instruction stored, seen by its effect.
  void take_stores(Thread& thread) {
    if (std::memcmp(watched.data(), visible.data(), watched.size()) == 0) return;
    const auto differs = [&](std::size_t at) { return watched[at] != visible[at]; };
    std::size_t begin = 0;
    while (!differs(begin)) ++begin;
    std::size_t end = watched.size();
    while (!differs(end - 1)) --end;
    std::memcpy(visible.data() + begin, watched.data() + begin, end - begin);
    if (thread.instruction.kind == Kind::stream) {
      ++counts.streams;
      return put_on_the_way(thread, begin, end);
    }
    ++counts.stores;
    counts.largest_store = std::max(counts.largest_store, end - begin);
    if (caches == Caches::kept) {
      std::memcpy(durable.data() + begin, visible.data() + begin, end - begin);
    }
  }

  void take(Thread& thread) {
    take_stores(thread);
    if (thread.instruction.kind == Kind::flush) {
      const auto begin = reinterpret_cast<std::uintptr_t>(watched.data());
      const std::uintptr_t line = thread.instruction.address / kLineBytes * kLineBytes;
      ++counts.flushes;
      if (line >= begin && line + kLineBytes <= begin + watched.size()) {
        put_on_the_way(thread, line - begin, line - begin + kLineBytes);
      }
    }
    if (thread.instruction.kind == Kind::fence) {
      ++counts.fences;
      for (std::size_t at = 0; at < durable.size(); ++at) {
        if (thread.is_on_the_way[at] != 0) durable[at] = thread.on_the_way[at];
      }
      std::fill(thread.is_on_the_way.begin(), thread.is_on_the_way.end(), char{0});
    }
  }

  // Before each instruction. Allocates nothing, for it interrupts anything.
  static void on_trap(int, siginfo_t* info, void* context) {
    greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    Thread& thread = *tracing_thread;
    if (info->si_code == SI_TKILL) {  // from run()
      registers[REG_EFL] |= kTrapFlag;
      thread.instruction = {};
      return;
    }
    tracing->take(thread);
    thread.instruction = upcoming(registers);
    if (thread.stop) registers[REG_EFL] &= ~kTrapFlag;
  }
};

thread_local StoreTracer::State* StoreTracer::State::tracing = nullptr;
thread_local StoreTracer::State::Thread* StoreTracer::State::tracing_thread = nullptr;

bool StoreTracer::supported() { return true; }

StoreTracer::StoreTracer(std::span<const std::byte> watched, Caches caches)
    : state_(std::make_unique<State>()) {
  state_->watched = watched;
  state_->caches = caches;
  state_->visible.assign(watched.begin(), watched.end());
  state_->durable = state_->visible;
}

StoreTracer::~StoreTracer() = default;

void StoreTracer::run(const std::function<void()>& call) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_sigaction = State::on_trap;
  action.sa_flags = SA_SIGINFO;
  if (::sigaction(SIGTRAP, &action, &before) != 0) std::abort();
  State::Thread& thread = state_->threads[std::this_thread::get_id()];
  thread.on_the_way.resize(state_->watched.size());
  thread.is_on_the_way.resize(state_->watched.size());
  thread.stop = false;
  State::tracing = state_.get();
  State::tracing_thread = &thread;
  ::raise(SIGTRAP);
  call();
  static_cast<volatile bool&>(thread.stop) = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // here or a little later
  ::sigaction(SIGTRAP, &before, nullptr);
}

std::span<const std::byte> StoreTracer::durable() const { return state_->durable; }
StoreTracer::Counts StoreTracer::counts() const { return state_->counts; }
void StoreTracer::reset_counts() { state_->counts = {}; }

#else

struct StoreTracer::State {};
bool StoreTracer::supported() { return false; }
StoreTracer::StoreTracer(std::span<const std::byte>, Caches) {}
StoreTracer::~StoreTracer() = default;
void StoreTracer::run(const std::function<void()>&) { std::abort(); }
std::span<const std::byte> StoreTracer::durable() const { return {}; }
StoreTracer::Counts StoreTracer::counts() const { return {}; }
void StoreTracer::reset_counts() {}

#endif

}  // namespace tensorshelf::testing
