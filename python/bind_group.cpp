// The machines of a group (group.hpp), for the threads of Python that move their messages.
#include <tuple>
#include <utility>

#include <tensorshelf/group.hpp>
#include <tensorshelf/partition.hpp>
#include <tensorshelf/socket.hpp>

#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

using Numbers = std::pair<std::uint64_t, std::uint64_t>;  // of an epoch: generation, number

// (rank, members, the epochs that are committed, the one that is prepared)
using PartTuple =
    std::tuple<std::uint32_t, std::uint32_t, std::vector<Numbers>, std::optional<Numbers>>;

Numbers numbers_of(const Epoch& epoch) { return {epoch.generation, epoch.number}; }
Epoch epoch_of(const Numbers& numbers) { return {numbers.first, numbers.second}; }

// The epoch to go on from, what each part's shelf has to do, and the parts that do not hold it.
py::tuple agreed(const std::vector<PartTuple>& tuples, std::uint32_t members) {
  std::vector<GroupPart> parts;
  parts.reserve(tuples.size());
  for (const auto& [rank, of, committed, prepared] : tuples) {
    GroupPart part{rank, of, {}, {}};
    for (const Numbers& each : committed) part.committed.push_back(epoch_of(each));
    if (prepared) part.prepared = epoch_of(*prepared);
    parts.push_back(std::move(part));
  }
  const Agreement found = without_gil([&] { return agree(parts, members); });
  return py::make_tuple(numbers_of(found.epoch), found.todos, found.behind);
}

// (tensor, offset, bytes) of each piece of a writer
std::vector<std::tuple<std::size_t, std::uint64_t, std::uint64_t>> pieces_of(
    const std::vector<std::uint64_t>& size_bytes, std::size_t writers, std::size_t writer) {
  const Unlocked unlocked;
  std::vector<std::tuple<std::size_t, std::uint64_t, std::uint64_t>> pieces;
  for (const Piece& piece : Partition(size_bytes, writers).of(writer)) {
    pieces.emplace_back(piece.tensor, piece.offset, piece.size_bytes);
  }
  return pieces;
}

// Of ranks by (node, socket); `which` is what chooses among them: a set, or how many.
template <typename Which>
std::vector<std::size_t> writers_of(
    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places, Which which) {
  const Unlocked unlocked;
  std::vector<RankPlace> ranks;
  ranks.reserve(places.size());
  for (const auto& [node, socket] : places) ranks.push_back({node, socket});
  return choose_writers(ranks, which);
}

// Of each share, the writers that hold it.
std::vector<std::vector<std::size_t>> holders(const std::vector<std::uint32_t>& node_of_writer,
                                              std::size_t copies) {
  const Unlocked unlocked;
  const Copies placed(node_of_writer, copies);
  std::vector<std::vector<std::size_t>> all;
  for (std::size_t share = 0; share < node_of_writer.size(); ++share) {
    all.push_back(placed.holders(share));
  }
  return all;
}

void bind_messages(py::module_& m) {
  py::enum_<Todo>(m, "Todo")
      .value("nothing", Todo::nothing)
      .value("commit", Todo::commit)
      .value("abandon", Todo::abandon);

  py::enum_<GroupMessage::Kind>(m, "GroupMessageKind")
      .value("yes", GroupMessage::Kind::yes)
      .value("no", GroupMessage::Kind::no)
      .value("commit", GroupMessage::Kind::commit)
      .value("abort", GroupMessage::Kind::abort);

  py::class_<GroupMessage>(m, "GroupMessage")
      .def(py::init([](GroupMessage::Kind kind, const Numbers& epoch, std::uint32_t rank,
                       const std::string& cause) {
             return GroupMessage{kind, epoch_of(epoch), rank, cause};
           }),
           py::arg("kind"), py::arg("epoch"), py::arg("rank"), py::arg("cause"))
      .def_static("decode", &decode_group_message, py::arg("data"))
      .def("encode", [](const GroupMessage& message) { return py::bytes(encode(message)); })
      .def_readonly("kind", &GroupMessage::kind)
      .def_property_readonly("epoch",
                             [](const GroupMessage& message) { return numbers_of(message.epoch); })
      .def_readonly("rank", &GroupMessage::rank)
      .def_property_readonly("cause",
                             [](const GroupMessage& message) { return py::bytes(message.cause); });
}

void bind_machines(py::module_& m) {
  py::class_<Participant>(m, "Participant")
      .def(py::init([](std::uint32_t rank, const Numbers& last) {
             return Participant(rank, epoch_of(last));
           }),
           py::arg("rank"), py::arg("last"))
      .def("begin", [](Participant& participant) { return numbers_of(participant.begin()); })
      .def("prepared", &Participant::prepared)
      .def("refused", &Participant::refused, py::arg("cause"))
      .def("receive", &Participant::receive, py::arg("decision"))
      .def_property_readonly("ended", &Participant::ended)
      .def_property_readonly("aborted", &Participant::aborted);

  py::class_<Coordinator>(m, "Coordinator")
      .def(py::init([](std::uint32_t members, const Numbers& last) {
             return Coordinator(members, epoch_of(last));
           }),
           py::arg("members"), py::arg("last"))
      .def("receive", &Coordinator::receive, py::arg("vote"))
      .def("awaited", &Coordinator::awaited)
      .def_property_readonly("decided", [](const Coordinator& coordinator) {
        return numbers_of(coordinator.decided());
      });

  py::class_<Relay>(m, "Relay")
      .def(py::init([](std::uint32_t members_below, std::uint32_t rank_above, const Numbers& last) {
             return Relay(members_below, rank_above, epoch_of(last));
           }),
           py::arg("members_below"), py::arg("rank_above"), py::arg("last"))
      .def(
          "receive_vote",
          [](Relay& relay, const GroupMessage& vote) {
            const Relay::Step step = relay.receive_vote(vote);
            return std::pair(step.up, step.down);
          },
          py::arg("vote"))
      .def(
          "receive_decision",
          [](Relay& relay, const GroupMessage& decision) {
            return relay.receive_decision(decision).down;
          },
          py::arg("decision"))
      .def("awaited", &Relay::awaited);
}

void bind_writers(py::module_& m) {
  m.def("pieces_of", &pieces_of, py::arg("size_bytes"), py::arg("writers"), py::arg("writer"));
  py::enum_<WriterSet>(m, "WriterSet")
      .value("every_rank", WriterSet::every_rank)
      .value("per_socket", WriterSet::per_socket)
      .value("per_node", WriterSet::per_node);
  m.def("choose_writers", &writers_of<WriterSet>, py::arg("places"), py::arg("which"));
  m.def("choose_writers", &writers_of<std::size_t>, py::arg("places"), py::arg("which"));
  m.def("own_socket", [] { return without_gil([] { return own_socket(); }); });
  m.def("holders", &holders, py::arg("node_of_writer"), py::arg("copies"));
}

}  // namespace

void bind_group(py::module_& m) {
  bind_messages(m);
  bind_machines(m);
  bind_writers(m);
  m.def("next_generation", &next_generation, py::arg("seen"), py::arg("random"));
  m.def(
      "checksum",
      [](py::handle source, std::uint64_t seed) {
        const Buffer buffer(source, PyBUF_C_CONTIGUOUS);
        return without_gil([&] { return checksum(buffer.bytes(), seed); });
      },
      py::arg("source"), py::arg("seed"));
  m.def("agree", &agreed, py::arg("parts"), py::arg("members"));
}

}  // namespace tensorshelf::python
