// The public face: opens a place, puts the guard around its medium, hands calls to the store.
#include <tensorshelf/shelf.hpp>

#include <fmt/format.h>

#include <utility>

#include "media/media.hpp"
#include "store/assignment.hpp"
#include "store/format_shelf.hpp"
#include "store/split.hpp"
#include "store/store.hpp"

namespace tensorshelf {
namespace {

std::shared_ptr<Store> open_store(std::unique_ptr<Medium> medium, const OpenOptions& options,
                                  const std::string& path) {
  try {
    return std::make_shared<Store>(std::make_shared<GuardedMedium>(std::move(medium)), options,
                                   path);
  } catch (const Error& error) {  // what recovery says, it says of a medium: name the path
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()), error.remedy(),
                error.os_error());
  }
}

// A shelf in a file: the medium alone keeps the file, so that close() gives up its lock.
struct Opened {
  std::shared_ptr<Store> store;
  std::weak_ptr<const ShelfFile> file = {};
  bool created = false;
};

Opened open_existing(const std::filesystem::path& path, const OpenOptions& options) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, options.mode != Mode::read));
  return {open_store(make_medium(file, options), options, path.string()), file};
}

// A regular file of 0 bytes, as touch and tempfile make them: nothing can be lost with it.
bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  return std::filesystem::file_size(path, error) == 0 && !error;
}

// The file appears under its name only when it is a whole shelf.
Opened create_file(const std::filesystem::path& path, const OpenOptions& options) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  auto medium = make_medium(file, options);
  Shelf::format(*medium, options);
  if (is_empty_file(path) && options.mode == Mode::append) {
    file->publish_over_empty();
  } else {
    file->publish(options.mode == Mode::replace);
  }
  return {open_store(std::move(medium), options, path.string()), file, true};
}

Opened format_device(const std::filesystem::path& path, const OpenOptions& options) {
  auto file = std::make_shared<ShelfFile>(ShelfFile::open(path, true));
  auto medium = make_medium(file, options);
  Shelf::format(*medium, options);
  return {open_store(std::move(medium), options, path.string()), file, true};
}

bool is_device(const std::filesystem::path& path) {
  std::error_code ignored;  // a path that cannot be asked about is none
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::is_block_file(status) || std::filesystem::is_character_file(status);
}

Opened open_or_create(const std::filesystem::path& path, const OpenOptions& options) {
  for (bool looked_again = false;;) {
    try {
      return open_existing(path, options);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found && error.code() != Errc::not_a_shelf) throw;
      if (error.code() == Errc::not_a_shelf && !is_empty_file(path)) {
        if (looked_again) throw;
        looked_again = true;  // it may have been empty, and another process was faster
        continue;
      }
    }
    try {
      return create_file(path, options);
    } catch (const Error& error) {
      if (error.code() != Errc::exists) throw;  // another process made it first: open that one
    }
  }
}

Opened open_path(const std::filesystem::path& path, const OpenOptions& options) {
  switch (options.mode) {
    case Mode::read:
    case Mode::update:
      return open_existing(path, options);
    case Mode::append:
      return open_or_create(path, options);
    case Mode::replace:
      return is_device(path) ? format_device(path, options) : create_file(path, options);
    case Mode::create:
      if (is_device(path)) {
        throw Error(Errc::exists,
                    fmt::format("{} is a device, and is there already", path.string()),
                    "mode \"w\" makes a shelf of it and erases what there is.");
      }
      return create_file(path, options);
  }
  throw Error(Errc::bad_argument, "the mode is none of those that there are", "Use Mode::append.");
}

// To write to what is not whole is for repair(); and what is damaged must be told, not refused.
void check_salvage(const OpenOptions& options) {
  if (!options.salvage) return;
  if (options.mode != Mode::read) {
    throw Error(Errc::bad_argument, "a shelf can be salvaged by reading alone",
                "Use mode=\"r\"; repair() makes the shelf writable again.");
  }
  if (options.verify != Verify::on_load) {
    throw Error(Errc::bad_argument, "what is salvaged is verified when it is read",
                "Leave verify as it is, \"load\"; verify() lists all that is damaged.");
  }
}

void check_step(std::optional<std::uint64_t> step) {
  if (step != format::kNoStep) return;
  throw Error(Errc::bad_argument, fmt::format("the step {} is what stands for none", *step),
              "Use 0 to 2^64 - 2, or none.");
}

}  // namespace

Shelf Shelf::open(const std::filesystem::path& path, const OpenOptions& options) {
  check_salvage(options);
  Opened opened = open_path(path, options);
  return Shelf(std::move(opened.store), std::move(opened.file), opened.created);
}

void Shelf::format(Medium& medium, const OpenOptions& options) {
  const Split split = split_of(options);
  format_shelf(medium, split.keep, split.in_flight);
}

Shelf Shelf::open(std::unique_ptr<Medium> medium, const OpenOptions& options) {
  check_salvage(options);
  const std::string name = medium->promises().medium;
  return Shelf(open_store(std::move(medium), options, "<" + name + ">"));
}

Shelf::Shelf(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file, bool created)
    : store_(std::move(store)), file_(std::move(file)), created_(created) {}
Shelf::Shelf(Shelf&&) noexcept = default;
Shelf& Shelf::operator=(Shelf&& other) noexcept {
  Shelf shelf(std::move(other));  // and with it goes what was open here
  std::swap(store_, shelf.store_);
  std::swap(file_, shelf.file_);
  std::swap(created_, shelf.created_);
  return *this;
}

Shelf::~Shelf() {
  if (!store_) return;
  try {
    store_->close();
  } catch (const std::exception&) {
    // As in ~Store(): who wants to know calls close().
  }
}

TensorRef Shelf::create(std::string_view name, DType dtype, std::span<const std::int64_t> shape) {
  return TensorRef(store_, store_->create(name, dtype, shape, false));
}

TensorRef Shelf::replace(std::string_view name, DType dtype, std::span<const std::int64_t> shape) {
  return TensorRef(store_, store_->create(name, dtype, shape, true));
}

Assignment Shelf::create_with(std::string_view name, DType dtype,
                              std::span<const std::int64_t> shape) {
  return Assignment(store_, store_->make(name, dtype, shape, false));
}

Assignment Shelf::replace_with(std::string_view name, DType dtype,
                               std::span<const std::int64_t> shape) {
  return Assignment(store_, store_->make(name, dtype, shape, true));
}

void Shelf::erase(std::string_view name) { store_->erase(name); }

std::optional<TensorRef> Shelf::find(std::string_view name) const {
  auto tensor = store_->find(name);
  if (!tensor) return std::nullopt;
  return TensorRef(store_, std::move(tensor));
}

std::vector<std::string> Shelf::names() const { return store_->names(); }

// Before anything is done: the shelf stays as it is, can be read, and can try again.
void Shelf::check_commit(std::optional<std::uint64_t> step) const {
  check_step(step);
  if (const auto file = file_.lock()) file->check_name();
}

Commit Shelf::persist(std::optional<std::uint64_t> step) {
  check_commit(step);
  return store_->persist(step);
}

std::shared_future<Commit> Shelf::persist_async(std::optional<std::uint64_t> step) {
  check_commit(step);
  return store_->persist_async(step);
}

Prepared Shelf::prepare(std::optional<std::uint64_t> step, std::string_view id) {
  check_commit(step);
  if (id.size() > format::kMaxIdBytes) {
    throw Error(Errc::bad_argument, fmt::format("an id of {} bytes", id.size()),
                fmt::format("Use {} bytes at most.", format::kMaxIdBytes));
  }
  return store_->prepare(step, id);
}

std::optional<Prepared> Shelf::prepared() const { return store_->prepared(); }

std::optional<Commit> Shelf::resolve(Decision decision) {
  if (decision == Decision::commit) {
    if (const auto file = file_.lock()) file->check_name();
    return store_->commit_prepared();
  }
  store_->abandon_prepared();
  return std::nullopt;
}

void Shelf::discard() { store_->discard(); }

Transaction Shelf::transaction() {
  store_->begin_transaction();
  return Transaction(store_, file_);
}

Transaction::~Transaction() {
  if (!store_) return;
  try {
    store_->end_transaction();
  } catch (const std::exception&) {  // closed or failed meanwhile: then nothing of it is committed
  }
}

Commit Transaction::commit(std::optional<std::uint64_t> step) {
  if (!store_) {
    throw Error(Errc::transaction, "the transaction has ended: it was committed or discarded",
                "Begin another one with transaction().");
  }
  check_step(step);
  if (const auto file = file_.lock()) file->check_name();
  bool ended = false;
  const auto store = std::exchange(store_, nullptr);
  try {
    return store->commit_transaction(step, ended);
  } catch (...) {
    if (!ended) store_ = store;
    throw;
  }
}

void Transaction::discard() {
  if (store_) store_->refuse_inside("a transaction was discarded");
  if (const auto store = std::exchange(store_, nullptr)) store->end_transaction();
}

std::vector<VersionInfo> Shelf::versions() const { return store_->versions(); }

RetainedVersion Shelf::at(std::uint64_t version) const {
  store_->version_info(version);  // throws where it is not there
  return RetainedVersion(store_, version);
}

VersionDiff Shelf::diff(std::uint64_t from, std::uint64_t to) const {
  return store_->diff(from, to);
}

Commit Shelf::rollback(std::uint64_t version) {
  if (const auto file = file_.lock()) file->check_name();
  return store_->rollback(version);
}

VersionInfo RetainedVersion::info() const { return store_->version_info(version_); }
std::vector<std::string> RetainedVersion::names() const { return store_->names(version_); }
std::optional<RetainedTensor> RetainedVersion::find(std::string_view name) const {
  auto tensor = store_->find(name, version_);
  if (!tensor) return std::nullopt;
  return RetainedTensor(store_, std::move(tensor), version_);
}

TensorInfo RetainedTensor::info() const { return store_->info(*tensor_, Of::version(version_)); }
void RetainedTensor::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->read(*tensor_, bytes, offset, Of::version(version_));
}
Lease RetainedTensor::lease() const { return store_->lease(tensor_, Of::version(version_)); }

VerifyReport Shelf::verify(const Progress& progress) const { return store_->verify(progress); }
ShelfInfo Shelf::info() const {
  ShelfInfo info = store_->info();
  info.created = created_;
  return info;
}
std::uint64_t Shelf::version() const { return store_->version(); }
std::optional<std::uint64_t> Shelf::step() const { return store_->step(); }
std::uint64_t Shelf::free_bytes() const { return store_->free_bytes(); }
Stats Shelf::stats() const { return store_->stats(); }
bool Shelf::has_uncommitted() const { return store_->has_uncommitted(); }
void Shelf::close() { store_->close(); }
bool Shelf::closed() const { return store_->closed(); }

TensorInfo TensorRef::info() const { return store_->info(*tensor_, Of::committed()); }

void TensorRef::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  store_->write(tensor_, bytes, offset);
}

Assignment TensorRef::assign() { return Assignment(store_, tensor_); }

Assignment::Assignment(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor)
    : store_(std::move(store)),
      tensor_(std::move(tensor)),
      assignment_(std::make_unique<StoredAssignment>(*store_, tensor_)) {}

Assignment::Assignment(std::shared_ptr<Store> store, NewTensor made)
    : store_(std::move(store)),
      made_(std::make_unique<NewTensor>(std::move(made))),
      tensor_(made_->named.tensor),
      assignment_(std::make_unique<StoredAssignment>(*store_, *made_)) {}

Assignment::~Assignment() = default;

StoredAssignment& Assignment::under_way() const {
  if (assignment_) return *assignment_;
  throw Error(Errc::unsupported, "the assignment has ended: it is done",
              "Begin another one with assign().");
}

void Assignment::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  under_way().write(bytes, offset);
}

void Assignment::done() {
  if (!made_) {
    under_way().done();
    assignment_.reset();
    return;
  }
  under_way().done_apart(*made_);
  assignment_.reset();
  const auto made = std::move(made_);  // from here on its places are the attempt's
  store_->add(*made);
}

void TensorRef::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->read(*tensor_, bytes, offset, Of::staged());
}

void TensorRef::read_committed(std::span<std::byte> bytes, std::uint64_t offset) const {
  store_->read(*tensor_, bytes, offset, Of::committed());
}

Lease TensorRef::lease() const { return store_->lease(tensor_, Of::staged()); }
Lease TensorRef::lease_committed() const { return store_->lease(tensor_, Of::committed()); }

}  // namespace tensorshelf
