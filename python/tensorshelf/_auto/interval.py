"""How many steps there are between two saves, by what steps and saves were measured to cost."""

import logging

from tensorshelf._auto.measured import costs
from tensorshelf._auto.timeline import Timeline

logger = logging.getLogger("tensorshelf")

_ENOUGH = 5  # saves and steps, to say whether saves are hidden


class Interval:
    """Chooses it where ``mtbi``, the mean time between interruptions, is given; else says once
    where the one that was given is too short for saves to be hidden.
    """

    def __init__(self, timeline: Timeline, *, mtbi: float | None) -> None:
        self._timeline = timeline
        self._mtbi = mtbi
        self._judged = False  # whether saves are hidden

    def after(self, every: int, *, load_seconds: float, alone: bool = True) -> int:
        """The one from here on, where it was ``every`` up to here. Ranks that are not alone agree
        on one, and tell then.
        """
        if self._mtbi is None:
            self._judge(every)
            return every
        measured = costs(self._timeline)
        chosen = None if measured is None else measured.plan(self._mtbi, load_seconds)
        if chosen is None or chosen.every == every:
            return every
        if alone:
            logger.info("autosave: %s", chosen)
        return chosen.every

    def _judge(self, every: int) -> None:
        if self._judged:
            return
        measured = costs(self._timeline, at_least=_ENOUGH)
        self._judged = measured is not None
        if measured is not None and not measured.is_hidden(every):
            logger.warning("autosave: %s", measured.told(every))
