"""What is asked of a loader: of torch's own more than of others."""

import copy
import numbers
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def form_of(loader: Any) -> dict[str, Any]:
    """What decides which batches a loader of torch gives."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        return {}
    batch_sampler = loader.batch_sampler
    kind = type(batch_sampler).__name__
    size = getattr(batch_sampler, "batch_size", None)
    count = loader.num_workers
    # Each worker gives a part of a stream, so that their number decides what is in a batch.
    of_stream = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    return {
        "sampler": type(loader.sampler).__name__,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        **({"workers": max(1, count)} if of_stream else {"num_workers": count}),
        "batch_sampler": f"{kind} of {size}" if isinstance(size, numbers.Integral) else kind,
        **_lengths(sampler=loader.sampler, dataset=loader.dataset),
    }


def _lengths(**parts: Any) -> dict[str, Any]:
    """Of those that know theirs. A dataset that grew by less than a batch gives as many batches
    as before, and others.
    """
    known = {name: length_of(part) for name, part in parts.items()}
    return {f"len({name})": length for name, length in known.items() if length is not None}


def length_of(loader: Iterable[Any]) -> int | None:
    """How many batches it gives, where it knows: an iterable dataset does not, and some raise what
    they like before they have begun.
    """
    try:
        return len(loader)  # type: ignore[arg-type]
    except Exception:
        return None


class _Behind:
    """The indices of a sampler behind the first so many; those are drawn by ``advance()``, or when
    the next is asked for: a loader draws a seed in between.
    """

    def __init__(self, sampler: Iterable[Any], given: int) -> None:
        self._sampler, self._given = sampler, given
        self._indices: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._indices = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.advance()
        return next(self._indices)

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]

    def advance(self) -> None:
        given, self._given = self._given, 0
        for _ in zip(range(given), self._indices, strict=False):
            pass


def index_sampler(loader: Any) -> str | None:
    """The attribute of a DataLoader that gives it the indices of each batch, where it has any."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        return None
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    return "sampler" if loader.batch_sampler is None else "batch_sampler"


def keeps_workers(loader: Any) -> bool:
    """Whether it is torch's, with persistent workers: it draws a seed for them in its first epoch,
    and in no other.
    """
    torch = sys.modules.get("torch")
    known = torch is not None and isinstance(loader, torch.utils.data.DataLoader)
    return known and bool(loader.persistent_workers) and loader.num_workers > 0


def has_workers(loader: Any) -> bool:
    """Whether it is one that keeps them, and has begun."""
    return keeps_workers(loader) and loader._iterator is not None


def begin_workers(loader: Any) -> None:
    """As in an epoch before, so that the next one draws no seed."""
    iter(loader)


def drop_workers(loader: Any) -> None:
    """The next epoch is as its first."""
    loader._iterator = None


def iterator_behind(loader: Any, given: int) -> Iterator[Any]:
    """A loader's iterator behind its first batches, with the random numbers it would have drawn."""
    name = index_sampler(loader)
    assert name is not None
    behind = _Behind(getattr(loader, name), given)
    if has_workers(loader):
        kept = loader._iterator
        own, kept._index_sampler = kept._index_sampler, behind
        try:
            iterator: Iterator[Any] = iter(loader)
        finally:
            kept._index_sampler = own
        behind.advance()
        return iterator
    rest = copy.copy(loader)
    object.__setattr__(rest, name, behind)  # a DataLoader refuses, for those who would change it
    iterator = iter(rest)
    behind.advance()
    if keeps_workers(loader):
        iterator._index_sampler = getattr(loader, name)  # type: ignore[attr-defined]
        loader._iterator = iterator  # for the next epoch, which draws no seed then
    return iterator


def generators_of(loader: Any) -> list[Any]:
    """Those that a loader of torch and its samplers were given."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    holders = (loader, getattr(loader, "sampler", None), batch_sampler)
    inner = getattr(batch_sampler, "sampler", None)
    found: list[Any] = []
    for holder in (*holders, inner):
        generator = getattr(holder, "generator", None)
        if hasattr(generator, "get_state") and all(generator is not known for known in found):
            found.append(generator)
    return found
