"""Things that are ended one after the other, each whatever those before raised."""

from collections.abc import Iterator
from contextlib import contextmanager


class Ending:
    """Keeps what they raise until all are done. For one thread."""

    def __init__(self) -> None:
        self._raised: list[BaseException] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """One of them."""
        try:
            yield
        except BaseException as error:  # Ctrl-C too: the rest is to be ended all the same
            self._raised.append(error)

    def tell(self) -> None:
        """Raises the first; Ctrl-C, and an exit, go before errors. The others become notes."""
        if not self._raised:
            return
        no_errors = [each for each in self._raised if not isinstance(each, Exception)]
        first = (no_errors or self._raised)[0]
        for other in self._raised:
            if other is not first:
                note_besides(first, other)
        raise first


def note_besides(first: BaseException, other: BaseException) -> None:
    """Adds the other failure as a note to the first, which is raised. One may come by two ways."""
    if (type(other), str(other)) != (type(first), str(first)):
        first.add_note(f"Besides: {type(other).__name__}: {other}")
