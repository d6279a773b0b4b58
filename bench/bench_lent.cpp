// Pieces of 8 MiB, in memory as a device's copies leave them, into a block shelf: lent to the
// medium, beside copied. No device is needed: what is measured comes behind its copies. Case "lent"
// is the time until it is durable, "lent-cpu" that of all threads. Writes below the directory that
// --dir names, and removes what it wrote.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <ctime>
#include <iostream>
#include <memory>

#include <tensorshelf/shelf.hpp>

#include "base/huge_pages.hpp"
#include "samples.hpp"
#include "settings.hpp"

namespace {

using namespace tensorshelf;
using namespace tensorshelf::bench;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A ring of pieces as a device fills it; here they have the same bytes each time.
class Pieces {
 public:
  static constexpr unsigned kPieces = 4;
  static constexpr std::uint64_t kPieceBytes = 8 * kChunkBytes;

  Pieces() { std::ranges::copy(filled(kPieces * kPieceBytes), memory_->bytes); }
  std::span<const std::byte> operator[](std::uint64_t turn) const {
    return std::span(memory_->bytes).subspan(turn % kPieces * kPieceBytes, kPieceBytes);
  }

 private:
  using Memory = HugeRoom<kPieces * kPieceBytes>;
  std::unique_ptr<Memory> memory_ = std::make_unique_for_overwrite<Memory>();
};

void save(Shelf& shelf, TensorRef& tensor, const Pieces& pieces, bool lend) {
  Assignment assignment = tensor.assign();
  const std::uint64_t size_bytes = tensor.info().size_bytes;
  for (std::uint64_t at = 0; at < size_bytes; at += Pieces::kPieceBytes) {
    const auto whole = pieces[at / Pieces::kPieceBytes];
    const auto piece = whole.first(std::min(Pieces::kPieceBytes, size_bytes - at));
    if (lend) {
      assignment.await_lent(whole);
      assignment.write_lent(piece, at);
    } else {
      assignment.write(piece, at);
    }
  }
  assignment.done();
  for (unsigned i = 0; i < Pieces::kPieces; ++i) assignment.await_lent(pieces[i]);
  shelf.persist();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("pieces of memory, lent to a block medium");
  Settings settings;
  add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    const auto path = settings.directory / "bench-lent.shelf";
    std::filesystem::remove(path);
    OpenOptions options;
    options.tier = "block";
    Pairs cpu;
    Pairs wall;
    {
      Shelf shelf = Shelf::open(path, options);
      TensorRef tensor =
          shelf.create("t", DType::uint8, std::array{static_cast<std::int64_t>(settings.bytes)});
      const Pieces pieces;
      const auto timed = [&](bool lend, std::vector<double>& to) {
        const double before = cpu_seconds();
        save(shelf, tensor, pieces, lend);
        to.push_back(cpu_seconds() - before);
      };
      wall = alternate(
          settings.rounds, [&] { timed(true, cpu.ours); }, [&] { timed(false, cpu.limit); });
    }
    cpu.ours.erase(cpu.ours.begin());
    cpu.limit.erase(cpu.limit.begin());
    std::filesystem::remove(path);
    print("lent", wall, static_cast<double>(settings.bytes));
    print("lent-cpu", cpu, static_cast<double>(settings.bytes));
  } catch (const Error& error) {
    std::cerr << error.what() << ". " << error.remedy() << '\n';
    return 3;
  }
  return 0;
}
