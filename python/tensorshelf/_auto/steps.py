"""Which steps a run told of, and whether a save has the last of them."""

import logging

logger = logging.getLogger("tensorshelf")


class Steps:
    """The steps that one autosave was told of, and saved, last. For one thread."""

    def __init__(self) -> None:
        self.told: int | None = None  # by the last step()
        self.saved: int | None = None  # of the last save that was begun
        self.optimizer_stepped = False
        self._warned = False

    def went_back(self, step: int) -> None:
        """What was told since is undone."""
        self.told = self.saved = step

    def warn_of_unsaved(self) -> None:
        """Where the run ends here: once, whether its autosave ends it or its shelf."""
        if self._warned:
            return
        self._warned = True
        if self.told is None and self.optimizer_stepped:
            logger.warning("autosave: nothing was saved: no step() was called")
        elif self.told != self.saved:
            saved = self.saved
            last = "nothing is saved" if saved is None else f"the last save is of step {saved}"
            logger.warning(
                "autosave: %s, and step %s was the last: step(n, force=True) saves it",
                last,
                self.told,
            )
