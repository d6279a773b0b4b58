"""Kill a trainer with SIGKILL, look at what it left, start it again; then let it finish.

Half of the kills come at any moment of an iteration, half are aimed into a save, so that short
saves are hit as well. The seed fixes which and how long; the machine decides what that hits.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

from judge import Reference, Verdict
from models import MODELS
from stores import STORES, Saved, Store
from trainer import Job, Moment, train


@dataclass(frozen=True)
class Pace:
    """Median seconds of an iteration and of a save, from the timed run."""

    iteration: float
    save: float


@dataclass(frozen=True)
class Plan:
    """Kill `delay` seconds after the moment `at` was reached for the `count`-th time."""

    at: Moment
    count: int
    delay: float


@dataclass(frozen=True)
class Kill:
    acknowledged: int
    mid_save: bool
    verdict: Verdict
    detail: str


@dataclass
class Outcome:
    """All kills of one store under one model, and how it ended."""

    job: Job
    kills: list[Kill] = field(default_factory=list)
    identical: bool = False

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(kill.verdict for kill in self.kills)

    @property
    def mid_save(self) -> int:
        return sum(kill.mid_save for kill in self.kills)

    @property
    def failures(self) -> int:
        return sum(not kill.verdict.good for kill in self.kills)

    @property
    def lost(self) -> int:
        """Acknowledged iterations that had to be computed again."""
        return sum(kill.acknowledged for kill in self.kills if not kill.verdict.good)


@dataclass
class Campaign:
    """`wanted` kills of one job. After a bad state the store is cleared: a restart from scratch."""

    context: ForkServerContext
    job: Job
    reference: Reference
    pace: Pace
    random: random.Random
    wanted: int
    until: float  # of time.monotonic(): kill no more after that, but finish
    on_kill: Callable[[Outcome], None]

    def run(self) -> Outcome:
        """Kill, judge and resume until `wanted` kills landed or time is up, then finish."""
        outcome = Outcome(self.job)
        store = STORES[self.job.store](self.job.path)
        store.clear()
        at = 0
        while len(outcome.kills) < self.wanted and time.monotonic() < self.until:
            kill = self._kill_once(at, self._plan(at, self.wanted - len(outcome.kills)), store)
            if kill is None:  # the trainer was faster than the plan: all of it again
                store.clear()
                at = 0
                continue
            outcome.kills.append(kill)
            self.on_kill(outcome)
            at = kill.acknowledged + (kill.verdict is Verdict.NEXT)
            if not kill.verdict.good:
                store.clear()
                at = 0
        self._live(at, None)
        outcome.identical = self.reference.is_final(store.load())
        return outcome

    def _plan(self, at: int, kills_left: int) -> Plan:
        # Spread what is left of the run over the kills that are left.
        mean = (MODELS[self.job.model].steps - at) // (kills_left + 1)
        count = self.random.randint(0, max(1, 2 * mean - 1))
        if self.random.random() < 0.5:
            return Plan(Moment.SAVING, max(1, count), self.random.uniform(0, self.pace.save))
        moment = Moment.SAVED if count else Moment.RESUMED
        whole = self.pace.iteration + self.pace.save
        return Plan(moment, max(1, count), self.random.uniform(0, whole))

    def _kill_once(self, at: int, plan: Plan, store: Store) -> Kill | None:
        life = self._live(at, plan)
        if life.finished:
            return None
        saved, detail = _examine(store)
        verdict = Verdict.UNREADABLE if detail else self.reference.judge(saved, life.acknowledged)
        return Kill(life.acknowledged, life.saving, verdict, detail)

    def _live(self, at: int, plan: Plan | None) -> "_Life":
        """Start a trainer, which must resume at `at`; let it run to its end or the planned kill."""
        receive, send = self.context.Pipe(duplex=False)
        process = self.context.Process(target=train, args=(self.job, send))
        process.start()
        send.close()
        life = _Life()
        for moment, step in _told(receive):
            life.note(moment, step)
            if moment is Moment.RESUMED and step != at:
                raise RuntimeError(f"{self.job.store} resumed at {step}, its files said {at}")
            if plan and life.reached(plan):
                time.sleep(plan.delay)
                process.kill()
                plan = None
        process.join()
        life.finished = process.exitcode == 0
        if not life.finished and process.exitcode != -9:
            raise RuntimeError(
                f"{self.job.store} with {self.job.model}: the trainer failed by itself with exit "
                f"status {process.exitcode}; its traceback is above"
            )
        return life


@dataclass
class _Life:
    """What one trainer told before it ended."""

    acknowledged: int = 0
    saving: bool = False
    finished: bool = False
    seen: Counter[Moment] = field(default_factory=Counter)

    def note(self, moment: Moment, step: int) -> None:
        self.seen[moment] += 1
        self.saving = moment is Moment.SAVING
        if not self.saving:
            self.acknowledged = step

    def reached(self, plan: Plan) -> bool:
        return self.seen[plan.at] == plan.count


def _told(pipe: Connection) -> Iterator[tuple[Moment, int]]:
    """Yield all that the trainer sent, also what still lies in the pipe after its death."""
    with pipe:
        while True:
            try:
                yield pipe.recv()
            except EOFError:
                return


def _examine(store: Store) -> tuple[Saved | None, str]:
    try:
        return store.load(), ""
    except Exception as error:  # whatever a loader raises: the state is unreadable
        return None, f"{type(error).__name__}: {error}"
