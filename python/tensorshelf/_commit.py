"""What persist() returns: one version of the whole shelf, durable or on its way."""

from tensorshelf._core import CommitResult, PendingCommit


class Commit:
    """One committed version. With ``persist(wait=False)`` it may still be on its way to the medium.

    ``done()`` asks, ``wait()`` blocks; every other attribute waits first. A failed commit raises
    from each of them, and from the shelf's next call besides.
    """

    def __init__(self, result: CommitResult | PendingCommit) -> None:
        self._pending = result if isinstance(result, PendingCommit) else None
        self._result = None if isinstance(result, PendingCommit) else result

    def done(self) -> bool:
        """True when the version is durable, or has failed."""
        return self._pending is None or self._pending.done()

    def wait(self) -> "Commit":
        """Blocks until the version is durable; raises what made it fail."""
        self._get()
        return self

    @property
    def version(self) -> int:
        """The version's number: one more than the last."""
        return self._get().version

    @property
    def step(self) -> int | None:
        """The caller's step number, stored with the version."""
        return self._get().step

    @property
    def nbytes(self) -> int:
        """Bytes of tensors assigned for this version."""
        return self._get().data_bytes

    @property
    def metadata_nbytes(self) -> int:
        """Bytes of names, layouts, checksums and roots written for this version."""
        return self._get().metadata_bytes

    @property
    def seconds(self) -> float:
        """Time inside persist(); the assignments before it are not counted."""
        return self._get().seconds

    def _get(self) -> CommitResult:
        if self._result is None:
            assert self._pending is not None
            self._result = self._pending.wait()
            self._pending = None
        return self._result

    def __repr__(self) -> str:
        if not self.done():
            return "Commit(pending)"
        return (
            f"Commit(version={self.version}, step={self.step}, nbytes={self.nbytes}, "
            f"seconds={self.seconds:.6f})"
        )
