// The public face: hands calls to the store.
#include <tensorshelf/shelf.hpp>

#include <fmt/format.h>

#include <utility>

#include "store/commit/assignment.hpp"
#include "store/commit_checks.hpp"
#include "store/format_shelf.hpp"
#include "store/open_path.hpp"
#include "store/places/split.hpp"
#include "store/snapshot.hpp"
#include "store/state/asked.hpp"

namespace tensorshelf {
namespace {

// Before anything is opened, made or replaced. To write to what is not whole is for repair(); and
// what is damaged must be told, not refused.
void check_options(const OpenOptions& options) {
  const Asked checked(options);
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

}  // namespace

Shelf Shelf::open(const std::filesystem::path& path, const OpenOptions& options) {
  check_options(options);
  Opened opened = open_path(path, options);
  return Shelf(std::move(opened.store), std::move(opened.file), opened.created);
}

void Shelf::format(Medium& medium, const OpenOptions& options) {
  format_shelf(medium, split_of(options));
}

Shelf Shelf::open(std::unique_ptr<Medium> medium, const OpenOptions& options) {
  return open(std::move(medium), {}, {}, options);
}

Shelf Shelf::open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                  const OpenOptions& options) {
  return open(std::move(medium), std::move(also), {}, options);
}

Shelf Shelf::open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                  std::vector<MirrorMedium> mirrors, const OpenOptions& options) {
  check_options(options);
  const std::string name = medium->promises().medium;
  std::vector<OfferedMedium> offered;
  const auto offer = [&](std::unique_ptr<Medium> given, std::optional<unsigned> of) {
    const std::string called = fmt::format("<{} {}>", name, offered.size() + 1);
    offered.push_back({.path = called, .found = {std::move(given)}, .mirrors = of});
  };
  for (auto& each : also) offer(std::move(each), std::nullopt);
  for (auto& mirror : mirrors) offer(std::move(mirror.medium), mirror.of);
  medium = mirror_alone(std::move(medium), options);
  return Shelf(
      open_store(shelf_media(std::move(medium), std::move(offered), {}, 0, options.without),
                 options, "<" + name + ">"));
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
  if (store_) store_->let_go();
}

TensorRef Shelf::create(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                        std::span<const unsigned> media) {
  return TensorRef(store_, store_->tensors().create(name, dtype, shape, Made::anew, media));
}

TensorRef Shelf::replace(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                         std::span<const unsigned> media) {
  return TensorRef(store_, store_->tensors().create(name, dtype, shape, Made::in_place, media));
}

Assignment Shelf::create_with(std::string_view name, DType dtype,
                              std::span<const std::int64_t> shape,
                              std::span<const unsigned> media) {
  return Assignment(store_, store_->tensors().make(name, dtype, shape, Made::anew, media));
}

Assignment Shelf::replace_with(std::string_view name, DType dtype,
                               std::span<const std::int64_t> shape,
                               std::span<const unsigned> media) {
  return Assignment(store_, store_->tensors().make(name, dtype, shape, Made::in_place, media));
}

void Shelf::erase(std::string_view name) { store_->tensors().erase(name); }

void Shelf::rename(std::string_view from, std::string_view to) {
  store_->tensors().rename(from, to);
}

TensorRef Shelf::resize(std::string_view name, std::int64_t rows) {
  return TensorRef(store_, store_->tensors().resize(name, rows));
}

TensorRef Shelf::move(std::string_view name, std::span<const unsigned> media) {
  return TensorRef(store_, store_->tensors().move(name, media));
}

void Shelf::remove_medium(unsigned number) { store_->tensors().remove_medium(number); }

void Shelf::reserve(std::uint64_t size_bytes) { store_->tensors().reserve(size_bytes); }

std::optional<TensorRef> Shelf::find(std::string_view name) const {
  auto tensor = store_->catalog().find(name);
  if (!tensor) return std::nullopt;
  return TensorRef(store_, std::move(tensor));
}

std::vector<std::string> Shelf::names() const { return store_->catalog().names(); }

void Shelf::check_still_there(bool lately) const {
  check_name(file_);
  store_->catalog().check_media(lately);
}

Commit Shelf::persist(std::optional<std::uint64_t> step) {
  check_step(step);
  check_still_there(true);
  return store_->persist(step);
}

std::shared_future<Commit> Shelf::persist_async(std::optional<std::uint64_t> step) {
  check_step(step);
  check_still_there(true);
  return store_->persist_async(step);
}

Prepared Shelf::prepare(std::optional<std::uint64_t> step, std::string_view id) {
  check_step(step);
  check_still_there();
  check_id(id);
  return store_->decisions().prepare(step, id);
}

std::optional<Prepared> Shelf::prepared() const { return store_->decisions().prepared(); }

Resolved Shelf::resolve(Decision decision) {
  if (decision == Decision::abandon) return store_->decisions().abandon();
  check_still_there();
  return store_->decisions().commit();
}

void Shelf::discard() { store_->discard(); }

Transaction Shelf::transaction() {
  store_->transactions().begin();
  return Transaction(store_, file_);
}

std::vector<VersionInfo> Shelf::versions() const { return store_->catalog().versions(); }

RetainedVersion Shelf::at(std::uint64_t version) const {
  store_->catalog().version_info(version);  // throws where it is not there
  return RetainedVersion(store_, version);
}

// What was removed since is asked for no more by who went on.
bool Shelf::refresh() {
  if (store_->follower().refresh()) return true;
  check_still_there();
  return false;
}

bool Shelf::wait_for(std::optional<std::uint64_t> version,
                     std::optional<std::chrono::duration<double>> timeout) {
  return store_->follower().wait_for(version, timeout, [this] { check_still_there(true); });
}

VersionPin Shelf::pin(std::optional<std::uint64_t> version, PinnedFor what) const {
  return VersionPin(store_, version, what);
}

VersionDiff Shelf::diff(std::uint64_t from, std::uint64_t to) const {
  return store_->catalog().diff(from, to);
}

Commit Shelf::snapshot(const std::filesystem::path& path, const OpenOptions& options,
                       std::optional<std::uint64_t> version) const {
  return write_snapshot(*store_, path, options, version);
}

Commit Shelf::rollback(std::uint64_t version) {
  check_still_there();
  return store_->rollback().to(version);
}

CompactReport Shelf::compact(std::chrono::duration<double> patience) {
  check_still_there();
  return store_->compactor().run(patience);
}

VerifyReport Shelf::verify(const Progress& progress, const OnDamage& on_damage) const {
  return store_->reader().verify(progress, on_damage);
}
VerifyReport Shelf::heal(const Progress& progress) {
  check_still_there();
  return store_->healing().heal(progress);
}
VerifyReport Shelf::heal(VerifyReport found) {
  check_still_there();
  return store_->healing().heal(std::move(found));
}
ShelfInfo Shelf::info() const {
  ShelfInfo info = store_->catalog().info();
  info.created = created_;
  return info;
}
std::uint64_t Shelf::version() const { return store_->catalog().version(); }
std::optional<std::uint64_t> Shelf::step() const { return store_->catalog().step(); }
std::uint64_t Shelf::free_bytes() const { return store_->catalog().free_bytes(); }
Stats Shelf::stats() const { return store_->catalog().stats(); }
bool Shelf::has_uncommitted() const { return store_->has_uncommitted(); }
std::string Shelf::unheard_failure() const { return store_->unheard_failure(); }
void Shelf::close() { store_->close(); }
bool Shelf::closed() const { return store_->closed(); }

}  // namespace tensorshelf
