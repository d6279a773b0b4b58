"""Which way votes go: from each rank to the coordinator, or by a relay for each node."""

from tensorshelf._group.posted import BOX, relay_box

# Votes that are taken one behind the other, which relays must spare to be worth their two messages
# more (docs/performance.md).
_WORTH = 32


class Routes:
    """``members`` of the coordinator: ranks by themselves first, and then those of a node that vote
    by a relay, which the first of them has. ``nodes``: of all ranks.
    """

    def __init__(self, nodes: list[str]) -> None:
        self.nodes = nodes
        self.members = _members(nodes)
        self._relayed = {rank: ranks for ranks in self.members if len(ranks) > 1 for rank in ranks}

    def behind_relay(self, rank: int) -> list[int]:
        """The ranks that vote by one relay with this; none where it votes by itself."""
        return self._relayed.get(rank, [])

    def box(self, rank: int) -> str:
        """That it posts its votes to."""
        ranks = self.behind_relay(rank)
        return relay_box(ranks[0]) if ranks else BOX


def _members(nodes: list[str]) -> list[list[int]]:
    single = [[rank] for rank in range(len(nodes))]
    by_node: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    # Of rank 0's own node the coordinator is as near as a relay.
    relayed = [ranks for node, ranks in by_node.items() if node != nodes[0] and len(ranks) > 1]
    if not relayed:
        return single
    behind = {rank for ranks in relayed for rank in ranks}
    members = [[rank] for rank in range(len(nodes)) if rank not in behind] + relayed
    taken = len(members) + max(map(len, relayed))
    return members if len(nodes) - taken >= _WORTH else single
