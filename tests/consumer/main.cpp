// Two runs of a trainer in one program: the first persists, the second finds the value and step.
#include <cstdio>
#include <span>
#include <vector>

#include <tensorshelf/shelf.hpp>

using tensorshelf::DType;
using tensorshelf::Shelf;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: consumer SHELF\n");
    return 2;
  }
  const std::vector<float> weights = {1.5F, -2.0F, 0.25F, 8.0F};
  {
    auto shelf = Shelf::open(argv[1], {.mode = tensorshelf::Mode::replace});
    const std::vector<std::int64_t> shape = {2, 2};
    auto w = shelf.create("w", DType::float32, shape);
    w.write(std::as_bytes(std::span(weights)));
    shelf.persist(7);
    shelf.close();
  }
  auto shelf = Shelf::open(argv[1], {.mode = tensorshelf::Mode::read});
  std::vector<float> found(weights.size());
  shelf.find("w").value().read(std::as_writable_bytes(std::span(found)));
  if (found != weights || shelf.info().step != 7U) {
    std::fprintf(stderr, "consumer: found other values than were persisted\n");
    return 1;
  }
  std::printf("consumer: version %llu, step 7, as persisted\n",
              static_cast<unsigned long long>(shelf.info().version));
  return 0;
}
