"""How a shelf looks: one line, a tree, a table in a notebook."""

import html
from typing import TYPE_CHECKING

import numpy as np

from tensorshelf._dtypes import layout_text
from tensorshelf._errors import ClosedError, ForkedError, ShelfError
from tensorshelf._size import format_size

if TYPE_CHECKING:
    from tensorshelf._core import TensorInfo
    from tensorshelf._shelf import Shelf
    from tensorshelf._tensor import Tensor
    from tensorshelf._view import Readable

_HTML_ROWS = 200
_SHOWN_ELEMENTS = 6  # of a tensor, on one line


def line(shelf: "Shelf") -> str:
    """<Shelf 'run.shelf': version 3 (step 3), 2 tensors, 1.5 MiB, pmem>"""
    info = shelf.info()
    step = "" if info.step is None else f" (step {info.step})"
    count = f"{info.tensors} tensor{'' if info.tensors == 1 else 's'}"
    size = format_size(info.tensor_bytes)
    mode = "" if info.writable else ", read-only"
    medium = info.promises.medium
    prepared = shelf.prepared
    waits = "" if prepared is None else f", version {prepared.version} prepared"
    text = f"version {info.version}{step}{waits}, {count}, {size}, {medium}{mode}"
    return f"<Shelf '{info.path}': {text}>"


def in_words(error: ShelfError) -> str:
    """What a line says of a shelf that cannot be asked."""
    if isinstance(error, ClosedError):
        return "closed"
    if isinstance(error, ForkedError):
        return "belongs to the parent of this process"
    return error.what


def value(tensor: "Readable") -> str:
    """The value of a tensor so small that a line holds it, else nothing."""
    if not 0 < tensor.size <= _SHOWN_ELEMENTS or tensor.ndim > 1:
        return ""
    try:
        return " " + np.array2string(tensor.numpy(copy=True), separator=", ")
    except ShelfError:  # damaged, overtaken or erased: reading it says so, looking at it need not
        return ""


def state(info: "TensorInfo", shelf: "Shelf") -> str:
    """Whose a tensor's value is: version 3; version 4, prepared; version 3, dirty."""
    words = [f"version {info.version}" if info.version else "not persisted"]
    if info.pending:
        prepared = shelf.prepared is not None
        words = [f"version {info.pending}", "prepared" if prepared else "on its way"]
    if info.dirty:
        words.append("dirty")
    if info.spoiled:
        words.append("spoiled")
    return ", ".join(words)


def tree(shelf: "Shelf") -> str:
    """The names as a tree, split at dots and slashes, with layout and size of each tensor."""
    root: dict[str, Branch] = {}
    for name in shelf:
        branches = root
        parts = name.replace("/", ".").split(".")
        for part in parts[:-1]:
            branches = branches.setdefault(part, Branch()).branches
        branches.setdefault(parts[-1], Branch()).tensors.append(shelf[name])
    return "\n".join([line(shelf)[1:-1], *_draw(root, "")])


class Branch:
    """What lies under one part of a name: tensors that end here, and longer names."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
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


def _layout(tensor: "Tensor") -> str:
    return f"{layout_text(tensor.dtype_name, tensor.shape)} {format_size(tensor.nbytes)}"


def table(shelf: "Shelf") -> str:
    """An HTML table of the tensors, the first 200 of them."""
    names = list(shelf)
    head = "".join(f"<th>{h}</th>" for h in ("name", "dtype", "shape", "size", "version", ""))
    rows = []
    for name in names[:_HTML_ROWS]:
        tensor = shelf[name]
        cells = (
            html.escape(name),
            tensor.dtype_name,
            str(list(tensor.shape)),
            format_size(tensor.nbytes),
            str(tensor.version or "-"),
            "dirty" if tensor.dirty else "",
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    if len(names) > _HTML_ROWS:
        rows.append(f"<tr><td colspan='6'>and {len(names) - _HTML_ROWS} more</td></tr>")
    title = html.escape(line(shelf)[1:-1])
    return f"<div><b>{title}</b><table><tr>{head}</tr>{''.join(rows)}</table></div>"
