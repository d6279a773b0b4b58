"""Which tensor of a shelf an item of a plan goes into: one name for each, and never two for one.

layers.0.weight           a tensor whole, or a value that is no tensor
layers.0.weight[4,0]      the piece of it that begins at these offsets
odd[4][]                  a whole one whose own name looks like one of these, or like a short one
"""

import hashlib
import re
from collections.abc import Sequence

from tensorshelf import _core

RECORD = "__dcp__"

_TAKEN = re.compile(rf".*\[[\d,]*\]|.*\.\.\.[0-9a-f]{{64}}|{re.escape(RECORD)}|", re.DOTALL)
_KEPT_BYTES = 900


def name_of(fqn: str, offsets: Sequence[int] | None) -> str:
    """The name of a piece at these offsets, or without any of the whole."""
    if offsets:
        return _short(f"{fqn}[{','.join(map(str, offsets))}]")
    return _short(f"{fqn}[]" if _TAKEN.fullmatch(fqn) else fqn)


def _short(name: str) -> str:
    data = name.encode("utf-8", "surrogatepass")
    if len(data) <= _core.MOST_NAME_BYTES:
        return name
    kept = data[:_KEPT_BYTES].decode("utf-8", "ignore")
    return f"{kept}...{hashlib.sha256(data).hexdigest()}"
