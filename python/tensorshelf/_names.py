"""Names of tensors: what may be an attribute, and what the user may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import NoReturn, TypeGuard

from tensorshelf.errors import BadName, UnknownAttribute, UnknownName

_LOOKED_THROUGH = 2000  # names compared for a suggestion
_SHOWN = 5  # names in the text of an error
_SHOWN_CHARACTERS = 200
_PERSISTING = ("commit", "flush", "sync", "checkpoint", "dump", "write")  # of others
_ERASING = ("erase", "delete", "remove", "drop")


def checked(name: object) -> str:
    """The name, if it is text that UTF-8 can hold; the store checks the rest."""
    if not isinstance(name, str):
        raise BadName(f"a tensor's name is text, not {name!r}", "Use a str.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadName(f"{name!r} is not valid Unicode", "Remove its lone surrogates.") from None
    return name


def is_text(name: object) -> TypeGuard[str]:
    """True for what checked() takes: nothing else is in a shelf."""
    try:
        checked(name)
    except BadName:
        return False
    return True


def unknown(name: str, names: Iterable[str], *, attribute: bool = False) -> NoReturn:
    """Raises for a name that is not there, suggesting one that is."""
    known = list(islice(names, _LOOKED_THROUGH))
    own = [own for own in dir(type(names)) if not own.startswith("_")] if attribute else []
    near = _meant(name, known, own)
    kind_of = "tensor or attribute" if attribute else "tensor"
    what = f"no {kind_of} {name!r}" + ("" if near is None else f"; did you mean {near!r}?")
    kind = UnknownAttribute if attribute else UnknownName
    raise kind(what, _names_text(known))


def _meant(name: str, tensors: list[str], own: list[str]) -> str | None:
    """The likeliest of the tensors and of the shelf's own attributes."""
    folded = name.casefold()
    for other in tensors:
        if other.casefold() == folded:
            return other
    if own and folded in _PERSISTING:
        return "persist"
    if own and folded in _ERASING:
        return "del shelf[name]"
    return next(iter(difflib.get_close_matches(name, [*tensors, *own], n=1)), None)


def _names_text(names: list[str]) -> str:
    if not names:
        return "The shelf is empty: assign the tensor first."
    shown = ", ".join(map(repr, names[:_SHOWN]))
    if len(shown) > _SHOWN_CHARACTERS:
        return "list(shelf) gives the names."
    if len(names) <= _SHOWN:
        return f"The shelf has {shown}."
    return f"The shelf has {shown} and more: list(shelf) gives the names."


def reserved(name: str) -> NoReturn:
    """Raises for an attribute that a tensor may not have."""
    remedy = f"For a tensor of that name, shelf[{name!r}]."
    if name.startswith("_"):
        raise BadName(f"{name!r} starts with an underscore", remedy)
    if name == "step":
        remedy = f"persist(step=) sets it. {remedy}"
    raise BadName(f"{name!r} is an attribute of the shelf itself", remedy)
