// Runs a piece of exploring in a process of its own, so that an assertion or a wild pointer in the
// store is one more finding and not the end of the run, and so that both cores have work.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "walk.hpp"

namespace tensorshelf::crash {

struct Result {
  Counts counts;
  double seconds = 0;
  std::string violation;  // empty: none. The first line says where.
};

// What is freed goes to the next that asks, and not to the kernel, which would clear it once more:
// disks of megabytes are made for each recovery. For this process, and its children.
void keep_freed_memory();

using Task = std::function<Result()>;

// Runs the tasks, `jobs` at a time, each in a forked child, and hands their results out in order.
void run_in_children(const std::vector<Task>& tasks, unsigned jobs,
                     const std::function<void(std::size_t index, const Result& result)>& done);

// What a child that dies says it was doing; the text and the counts must outlive the doing.
void note_workload(std::string_view where, const Counts* counts);
void note_position(const char* what, std::uint64_t depth, std::uint64_t event);

}  // namespace tensorshelf::crash
