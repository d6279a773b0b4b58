// What all media have in common, and how one is chosen; each is declared in its own folder. What a
// new one touches, CONTRIBUTING.md says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>

#include "media/file.hpp"

namespace tensorshelf {

struct MediumCounters {
  std::uint64_t writes = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t words = 0;
  std::uint64_t barriers = 0;
  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
};

// The media of a shelf, as one: the place says which is meant (extent.hpp). What each gets around
// it: bounds and alignment checks (asserts: they are our mistakes, but a read or view beyond the
// end throws Errc::corrupt, for it comes from a hostile file), counters, and the poisoned state of
// I8, in which one that fails puts all. A barrier is one of a single medium, and of several one of
// each that was changed since its last: of mapped ones by this thread (I7), of the others side by
// side. size(), promises() and pins() are those of the first. Thread-safe as Medium is.
class GuardedMedium final : public Medium {
 public:
  explicit GuardedMedium(std::unique_ptr<Medium> first);
  ~GuardedMedium() override;

  // One more, with places on `index`, from 1: while nobody writes. It stays.
  void attach(unsigned index, std::unique_ptr<Medium> medium);
  // From now on what is written on `of` from its beginning on, words and growth too, is written on
  // the attached one at `index` as well, `shift` bytes further on. While nobody writes.
  void mirror(unsigned of, unsigned index, std::uint64_t shift);
  void give_up_mirror(unsigned of);            // likewise
  bool has_mirror(std::uint64_t place) const;  // the medium that it is on
  // The bytes as the mirror of the medium there has them; false where that has none, or none so
  // long. Errors as read().
  [[nodiscard]] bool read_mirror(std::uint64_t at, std::span<std::byte> bytes);
  // The size and promises of one that is attached; of the first by 0.
  std::uint64_t size_of(unsigned index);
  Promises promises_of(unsigned index) const;
  bool is_attached(unsigned index) const;
  bool is_mapped(std::uint64_t place) const;  // Promises::mapped of the medium it is on
  bool is_mirror_alone() const;               // the first is one, in the place of what it mirrors
  bool is_settled(unsigned index) const;      // nothing was written there since its last barrier

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override;
  Ticket write_lent(std::uint64_t at, std::span<const std::byte> bytes,
                    std::uint64_t seed) override;
  void await_lent(std::span<const std::byte> bytes) noexcept override;  // on all media
  void wait(const Ticket& ticket) override;
  void barrier() override;
  void store_word(std::uint64_t at, std::uint64_t word) override;
  void read(std::uint64_t at, std::span<std::byte> bytes) override;
  void look(std::uint64_t at, std::span<std::byte> bytes) override;
  std::span<const std::byte> view(const Extent& extent) override;
  std::uint64_t size() override;
  // `end` is a place, and so is what is returned.
  std::uint64_t reserve(std::uint64_t end) override;
  std::uint64_t shrink(std::uint64_t end) override;  // likewise; counts as no failure of I8
  // Its mirror refused the last shrink(): it is longer than it need be, and nothing else.
  bool mirror_uncut(unsigned index) const;
  Promises promises() const override;
  PinTable* pins() override;

  MediumCounters counters() const;
  bool failed() const;  // poisoned: what only reads still works

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The medium for a file or device, by the table of detect.cpp. A tier that is asked for by name is
// obeyed or refused (Errc::not_dax, Errc::unsupported, or Errc::bad_argument where it is none of
// tiers()), never quietly changed. What is chosen because a better one is not in this build says so
// in promises().notes.
std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options);

// How a shelf is made at a path: as a file that gets its name when it is whole, on the device that
// is there, or in the parts that the file there describes, which stays.
enum class MadeAs { file, device, parts };
MadeAs made_as(const std::filesystem::path& path);  // a file where the path cannot be asked about

}  // namespace tensorshelf
