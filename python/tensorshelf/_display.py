"""How a shelf looks: one line, a tree, a table in a notebook."""

import html
from collections.abc import Iterable, Sequence

import numpy as np

from tensorshelf._core import TensorInfo
from tensorshelf._info import Info, Prepared
from tensorshelf._size import format_size
from tensorshelf._values._dtypes import layout_text
from tensorshelf._view import Readable
from tensorshelf.errors import ClosedError, ForkedError, ShelfError

TABLE_ROWS = 200
_SHOWN_ELEMENTS = 6  # of a tensor, on one line


def line(info: Info, prepared: Prepared | None) -> str:
    """Shelf 'run.shelf': version 3 (step 3), 2 tensors, 1.5 MiB, pmem"""
    step = "" if info.step is None else f" (step {info.step})"
    count = f"{info.tensors} tensor{'' if info.tensors == 1 else 's'}"
    size = format_size(info.tensor_bytes)
    mode = "" if info.writable else ", read-only"
    medium = info.promises.medium
    waits = "" if prepared is None else f", version {prepared.version} prepared"
    text = f"version {info.version}{step}{waits}, {count}, {size}, {medium}{mode}"
    return f"Shelf '{info.path}': {text}"


def in_words(error: ShelfError) -> str:
    """What a line says of a shelf that cannot be asked."""
    if isinstance(error, ClosedError):
        return "closed"
    if isinstance(error, ForkedError):
        return "belongs to the parent of this process"
    return error.what


def value(tensor: Readable) -> str:
    """The value of a tensor so small that a line holds it, else nothing."""
    if not 0 < tensor.size <= _SHOWN_ELEMENTS or tensor.ndim > 1:
        return ""
    try:
        return " " + np.array2string(tensor.numpy(copy=True), separator=", ")
    except ShelfError:  # damaged, overtaken or erased: reading it says so, looking at it need not
        return ""


def state(info: TensorInfo, *, prepared: bool) -> str:
    """Whose a tensor's value is: version 3; version 4, prepared; version 3, dirty."""
    words = [f"version {info.version}" if info.version else "not persisted"]
    if info.pending:
        words = [f"version {info.pending}", "prepared" if prepared else "on its way"]
    if info.dirty:
        words.append("dirty")
    if info.spoiled:
        words.append("spoiled")
    if info.media != [0]:
        numbers = ", ".join(map(str, info.media))
        words.append(f"on {'media' if len(info.media) > 1 else 'medium'} {numbers}")
    return ", ".join(words)


def tree(title: str, tensors: Iterable[Readable]) -> str:
    """The names as a tree, split at dots and slashes, with layout and size of each tensor."""
    root: dict[str, Branch] = {}
    for tensor in tensors:
        branches = root
        parts = tensor.name.replace("/", ".").split(".")
        for part in parts[:-1]:
            branches = branches.setdefault(part, Branch()).branches
        branches.setdefault(parts[-1], Branch()).tensors.append(tensor)
    return "\n".join([title, *_draw(root, "")])


class Branch:
    """What lies under one part of a name: tensors that end here, and longer names."""

    def __init__(self) -> None:
        self.tensors: list[Readable] = []
        self.branches: dict[str, Branch] = {}


def _draw(branches: dict[str, Branch], indent: str) -> list[str]:
    lines = []
    for i, (part, branch) in enumerate(branches.items()):
        last = i == len(branches) - 1
        shown = part if part.isprintable() else repr(part)
        text = "  ".join([shown, *(_layout(tensor) for tensor in branch.tensors)])
        lines.append(f"{indent}{'└── ' if last else '├── '}{text}")
        lines += _draw(branch.branches, indent + ("    " if last else "│   "))
    return lines


def _layout(tensor: Readable) -> str:
    return f"{layout_text(tensor.dtype_name, tensor.shape)} {format_size(tensor.nbytes)}"


def table(title: str, rows: Sequence[tuple[Readable, TensorInfo]], count: int) -> str:
    """An HTML table of tensors and how they are, the first TABLE_ROWS of ``count``."""
    head = "".join(f"<th>{h}</th>" for h in ("name", "dtype", "shape", "size", "version", ""))
    lines = []
    for tensor, info in rows:
        cells = (
            html.escape(tensor.name),
            tensor.dtype_name,
            str(list(tensor.shape)),
            format_size(tensor.nbytes),
            str(info.version or "-"),
            "dirty" if info.dirty else "",
        )
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    if count > len(rows):
        lines.append(f"<tr><td colspan='6'>and {count - len(rows)} more</td></tr>")
    body = f"<table><tr>{head}</tr>{''.join(lines)}</table>"
    return f"<div><b>{html.escape(title)}</b>{body}</div>"
