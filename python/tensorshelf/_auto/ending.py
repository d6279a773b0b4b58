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
        """Raises what came first, with the others as notes; what no error is, such as Ctrl-C,
        before all errors.
        """
        if not self._raised:
            return
        no_errors = [each for each in self._raised if not isinstance(each, Exception)]
        first = (no_errors or self._raised)[0]
        for other in self._raised:
            if str(other) != str(first):  # one failure may come by several ways
                first.add_note(f"Besides: {other}")
        raise first
