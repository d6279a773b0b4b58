"""The tree of a state as bytes in a shelf: msgpack of a record (checked.py), in a tensor with room
to grow (room.py), so that a counter with one digit more is no new tensor.
"""

import functools
from typing import Any, NamedTuple, Protocol

from tensorshelf._state import paths, room
from tensorshelf._state.checked import Checked, checked, no_record
from tensorshelf._state.plain import Node
from tensorshelf._values._dtypes import Array
from tensorshelf.errors import FormatTooNew, UnknownName, UnsupportedError

FORMAT = 1


class Reads(Protocol):
    """What reading a state asks of a shelf."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Any: ...


class Record(NamedTuple):
    """A state without its tensors, to be stored."""

    tree: Node
    owned: list[str]  # the names of its tensors


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise UnsupportedError("msgpack is not installed", "Run: pip install msgpack.") from error
    return msgpack


def _packer() -> Any:
    return _msgpack().Packer(use_bin_type=True, unicode_errors="surrogatepass")


@functools.cache
def _shared_packer() -> Any:
    return _packer()


def encoded(record: Record) -> Array:
    """As it lies in the shelf."""
    data = _packer().pack({"format": FORMAT, "owned": record.owned, "tree": record.tree})
    return room.filled(data)


class Writer:
    """A tree, encoded from its root on, with holes for what changes."""

    def __init__(self) -> None:
        self._packer = _packer()
        self._parts: list[list[bytes]] = [[]]

    def node(self, node: Node) -> None:
        """One that stays, with all that is in it."""
        self._parts[-1].append(self._packer.pack(node))

    def head(self, node: Node, count: int) -> None:
        """The first so many items of a node; the others follow."""
        self._parts[-1].append(self._packer.pack_array_header(len(node)))
        for item in node[:count]:
            self.node(item)

    def hole(self) -> None:
        """One that is filled in each time."""
        self._parts.append([])

    def scalar(self, node: Node) -> None:
        """One of a tensor without dimensions, whose bytes alone are filled in each time."""
        *head, data, strides = node
        self.head(node, len(head))
        whole = self._packer.pack(data)
        self._parts[-1].append(whole[: len(whole) - len(data)])
        self.hole()
        self.node(strides)

    def parts(self) -> list[bytes]:
        """What is between the holes; there is one part more than there are holes."""
        return [b"".join(part) for part in self._parts]


class Parts:
    """A record of which the leaves alone change."""

    def __init__(self, tree: list[bytes], owned: list[str]) -> None:
        packer = _packer()
        begin = [packer.pack_map_header(3), packer.pack("format"), packer.pack(FORMAT)]
        begin += [packer.pack("owned"), packer.pack(owned), packer.pack("tree"), tree[0]]
        self._begin = b"".join(begin)
        self._between = tree[1:]

    def encoded(self, leaves: list[bytes]) -> bytes:
        """The same bytes as of the whole record; the leaves are what fills its holes."""
        pieces = [self._begin] * (2 * len(self._between) + 1)
        pieces[1::2] = leaves
        pieces[2::2] = self._between
        return b"".join(pieces)


def packed(node: Node) -> bytes:
    """A leaf, for a hole."""
    data: bytes = _shared_packer().pack(node)
    return data


def find(shelf: Reads) -> Checked | None:
    """What the shelf holds, or None where no state was saved."""
    if paths.RECORD not in shelf:
        return None
    handle = shelf[paths.RECORD]
    if not room.is_room(handle):
        raise no_record(f"it is {handle.dtype_name}{list(handle.shape)}")
    value = handle.numpy()
    data = room.content(value)
    if data is None:
        raise no_record(f"its length is said to be {room.length(value)}")
    return _record(_unpacked(data))


def _unpacked(data: bytes) -> object:
    try:
        unpacked: object = _msgpack().unpackb(
            data, raw=False, strict_map_key=False, unicode_errors="surrogatepass"
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise no_record(str(error)) from error
    return unpacked


def _record(content: object) -> Checked:
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise no_record("it has no format")
    if content["format"] > FORMAT:
        raise FormatTooNew(
            f"the saved state is of format {content['format']}; this release reads {FORMAT}",
            "Load it with the tensorshelf release that saved it, or a later one.",
        )
    if content.keys() != {"format", "owned", "tree"}:
        raise no_record("it has other parts than a record has")
    return checked(content["tree"], content["owned"])


def get(shelf: Reads) -> Checked:
    """What the shelf holds. Raises UnknownName where no state was saved."""
    record = find(shelf)
    if record is None:
        raise UnknownName(
            "no state was saved in this shelf", "shelf.save(state) does. list(shelf) gives tensors."
        )
    return record
