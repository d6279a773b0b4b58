// What the bench programs are told on their command lines, and the bytes that they write.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::bench {

struct Settings {
  std::filesystem::path directory = "/dev/shm";
  std::string tier = "auto";
  std::uint64_t bytes = 1ULL << 30;
  int rounds = 7;
};

inline void add_options(CLI::App& app, Settings& settings) {
  app.add_option("--dir", settings.directory, "where the scratch shelves go");
  app.add_option("--tier", settings.tier)->check(CLI::IsMember(tiers()));
  app.add_option("--bytes", settings.bytes);
  app.add_option("--rounds", settings.rounds);
}

inline std::vector<std::byte> filled(std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  for (std::uint64_t i = 0; i < size; i += 8) std::memcpy(&bytes[i], &i, std::min(size - i, 8UL));
  return bytes;
}

}  // namespace tensorshelf::bench
