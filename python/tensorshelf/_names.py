"""Names of tensors: what may be an attribute, and what the user may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import NoReturn

from tensorshelf._errors import BadName, UnknownAttribute, UnknownName

_LOOKED_THROUGH = 2000  # names compared for a suggestion


def checked(name: object) -> str:
    """The name, if it is text that UTF-8 can hold; the store checks the rest."""
    if not isinstance(name, str):
        raise BadName(f"a tensor's name is text, not {name!r}", "Use a str.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadName(f"{name!r} is not valid Unicode", "Remove its lone surrogates.") from None
    return name


def unknown(name: str, names: Iterable[str], *, attribute: bool = False) -> NoReturn:
    """Raises for a name that is not there, suggesting one that is."""
    known = list(islice(names, _LOOKED_THROUGH))
    if attribute:
        known += [own for own in dir(type(names)) if not own.startswith("_")]
    near = difflib.get_close_matches(name, known, n=1)
    kind_of = "tensor or attribute" if attribute else "tensor"
    what = f"no {kind_of} {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    kind = UnknownAttribute if attribute else UnknownName
    raise kind(what, "The names there are: list(shelf).")


def reserved(name: str) -> NoReturn:
    """Raises for an attribute that a tensor may not have."""
    raise BadName(
        f"'{name}' is an attribute of the shelf itself, or starts with an underscore",
        f"Name the tensor as an item: shelf[{name!r}].",
    )
