"""Whose votes are missing, as far as a rank knows."""

from collections.abc import Callable, Iterable

_NAMED = 5  # at most


class Awaited:
    """``voters``: who votes to this rank, by their numbers in ``ask``; None where nobody does."""

    def __init__(
        self, nodes: list[str], voters: list[list[int]], ask: Callable[[], list[int]] | None
    ) -> None:
        self._nodes = nodes
        self._voters = voters
        self._ask = ask

    def ranks(self) -> tuple[int, ...] | None:
        """That have not voted, or of whose node one has not."""
        if self._ask is None:
            return None
        return tuple(sorted(rank for at in self._ask() for rank in self._voters[at]))

    def have(self) -> str:
        """As a sentence begins: who has, or have."""
        missing = [] if self._ask is None else [self._voters[at] for at in self._ask()]
        if not missing:
            return "of the other ranks some have"
        single = [ranks[0] for ranks in missing if len(ranks) == 1]
        words = [f"one or more of {self._named(ranks)}" for ranks in missing if len(ranks) > 1]
        if single:
            words.insert(0, self._named(single))
        return f"{' and '.join(words[:_NAMED])} {'has' if single and len(missing) == 1 else 'have'}"

    def _named(self, ranks: list[int]) -> str:
        """With their hosts, or what Group(node=) said."""
        by_node: dict[str, list[int]] = {}
        for rank in ranks[:_NAMED]:
            by_node.setdefault(self._nodes[rank], []).append(rank)
        named = ", ".join(f"{_listed(on)} ({node})" for node, on in by_node.items())
        more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}{more}"


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
