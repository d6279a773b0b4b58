"""Which ranks of a group have pieces of a tensor, as a shelf says it.

A number n is the first n ranks. Others are runs, [first, count, step, first, count, step, ...]:
0, 4 and 8 are [0, 3, 4]. Ranks rise, and each is there once. Writers of a job are few runs, however
many ranks it has.
"""

from collections.abc import Sequence

Writers = int | list[int]

_MOST = 1 << 31  # ranks


def stored(ranks: Sequence[int]) -> Writers:
    """These ranks, one or more and rising, as a shelf says them."""
    if list(ranks) == list(range(len(ranks))):
        return len(ranks)
    runs: list[int] = []
    begin = 0
    while begin < len(ranks):
        step = ranks[begin + 1] - ranks[begin] if begin + 1 < len(ranks) else 1
        end = begin + 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        runs += (ranks[begin], end - begin, step)
        begin = end
    return runs


def count(writers: Writers) -> int:
    return sum(len(run) for run in _runs(writers))


def number(writers: Writers, rank: int) -> int | None:
    """Which of them a rank is, from 0; None where it is none."""
    before = 0
    for run in _runs(writers):
        if rank in run:
            return before + run.index(rank)
        before += len(run)
    return None


def last(writers: Writers) -> int:
    """The highest rank of them."""
    return _runs(writers)[-1][-1]


def are_valid(writers: object) -> bool:
    """Whether what was read is some: nothing else may be given to the others."""
    if isinstance(writers, list):
        if len(writers) % 3 or not all(type(each) is int and each >= 0 for each in writers):
            return False
        if not all(writers[1::3]) or not all(writers[2::3]):
            return False
        runs = list(zip(writers[::3], writers[1::3], writers[2::3], strict=True))
        ends = [first + (many - 1) * step for first, many, step in runs]
        begins = [*writers[::3], _MOST]
        return bool(runs) and all(a < b for a, b in zip(ends, begins[1:], strict=True))
    return type(writers) is int and 0 < writers <= _MOST


def _runs(writers: Writers) -> list[range]:
    if isinstance(writers, int):
        return [range(writers)]
    return [
        range(first, first + many * step, step)
        for first, many, step in zip(writers[::3], writers[1::3], writers[2::3], strict=True)
    ]
