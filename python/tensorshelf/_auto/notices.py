"""What autosave tells, and what of that once alone: a run of a million steps has a short log.

What was not saved, or not as it should be, is raised where ``on_error`` is "raise"; else it is
told as all the rest.
"""

import logging

from tensorshelf._auto.early import TooEarly
from tensorshelf._auto.gradients import error_in_the_middle
from tensorshelf.errors import ShelfError

logger = logging.getLogger("tensorshelf")


class Notices:
    """One method for each thing that there is to tell. For one thread."""

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises
        self._told_in_the_middle = False
        self._told_of_loaders = False
        self._told_optimizers: set[str] = set()  # kinds
        self._told_failures: set[str] = set()  # texts

    def not_saved(self, error: ShelfError) -> None:
        """What a save failed with: once each, for a medium that failed fails at every step."""
        if self._raises:
            raise error
        if str(error) not in self._told_failures:
            self._told_failures.add(str(error))
            logger.warning("autosave: nothing was saved: %s", error)

    def changed_too_early(self, found: TooEarly) -> None:
        """Each time: each is another tensor, which is copied earlier from then on."""
        if self._raises:
            raise found.error()
        logger.warning("autosave: %s", found.error())

    def in_the_middle(self, step: int) -> None:
        """A step while gradients are added up: once, for a loop that does it does it again."""
        error = error_in_the_middle(step)
        if self._raises:
            raise error
        if not self._told_in_the_middle:
            self._told_in_the_middle = True
            logger.warning("autosave: not saved: %s", error)

    def loaders_left_alone(self, count: int) -> None:
        """Once, and never raised: who has fewer loaders may mean it."""
        if not self._told_of_loaders:
            self._told_of_loaders = True
            logger.warning(
                "autosave: %d loaders of the saved run were not given to auto.batches(): their "
                "epochs begin anew",
                count,
            )

    def unsaved_parameters(self, kind: str, count: int) -> None:
        """When the run begins, and never raised: a program may keep those elsewhere."""
        logger.warning(
            "autosave: an optimizer (%s) steps %d parameters that are in nothing that was given: "
            "they would be lost. Give autosave() the model that has them",
            kind,
            count,
        )

    def unsaved_schedule(self) -> None:
        """When the run begins, and never raised: a program may set the rate by the step itself."""
        logger.warning(
            "autosave: an optimizer has a learning-rate schedule that is in nothing that was "
            "given: a run that resumes begins it anew. Give autosave(scheduler=)"
        )

    def changed_behind(self, found: tuple[int, list[str]] | None) -> None:
        """Once, and never raised: it may be meant."""
        if found is None:
            return
        step, keys = found
        logger.warning(
            "autosave: %s changed behind step(%d), and before the next batch: a run that resumes "
            "there has that neither saved nor done again. Call step() last in the loop, or "
            "step(%d, force=True) once more behind it",
            ", ".join(f"{key}=" for key in keys),
            step,
            step,
        )

    def unknown_optimizer(self, kind: str) -> None:
        """Once for each kind, and never raised: it is in the middle of its step."""
        if kind not in self._told_optimizers:
            self._told_optimizers.add(kind)
            logger.warning(
                "autosave: an optimizer (%s) steps parameters that are saved, and is not itself: "
                "what it keeps would be lost. Where it was made after autosave(), make it before",
                kind,
            )
