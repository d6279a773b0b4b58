"""Whether what is there and what was saved are alike, tensor by tensor, sharded ones too."""

from typing import Any

import numpy as np

from tensorshelf._state import shards, tensors
from tensorshelf._state.paths import Path, shown
from tensorshelf._state.plain import Node, is_a
from tensorshelf._state.reader import Reader
from tensorshelf._values import _dtypes
from tensorshelf.errors import LayoutError

_TENSORS = ("tensor", "piece", "tie")  # tags of what is a whole one
OTHER = "Give the state that was saved. Nothing was loaded."


class Matching:
    """By what a reader knows of the saved ones. What is not, raises LayoutError."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def of_this_rank(self, target: Any, node: Node, path: Path | None) -> tuple[Any, Node]:
        """What is there and what was saved, of a tensor that is sharded: the same part of it, or
        the region of one that was saved whole.
        """
        saved = is_a(node, "part")
        if not saved and not shards.is_sharded(target):
            return target, node
        if saved:
            _same_name(target, node, path)
        whole = self._whole(node)
        if whole is not None and not shards.is_sharded(target):
            return target, whole
        if whole is not None and self.is_whole(target, whole):
            own = shards.part_of(target)
            lengths = list(own.local.shape)
            if lengths == list(own.shape):
                return own.local, whole
            return own.local, ["region", whole, list(own.offsets), lengths]
        there = self._reader.about(node[3]).shape if saved else ()
        if not saved or not shards.fits(target, node[1], node[2], there):
            text = "no part of a sharded tensor"
            if saved:
                text = f"{list(there)} from {node[2]} on of {node[1]}"
            raise LayoutError(
                f"{shown(path)} is {_sharded_text(target)}, and what was saved is {text}",
                "Shard it as it was, over as many ranks; or load what tensorshelf.merge() makes. "
                "Nothing was loaded.",
            )
        return shards.local(target), node[3]

    def _whole(self, node: Node) -> Node | None:
        """The node of a tensor that was saved whole: not sharded, or with all of it in one part."""
        if not is_a(node, *_TENSORS, "part"):
            return None
        if node[0] != "part":
            return node
        return node[3] if self._reader.about(node[3]).shape == tuple(node[1]) else None

    def is_whole(self, target: Any, node: Node) -> bool:
        """Whether a tensor of the shape of the sharded one was saved, and not sharded."""
        if not shards.is_sharded(target) or not is_a(node, *_TENSORS):
            return False
        return self._reader.about(node).shape == shards.part_of(target).shape

    def check_shape(self, target: Any, node: Node, path: Path | None, *, cast: bool = True) -> None:
        """``cast``: whether it is copied into the target; else somebody converts it."""
        if not is_a(node, *_TENSORS, "region"):
            raise LayoutError(f"{shown(path)} is a tensor, and no tensor was saved there", OTHER)
        about = self._reader.about(node)
        if not isinstance(target, np.ndarray) and not _dtypes.is_known(about.element):
            raise LayoutError(
                f"{shown(path)} is a torch tensor, and {about.element} was saved, which torch has "
                "not",
                "Give a NumPy array. Nothing was loaded.",
            )
        name = str(target.dtype).removeprefix("torch.")
        if cast and not tensors.may_be_cast(about.element, target.dtype):
            raise LayoutError(
                f"{shown(path)} is {name}, and {about.element} was saved, which it would cut short",
                "Give one of a dtype that holds it. Nothing was loaded.",
            )
        if tuple(target.shape) != about.shape:
            raise LayoutError(
                f"{shown(path)} is {_dtypes.layout_text(name, tuple(target.shape))}, and "
                f"{about.layout} was saved",
                "Give a state of the same shapes, or leave this key out. Nothing was loaded.",
            )


def _same_name(target: Any, node: Node, path: Path | None) -> None:
    """Ranks may have different tensors in one place, of one shape: then the name tells."""
    name = shards.name_of(node)
    if isinstance(target, shards.Shard) and name not in (None, target.name):
        raise LayoutError(
            f"{shown(path)} is a part of {target.name!r}, and one of {name!r} was saved there",
            "Give each Shard the key and the name that it was saved with. Nothing was loaded.",
        )


def _sharded_text(target: Any) -> str:
    if not shards.is_sharded(target):
        return "not sharded"
    own = shards.part_of(target)
    return f"{list(own.local.shape)} from {list(own.offsets)} on of {list(own.shape)}"
