"""Which steps a run told of: whether they go on, and whether a save has the last of them."""

import logging

logger = logging.getLogger("tensorshelf")


class Steps:
    """The steps that one autosave was told of, and saved, last. For one thread."""

    def __init__(self) -> None:
        self.told: int | None = None  # by the last step()
        self.saved: int | None = None  # of the last save that was begun
        self.optimizer_stepped = False
        self._reached = 0  # by the last step(), or by what was resumed since
        self._warned = False
        self._warned_of_order = False

    def tell(self, step: int) -> int:
        """The step that was told; the log says, once, where it lies before the one that the run had
        reached: a counter that begins anew makes a job resume too early.
        """
        if step < self._reached and not self._warned_of_order:
            self._warned_of_order = True
            logger.warning(
                "autosave: step(%d) comes behind step %d, and a job that resumes would go on from "
                "%d: count all steps of the run, on from what resume() returns",
                step,
                self._reached,
                step,
            )
        self.told = self._reached = step
        return step

    def resumed(self, step: int) -> None:
        """What was told since is undone; nothing is told yet of this run."""
        self._reached = step

    def went_back(self, step: int) -> None:
        """What was told since is undone."""
        self.told = self.saved = self._reached = step

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
