"""shelf.autosave(): saving as a run goes, resuming, loaders, signals, and how often it pays."""

import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import OpenShelf
from support import Place

import tensorshelf as ts
from tensorshelf._auto import autosave, feed, signals

pytest.importorskip("msgpack")


class Counter:
    """What a run changes: a number and an array."""

    def __init__(self) -> None:
        self.n = 0
        self.a = np.zeros(1000)

    def add(self) -> None:
        self.n += 1
        self.a += random.random() + np.random.rand()

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "a": self.a}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n, self.a = state["n"], state["a"]


def test_a_run_resumes_as_if_it_had_not_ended(reopen: OpenShelf) -> None:
    random.seed(1)
    np.random.seed(1)
    whole = Counter()
    for _ in range(10):
        whole.add()
    random.seed(1)
    np.random.seed(1)
    for end in (4, 7, 10):
        shelf = reopen(in_flight=2)
        counter = Counter()
        with shelf.autosave(counter=counter, rng=ts.RNG()) as auto:
            start = auto.resume()
            for step in range(start, end):
                counter.add()
                commit = auto.step(step + 1)
                assert commit is not None
        assert shelf.step == end
        random.seed(99)
        np.random.seed(99)
    assert counter.n == whole.n
    assert np.array_equal(counter.a, whole.a)


def test_what_is_changed_behind_a_step_is_not_in_it(shelf: ts.Shelf) -> None:
    counter = Counter()
    auto = shelf.autosave(counter=counter)
    for step in range(1, 6):
        counter.a[:] = step
        auto.step(step)
        counter.a[:] = -1
    auto.close()
    assert np.array_equal(shelf.load()["counter"]["a"], np.full(1000, 5.0))


def test_every_so_many_steps(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(every=3, x=np.zeros(3))
    saved = [step for step in range(1, 11) if auto.step(step) is not None]
    assert saved == [3, 6, 9]
    auto.wait()
    assert (shelf.step, shelf.version) == (9, 3)
    auto.wait()  # with nothing on its way
    auto.close()


class Slow:
    """A commit that is on its way until it is let go."""

    def __init__(self) -> None:
        self.landed = threading.Event()

    def done(self) -> bool:
        return self.landed.is_set()

    def wait(self) -> "Slow":
        self.landed.wait()
        return self

    def staged(self) -> bool:
        return True

    nbytes = 0
    times: ClassVar[dict[str, float]] = {}
    copies: ClassVar[list[tuple[int, int, float, float]]] = []


def test_busy_is_skipped_and_counted(shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(feed.Feed, "save", lambda self, shelf, state, step: slow)
    auto = shelf.autosave(on_busy="skip", x=[1])
    assert auto.step(1) is not None
    assert [auto.step(n) for n in (2, 3)] == [None, None]
    assert auto.skipped == 2
    slow.landed.set()
    assert auto.step(4) is not None
    assert auto.skipped == 2
    auto._flight.commit = None
    waits = shelf.autosave(x=[1])
    slow.landed.clear()
    assert waits.step(1) is not None
    assert waits.step(2) is not None  # which waits in save() itself
    slow.landed.set()


@pytest.mark.parametrize("where", ["step", "wait", "close"])
def test_what_failed_in_the_background_is_told(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ts.IoError("the flush failed", "look at the drive")

    class Failed(Slow):
        wait = fail

    def call(auto: autosave.Autosave) -> Any:
        if where == "step":
            return auto.step(1)
        auto._flight.commit = Failed()  # type: ignore[assignment]
        return getattr(auto, where)()

    if where == "step":
        monkeypatch.setattr(type(shelf), "_save", fail)
    with pytest.raises(ts.IoError, match="the flush failed"):
        call(shelf.autosave(x=[1]))
    caplog.clear()
    quiet = shelf.autosave(on_error="warn", x=[1])
    call(quiet)
    call(quiet)
    assert caplog.text.count("nothing was saved: the flush failed") == 1


def test_what_cannot_be_stored_is_told_at_the_first_step(shelf: ts.Shelf) -> None:
    auto = shelf.autosave(every=2, x=[print])
    assert auto.step(1) is None
    with pytest.raises(ts.NotStorable, match=r"state\['x'\]\[0\]"):
        auto.step(2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every": 0}, "every=0 is no number of steps"),
        ({"every": True}, "every=True is no number"),
        ({"every": 1.5}, "every=1.5 is no number"),
        ({"every": "auto"}, "needs the mean time between interruptions"),
        ({"on_busy": "drop"}, "on_busy='drop' is unknown"),
        ({"on_error": "pass"}, "on_error='pass' is unknown"),
        ({"autosave": 1}, "autosave= is a key of autosave itself"),
    ],
)
def test_options_that_are_none(shelf: ts.Shelf, options: Any, text: str) -> None:
    with pytest.raises(ts.BadArgument, match=text) as error:
        shelf.autosave(x=[1], **options)
    assert error.value.remedy


def test_a_state_of_other_keys(shelf: ts.Shelf, reopen: OpenShelf) -> None:
    shelf.autosave(x=[1], y=[2]).step(3)
    shelf = reopen()
    with pytest.raises(ts.KeyMismatch, match="1 given and not saved"):
        shelf.autosave(x=[0], z=[0]).resume()
    state = {"x": [0], "z": [0]}
    assert shelf.autosave(**state).resume(strict=False) == 3
    assert state == {"x": [1], "z": [0]}


def test_what_was_saved_is_loaded_without_its_loaders(shelf: ts.Shelf) -> None:
    """Nobody gave them to autosave(), and a mistyped key is an error still."""
    auto = shelf.autosave(x=[1], y=[2])
    auto.step(3)
    auto.close()
    state = {"x": [0], "y": [0]}
    report = shelf.load_into(state)
    assert (state, report.unexpected_keys) == ({"x": [1], "y": [2]}, ())
    with pytest.raises(ts.KeyMismatch, match="1 saved and not given"):
        shelf.load_into({"x": [0]})


# ---- going back


def test_rollback_goes_back_within_the_job(reopen: OpenShelf) -> None:
    shelf = reopen(mode="w", keep=4)
    counter = Counter()
    loader = list(range(100))
    auto = shelf.autosave(counter=counter)
    batches = auto.batches(loader)
    given = []
    iterator = iter(batches)
    for step in range(1, 8):
        given.append(next(iterator))
        counter.n = step
        auto.step(step)
    assert auto.rollback(5, skip_batches=3) == 5
    assert counter.n == 5
    iterator = iter(batches)
    given.append(next(iterator))
    assert given == [0, 1, 2, 3, 4, 5, 6, 8]
    counter.n = 6
    auto.step(6)
    auto.wait()
    assert shelf.load()["counter"]["n"] == 6
    assert auto.rollback(6) == 6  # the newest
    with pytest.raises(ts.UnknownName, match="no version of step 1 is kept") as error:
        auto.rollback(1)
    assert "keep=" in error.value.remedy
    with pytest.raises(ts.BadArgument, match="skip_batches=-1"):
        auto.rollback(6, skip_batches=-1)


# ---- loaders


class Shuffled:
    """A loader that shuffles by a global generator, and draws by it while it goes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[int, float]]:
        order = list(range(self.count))
        random.shuffle(order)
        for index in order:
            yield index, random.random()


def run(shelf: ts.Shelf, stop: int, epochs: int = 3) -> list[Any]:
    """What a run sees until that step, over some epochs of seven batches."""
    seen = []
    with shelf.autosave(rng=ts.RNG(), at=(at := {"epoch": 0})) as auto:
        step = auto.resume()
        batches = auto.batches(Shuffled(7))
        assert len(batches) == 7
        for epoch in range(at["epoch"], epochs):
            at["epoch"] = epoch
            for batch in batches:
                assert batches.epoch == epoch
                seen.append((epoch, *batch))
                step += 1
                auto.step(step)
                if step == stop:
                    return seen
    return seen


@pytest.mark.parametrize("stops", [(5,), (7,), (1, 13, 14), (3, 4, 20), (21,)])
def test_a_loader_resumes_within_an_epoch(reopen: OpenShelf, stops: tuple[int, ...]) -> None:
    random.seed(4)
    whole = run(reopen(), 100)
    assert len(whole) == 21
    random.seed(4)
    shelf = reopen(mode="w")
    seen = []
    for stop in (*stops, 100):
        seen += run(shelf, stop)
        random.seed(os.getpid())  # another process knows nothing of the generators
        shelf = reopen()
    assert seen == whole


def test_a_loader_with_a_state_of_its_own(shelf: ts.Shelf) -> None:
    class Own:
        at = 0

        def __iter__(self) -> Iterator[int]:
            while self.at < 10:
                self.at += 1
                yield self.at

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.at = state["at"]

    auto = shelf.autosave()
    iterator = iter(auto.batches(Own()))
    assert [next(iterator) for _ in range(4)] == [1, 2, 3, 4]
    auto.step(4)
    auto.wait()
    late = shelf.autosave()
    batches = late.batches(Own())  # before resuming
    late.resume()
    assert next(iter(batches)) == 5
    batches.skip(2)
    assert next(iter(batches)) == 8


def test_batches_of_an_epoch_to_come_are_skipped(shelf: ts.Shelf) -> None:
    batches = shelf.autosave().batches(range(9))
    batches.skip(2)
    batches.skip(1)
    iterator = iter(batches)
    assert next(iterator) == 3
    assert batches.given == 4  # of the loader
    assert list(iter(batches)) == list(range(9))  # the next epoch has all


def test_torch_loaders_resume(reopen: OpenShelf) -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(12))

    def some(shelf: ts.Shelf, count: int, workers: int, seed: int | None) -> list[list[int]]:
        own = None if seed is None else torch.Generator().manual_seed(seed)
        loader = torch.utils.data.DataLoader(
            data, batch_size=2, shuffle=True, num_workers=workers, generator=own
        )
        with shelf.autosave(rng=ts.RNG()) as auto:
            step = auto.resume()
            batches = auto.batches(loader)
            seen = []
            for (batch,) in batches:
                seen.append(batch.tolist())
                step += 1
                auto.step(step)
                if len(seen) == count:
                    break
        return seen

    for workers, own in ((0, False), (1, False), (0, True)):
        torch.manual_seed(3)
        whole = some(reopen(mode="w"), 6, workers, 5 if own else None)
        torch.manual_seed(3)
        seen = some(reopen(mode="w"), 2, workers, 5 if own else None)
        torch.manual_seed(77)
        seen += some(reopen(), 1, workers, 6 if own else None)
        torch.manual_seed(78)
        seen += some(reopen(), 9, workers, 7 if own else None)
        assert seen == whole


# ---- generators


def test_rng_holds_every_generator() -> None:
    torch = pytest.importorskip("torch")
    rng = ts.RNG()
    assert repr(rng) == "RNG()"
    random.gauss(0, 1)
    state = rng.state_dict()

    def draw() -> tuple[Any, ...]:
        return random.gauss(0, 1), random.random(), np.random.randn(), torch.rand(1).item()

    expected = draw()
    rng.load_state_dict(state)
    assert draw() == expected
    del state["torch"]  # saved where torch was not used
    rng.load_state_dict(state)
    assert draw()[:3] == expected[:3]


def test_no_driver_is_asked_for_devices_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("the driver was asked"))
    assert "cuda" not in ts.RNG().state_dict()


# ---- signals

ENDING = """
import os, signal, sys, warnings
import numpy as np
import tensorshelf as ts

warnings.simplefilter("ignore")
path, tier, chained = sys.argv[1:]
if chained == "chained":
    signal.signal(signal.SIGTERM, lambda number, frame: (print("chained", flush=True), sys.exit(3)))
elif chained == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with ts.open(path, tier=tier, in_flight=2) as shelf:
    auto = shelf.autosave(x=np.zeros(1 << 20))
    auto.step(1)
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.wait()[1], flush=True)
    auto.step(2)
    os.kill(os.getpid(), signal.SIGTERM)
    print("went on", flush=True)
"""


@pytest.mark.parametrize(
    ("chained", "code", "said"),
    [
        ("default", -signal.SIGTERM, f"{signal.SIGTERM.value}\n"),
        ("chained", 3, "chained\n768\nchained\n"),
        ("ignored", 0, "0\nwent on\n"),
    ],
)
def test_a_signal_lets_what_is_in_flight_land(
    place: Place, chained: str, code: int, said: str
) -> None:
    words = [sys.executable, "-c", ENDING, str(place[0]), place[1], chained]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, said), done.stderr
    assert done.stderr.count("signal 15: what was being saved is durable") == 1  # by the parent
    with ts.open(place[0], mode="r") as shelf:
        assert shelf.step == 2


def test_a_deadline_ends_the_wait(shelf: ts.Shelf, caplog: pytest.LogCaptureFixture) -> None:
    auto = shelf.autosave(deadline=0.01, x=[1])
    auto._land(15)  # with nothing on its way
    assert caplog.text == ""
    auto._flight.commit = Slow()  # type: ignore[assignment]
    auto._land(15)
    assert "may be lost: the version before stands" in caplog.text
    auto._flight.commit.landed.set()  # type: ignore[attr-defined]
    auto._land(15)
    assert "is durable" in caplog.text

    class Failed(Slow):
        def done(self) -> bool:
            return True

        def wait(self) -> "Slow":
            raise ts.IoError("the flush failed", "look at the drive")

    caplog.clear()
    auto._flight.commit = Failed()  # type: ignore[assignment]
    auto._land(15)
    assert "failed, and the version before stands: the flush failed" in caplog.text
    assert "is durable" not in caplog.text


@pytest.mark.parametrize("odd", [signal.SIGKILL, signal.SIGSTOP, 0, 999, True, "SIGTERM"])
def test_a_signal_that_nobody_can_catch_is_refused_before_anything_is_done(
    shelf: ts.Shelf, odd: Any
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ts.BadArgument, match=r"signals= has .* cannot be caught"):
        shelf.autosave(x=[1], signals=(signal.SIGTERM, odd))
    assert signal.getsignal(signal.SIGTERM) == before
    shelf.save({"x": [1]})


def test_any_iterable_of_signals_does(shelf: ts.Shelf) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with shelf.autosave(x=[1], signals=(each for each in [signal.SIGUSR1])):
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before


def test_signals_are_given_back(shelf: ts.Shelf) -> None:
    def mine(number: int, frame: Any) -> None: ...

    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, mine)
        auto = shelf.autosave(x=[1])
        assert signal.getsignal(signal.SIGTERM) != mine
        auto.close()
        assert signal.getsignal(signal.SIGTERM) is mine
        auto = shelf.autosave(x=[1])
        signal.signal(signal.SIGTERM, before)  # taken by another since
        auto.close()
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_are_passed_on_by_one_that_was_closed_first(shelf: ts.Shelf) -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
        first, second = (signals.Signals([signal.SIGTERM], heard.append) for _ in range(2))
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM] * 3
        first.restore()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM] * 5
        second.restore()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM] * 6  # who had it before both
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_are_the_main_threads(shelf: ts.Shelf) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: signals.Signals([signal.SIGTERM], print).restore())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


# ---- how often


def test_the_plan_is_the_least_of_all() -> None:
    given = {"mtbi": 3600.0, "step_seconds": 1.5, "stall_seconds": 2.0, "save_seconds": 30.0}
    best = ts.plan(**given, load_seconds=90.0)
    assert best.every == 80  # sqrt(2 * 2 * 3600) = 120 s
    assert best.interval_seconds == 120.0
    assert best.badput == pytest.approx((90 + 3600 / 120 * 2 + 60 + 30) / 3600)
    lost = [ts.plan(**given, load_seconds=90.0, every=n).badput for n in range(1, 400)]
    assert min(lost) == best.badput
    assert str(best).startswith("save every 80 steps (120 s): 6.7 % of the time is lost")
    assert ts.plan(mtbi=10, step_seconds=1, stall_seconds=0, save_seconds=3).every == 3
    assert ts.plan(mtbi=1e9, step_seconds=1, stall_seconds=0, save_seconds=0).every == 1
    assert ts.plan(mtbi=3600, step_seconds=1, stall_seconds=0, save_seconds=1.4).every == 2
    for lasting in ("mtbi", "step_seconds", "stall_seconds", "save_seconds"):
        times = {"mtbi": 10.0, "step_seconds": 1.0, "stall_seconds": 0.0, "save_seconds": 1.0}
        with pytest.raises(ts.BadArgument, match=f"{lasting}=inf is no time"):
            ts.plan(**{**times, lasting: float("inf")})
    assert ts.plan(mtbi=1, step_seconds=1, stall_seconds=9, save_seconds=9).badput == 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "wrong",
    [{"mtbi": 0}, {"step_seconds": -1.0}, {"stall_seconds": -1}, {"save_seconds": float("nan")},
     {"load_seconds": -1}, {"every": 0}, {"mtbi": "x"}, {"mtbi": 10**400}, {"every": "auto"},
     {"step_seconds": 5e-324}, {"every": 10**400}, {"every": 10**308, "step_seconds": 100.0},
     {"nbytes": 1e308, "step_seconds": 1e-9, "every": 1},
     {"nbytes": np.float64(1e308), "step_seconds": 1e-9, "every": 1},
     {"mtbi": None}, {"every": 10**300, "step_seconds": 10**300},
     {"step_seconds": 1, "mtbi": 10**308, "stall_seconds": 10**308, "save_seconds": 1},
     {"every": 1.5}, {"nbytes": "1GB"}, {"bytes_per_second": True},
     {"forward_backward_seconds": [1]}],
)  # fmt: skip
def test_times_that_are_none(wrong: Any) -> None:
    given = {"mtbi": 1.0, "step_seconds": 1.0, "stall_seconds": 1.0, "save_seconds": 1.0}
    with pytest.raises(ts.BadArgument, match=next(iter(wrong))):
        ts.plan(**{**given, **wrong})


def test_auto_chooses_by_what_it_measured(
    shelf: ts.Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tensorshelf")
    now = [0.0]
    monkeypatch.setattr(autosave.time, "monotonic", lambda: now[0])
    real = feed.Feed.save

    def save(self: feed.Feed, shelf: ts.Shelf, state: Any, step: int) -> ts.Commit:
        now[0] += 2.0  # the stall
        return real(self, shelf, state, step).wait()

    monkeypatch.setattr(feed.Feed, "save", save)
    auto = shelf.autosave(every="auto", mtbi=3600.0, x=[1])
    assert auto.every == 1
    for step in range(1, 4):
        now[0] += 1.5
        auto.step(step)
    assert auto.every == 80
    assert "save every 80 steps" in caplog.text
    auto.close()


def test_it_ends_with_the_program(place: Place) -> None:
    program = """
import sys, warnings
import numpy as np
import tensorshelf as ts
warnings.simplefilter("ignore")
shelf = ts.open(sys.argv[1], tier=sys.argv[2], in_flight=2)
auto = shelf.autosave(x=np.ones(1 << 20))
for step in range(1, 4):
    auto.step(step)
"""
    words = [sys.executable, "-c", program, str(place[0]), place[1]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with ts.open(pathlib.Path(place[0]), mode="r") as shelf:
        assert shelf.step == 3
        assert shelf.load()["x"].all()
