// What most sources include, read once for all; each says for itself what it needs, all the same.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>
