"""Which ranks have put their parts of an epoch at a remote, as rank 0 finds there."""

from tensorshelf._drain import manifest
from tensorshelf._drain.catalog import Epoch, epoch_of, names_at, rank_folder
from tensorshelf._drain.joint import Named
from tensorshelf._drain.manifest import CHUNKS, FOLDER, Manifest, Name, hash_of
from tensorshelf._drain.remote import Remote, open_remote
from tensorshelf._drain.side_by_side import for_each
from tensorshelf.errors import CorruptError

_THREADS = 8


class Roll:
    """For one thread. It keeps of each manifest what names it, and not what it says."""

    def __init__(self, remote: str, members: int) -> None:
        self._ranks = [_Rank(open_remote(remote, rank_folder(rank))) for rank in range(members)]

    def call(self, epoch: Epoch) -> list[Named | None]:
        """The parts of an epoch, by ranks; None for one that is not there. Each rank's place is
        asked until its part was found. Where none lacks, all are durable.
        """
        lacking = [rank for rank in self._ranks if epoch not in rank.parts]
        for_each(lacking, _Rank.look, threads=min(_THREADS, max(len(lacking), 1)))
        found = [rank.parts.get(epoch) for rank in self._ranks]
        if None not in found:  # but a rank puts its part, and then settles it
            # What the version will name is durable before it is one.
            for_each(self._ranks, lambda rank: rank.remote.settle(), threads=_THREADS)
        return found

    def forget(self) -> None:
        """What was found may be gone: of an epoch that is looked for next all is asked anew."""
        for rank in self._ranks:
            rank.forget()

    def pieces_of(self, rank: int) -> int:
        """How many lie there of a rank: whether it goes on can be seen by that."""
        return len(self._ranks[rank].remote.sizes(CHUNKS))


class _Rank:
    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.parts: dict[Epoch, Named] = {}
        self._known: dict[Name, tuple[Epoch, Named]] = {}

    def look(self) -> None:
        found = {
            name: self._known[name] if name in self._known else self._read(name)
            for name in names_at(self.remote, FOLDER)
        }
        # What could not be read may be whole a moment later.
        self._known = {name: part for name, part in found.items() if part is not None}
        self.parts = dict(self._known.values())

    def forget(self) -> None:
        self._known.clear()
        self.parts.clear()

    def _read(self, name: Name) -> tuple[Epoch, Named] | None:
        try:
            data = self.remote.read(name.path)
            made: Manifest = manifest.decode(data, name.path)
        except (CorruptError, FileNotFoundError):
            return None
        if made.group is None:
            return None
        return epoch_of(made.group), Named(name, hash_of(data), made.nbytes)
