#include "media/block/buffers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/copy_hash.hpp"
#include "base/huge_pages.hpp"
#include "base/planted.hpp"

namespace tensorshelf {
namespace {

// A device write that made no progress is begun again at most so often.
constexpr unsigned kMaxTries = 16;

constexpr std::uint64_t kLargeWriteBytes = 256 * 1024;

// A small commit leaves as one: data, and two copies each of a leaf or two and the root.
constexpr unsigned kMostOpen = 8;

// The kernel did nothing, and not because of the device: the thread that submitted has exited
// (its queued work is cancelled) or was interrupted.
bool nothing_was_tried(std::int64_t result) {
  return result == -ECANCELED || result == -EINTR || result == -EAGAIN;
}

DeviceBegun submit_to(BlockBackend& backend, std::span<const DeviceWrite> writes) noexcept {
  try {
    return backend.submit(writes);
  } catch (const std::bad_alloc&) {
    return {0, -ENOMEM};
  } catch (...) {
    return {0, -EIO};
  }
}

FailedTransfer failed_write(const DeviceWrite& write, std::int64_t result) noexcept {
  return {"write", write.at, write.bytes.size(), result};
}

}  // namespace

StagingBuffers::StagingBuffers(BlockBackend& backend, const StagingShape& shape,
                               std::filesystem::path path)
    : backend_(backend),
      buffer_bytes_(shape.buffer_bytes),
      max_open_(std::clamp(shape.buffers / 2, 1u, kMostOpen)),
      memory_(shape.memory),
      path_(std::move(path)),
      buffers_(shape.buffers) {
  for (unsigned i = 0; i < shape.buffers; ++i) {
    buffers_[i].memory = shape.memory.data() + i * buffer_bytes_;
  }
  begun_.reserve(shape.buffers);
  if (backend.caches()) cached_copy_ = std::make_unique<std::byte[]>(kMostCachedBytes);
}

StagingBuffers::~StagingBuffers() {
  Lock lock(mutex_);
  while (in_flight_ > 0) reap(lock);
}

Ticket StagingBuffers::write(std::uint64_t at, std::span<const std::byte> bytes,
                             std::uint64_t seed) {
  const std::uint64_t size_bytes = round_up(bytes.size(), kPageBytes);
  TENSORSHELF_ASSERT(at % kPageBytes == 0 && size_bytes <= buffer_bytes_);
  Lock lock(mutex_);
  throw_failure();
  if (bytes.empty()) return {sequence_, hash_bytes(bytes, seed)};

  if (!huge_pages_ && bytes.size() >= kLargeWriteBytes) {
    prefer_huge_pages(memory_);
    huge_pages_ = true;
  }
  Buffer* buffer = nullptr;
  while ((buffer = place(at, size_bytes)) == nullptr) {
    progress(lock);
    throw_failure();
  }
  const std::uint64_t sequence = ++sequence_;
  if (buffer->first_sequence == 0) buffer->first_sequence = sequence;
  buffer->last_sequence = sequence;
  ++buffer->copying;
  std::byte* const target = buffer->memory + (at - buffer->at);
  if (buffer->used_bytes == buffer_bytes_) close(*buffer);
  submit();

  lock.unlock();
  const std::uint64_t checksum = copy_and_hash(target, bytes, seed, Stores::cached);
  std::memset(target + bytes.size(), 0, size_bytes - bytes.size());
  lock.lock();

  --buffer->copying;
  if (buffer->state == State::closing && buffer->copying == 0) {
    begin(*buffer);
    submit();
    changed_.notify_all();
  }
  return {sequence, checksum};
}

// Under the lock, so that no write is begun meanwhile. The bytes are copied first, for the checksum
// is of what is written, whoever changes the source.
std::optional<Ticket> StagingBuffers::write_cached(std::uint64_t at,
                                                   std::span<const std::byte> bytes,
                                                   std::uint64_t seed) {
  const std::uint64_t size_bytes = round_up(bytes.size(), kPageBytes);
  TENSORSHELF_ASSERT(at % kPageBytes == 0 && size_bytes <= kMostCachedBytes);
  const Lock lock(mutex_);
  throw_failure();
  const bool held = std::any_of(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
    return buffer.holds(at, at + size_bytes);
  });
  const bool in_order = !held || planted(Bug::held_page_overtaken);
  if (in_flight_ > 0 || !in_order || bytes.empty()) return std::nullopt;
  std::byte* const copy = cached_copy_.get();
  const Ticket ticket{sequence_, copy_and_hash(copy, bytes, seed, Stores::cached)};
  std::memset(copy + bytes.size(), 0, size_bytes - bytes.size());
  const std::int64_t result = backend_.write_cached(at, {copy, size_bytes});
  if (result == static_cast<std::int64_t>(size_bytes)) return ticket;
  keep({"write", at, size_bytes, result});
  throw_failure();
  return std::nullopt;
}

void StagingBuffers::wait(std::uint64_t sequence) {
  Lock lock(mutex_);
  settle(lock, [&](const Buffer& buffer) { return buffer.first_sequence <= sequence; });
  throw_failure();
}

void StagingBuffers::drain(std::uint64_t at, std::uint64_t size_bytes) {
  Lock lock(mutex_);
  settle(lock, [&](const Buffer& buffer) { return buffer.holds(at, at + size_bytes); });
}

void StagingBuffers::drain_pages(std::span<const std::uint64_t> at) {
  Lock lock(mutex_);
  settle(lock, [&](const Buffer& buffer) {
    return std::any_of(at.begin(), at.end(), [&](std::uint64_t page_at) {
      return buffer.holds(page_at, page_at + kPageBytes);
    });
  });
}

void StagingBuffers::check() {
  const std::lock_guard lock(mutex_);
  throw_failure();
}

void StagingBuffers::fail(const FailedTransfer& failed) noexcept {
  const std::lock_guard lock(mutex_);
  keep(failed);
}

int StagingBuffers::write_zeros(std::uint64_t at, std::uint64_t size_bytes) {
  Lock lock(mutex_);
  settle(lock, [](const Buffer&) { return true; });
  throw_failure();
  std::vector<bool> zeroed(buffers_.size(), false);
  const std::uint64_t end = at + size_bytes;
  while (at < end && !failure_) {
    Buffer* buffer = find_free();
    if (buffer == nullptr) {
      progress(lock);
      continue;
    }
    buffer->at = at;
    buffer->used_bytes = std::min(buffer_bytes_, end - at);
    // Later zeros in the same buffer are never longer than the first.
    const auto index = static_cast<std::size_t>(buffer - buffers_.data());
    if (!zeroed[index]) std::memset(buffer->memory, 0, buffer->used_bytes);
    zeroed[index] = true;
    at += buffer->used_bytes;
    begin(*buffer);
    submit();
  }
  settle(lock, [](const Buffer&) { return true; });
  if (!failure_) return 0;
  const bool broken = std::any_of(buffers_.begin(), buffers_.end(),
                                  [](const Buffer& b) { return b.state == State::lost; });
  const std::int64_t result = failure_->result;
  if (!broken) failure_.reset();
  return result < 0 ? static_cast<int>(-result) : EIO;
}

std::vector<std::string> StagingBuffers::backend_notes() {
  const std::lock_guard lock(mutex_);
  return backend_.notes();
}

// The buffer that has room reserved for the write, or null when something must end first.
StagingBuffers::Buffer* StagingBuffers::place(std::uint64_t at, std::uint64_t size_bytes) {
  Buffer* continued = nullptr;
  bool overlapped = false;
  for (Buffer& buffer : buffers_) {
    if (buffer.holds(at, at + size_bytes)) {
      // Earlier writes to these bytes have returned, so their copies are done: overwrite them.
      const bool within = buffer.at <= at && at + size_bytes <= buffer.at + buffer.used_bytes;
      if (buffer.state == State::open && within) return &buffer;
      if (buffer.state == State::open) close(buffer);
      overlapped = overlapped || buffer.busy();
    } else if (buffer.state == State::open && buffer.at + buffer.used_bytes == at &&
               buffer.used_bytes + size_bytes <= buffer_bytes_) {
      continued = &buffer;
    }
  }
  if (overlapped) return nullptr;
  if (continued != nullptr) {
    continued->used_bytes += size_bytes;
    return continued;
  }
  if (open_ == max_open_) close(*least_recent_open());
  Buffer* buffer = find_free();
  if (buffer == nullptr) return nullptr;
  buffer->state = State::open;
  buffer->at = at;
  buffer->used_bytes = size_bytes;
  ++open_;
  return buffer;
}

StagingBuffers::Buffer* StagingBuffers::least_recent_open() {
  Buffer* least = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.state != State::open) continue;
    if (least == nullptr || buffer.last_sequence < least->last_sequence) least = &buffer;
  }
  TENSORSHELF_ASSERT(least != nullptr);
  return least;
}

StagingBuffers::Buffer* StagingBuffers::find_free() {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::free) return &buffer;
  }
  return nullptr;
}

void StagingBuffers::close(Buffer& buffer) {
  TENSORSHELF_ASSERT(buffer.state == State::open);
  buffer.state = State::closing;
  --open_;
  if (buffer.copying == 0) begin(buffer);
}

// The device write of what is not yet on the device: the next submit() is what hands it over. After
// a failure it is dropped.
void StagingBuffers::begin(Buffer& buffer) noexcept {
  if (failure_) return release(buffer);
  if (buffer.used_bytes >= kLargeWriteBytes && buffer.lent == nullptr && !buffer.huge) {
    make_huge_pages({buffer.memory, buffer_bytes_});  // before the kernel registers any of it
    buffer.huge = true;
  }
  begun_.push_back(rest_of(buffer));  // there is room
  buffer.state = State::in_flight;
  ++in_flight_;
}

// Before the lock is let go of: everything begun, at once.
void StagingBuffers::submit() noexcept {
  if (begun_.empty()) return;
  const DeviceBegun done = failure_ ? DeviceBegun{} : submit_to(backend_, begun_);
  for (std::size_t i = done.count; i < begun_.size(); ++i) {
    keep(failed_write(begun_[i], done.error));
    --in_flight_;
    release(buffers_[begun_[i].buffer]);
  }
  begun_.clear();
}

void StagingBuffers::release(Buffer& buffer) noexcept {
  buffer = Buffer{.memory = buffer.memory, .huge = buffer.huge};
  changed_.notify_all();
}

// Sleeps until some buffer may have changed; the caller looks again.
void StagingBuffers::progress(Lock& lock) {
  submit();
  const bool copies_under_way =
      std::any_of(buffers_.begin(), buffers_.end(),
                  [](const Buffer& buffer) { return buffer.state == State::closing; });
  if (in_flight_ > 0) {
    reap(lock);
  } else if (copies_under_way) {
    changed_.wait(lock);
  }
}

void StagingBuffers::reap(Lock& lock) {
  if (reaping_) return changed_.wait(lock);
  reaping_ = true;
  lock.unlock();
  auto completion = backend_.complete(true);
  lock.lock();
  TENSORSHELF_ASSERT(completion.has_value());
  do {
    complete(*completion);
    completion = in_flight_ > 0 ? backend_.complete(false) : std::nullopt;
  } while (completion);
  submit();  // what goes on
  reaping_ = false;
  changed_.notify_all();
}

// Anything but the full length is an error, or progress that is carried on.
void StagingBuffers::complete(const DeviceCompletion& completion) noexcept {
  if (completion.buffer == DeviceCompletion::kBroken) {
    return give_up_in_flight({"write", 0, 0, completion.result});
  }
  TENSORSHELF_ASSERT(completion.buffer < buffers_.size());
  Buffer& buffer = buffers_[completion.buffer];
  TENSORSHELF_ASSERT(buffer.state == State::in_flight);
  --in_flight_;
  const std::uint64_t remaining_bytes = buffer.used_bytes - buffer.on_device_bytes;
  const bool whole = completion.result == static_cast<std::int64_t>(remaining_bytes);
  if (whole || (completion.result > 0 && planted(Bug::cut_write_left))) return release(buffer);

  const bool moved = completion.result > 0;
  if ((moved || nothing_was_tried(completion.result)) && ++buffer.tries <= kMaxTries) {
    // O_DIRECT goes on at a page boundary, so part of a page is written again.
    const std::uint64_t whole_pages =
        moved ? static_cast<std::uint64_t>(completion.result) / kPageBytes * kPageBytes : 0;
    TENSORSHELF_ASSERT(whole_pages < remaining_bytes);
    if (whole_pages > 0) buffer.tries = 0;
    buffer.on_device_bytes += whole_pages;
    return begin(buffer);
  }
  keep(failed_write(rest_of(buffer), completion.result));
  release(buffer);
}

// Their ends can no longer be learned, so their memory is never used again.
void StagingBuffers::give_up_in_flight(const FailedTransfer& failed) noexcept {
  for (Buffer& buffer : buffers_) {
    if (buffer.state == State::in_flight) buffer.state = State::lost;
  }
  begun_.clear();
  in_flight_ = 0;
  keep(failed);
}

void StagingBuffers::keep(const FailedTransfer& failed) noexcept {
  if (!failure_) failure_ = failed;
}

void StagingBuffers::throw_failure() const {
  if (failure_) throw transfer_error(path_, *failure_);
}

DeviceWrite StagingBuffers::rest_of(const Buffer& buffer) const noexcept {
  const std::byte* const first = buffer.lent != nullptr ? buffer.lent : buffer.memory;
  return {
      .at = buffer.at + buffer.on_device_bytes,
      .bytes = {first + buffer.on_device_bytes, buffer.used_bytes - buffer.on_device_bytes},
      .buffer = static_cast<unsigned>(&buffer - buffers_.data()),
  };
}

}  // namespace tensorshelf
