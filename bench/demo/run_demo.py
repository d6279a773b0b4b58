"""Train, kill -9, resume: the shelf beside pickle, np.save and np.memmap, in about three minutes.

    .venv/bin/python bench/demo/run_demo.py [--seed N] [--kills N] [--dir PATH] [--out PATH]

Exit status 0: after every kill the shelf held the last acknowledged iteration or the one in
flight, whole, and every final state is bit-identical to that of an uninterrupted run.
"""

import argparse
import importlib.util
import math
import multiprocessing
import os
import random
import secrets
import shutil
import sys
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TYPE_CHECKING

import medium
import terminal
from judge import Reference
from killing import Campaign, Outcome, Pace
from models import MODELS
from results import ENOUGH_KILLS, Results
from stores import STORES, ShelfStore
from trainer import Job, Measured, measure

if TYPE_CHECKING:
    from language import Language

HERE = Path(__file__).resolve().parent
RIVALS_UNTIL_S = 125  # on a slow machine the rivals are killed less often than the shelf
BY_DEFAULT = HERE.parents[1] / "out" / "demo"


def main() -> int:
    """Run the demo as told by the command line; return the exit status."""
    options = _options()
    place = (options.dir or options.out) / "demo-states"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    terminal.say(f"tensorshelf demo. Seed of the kills: {options.seed}. States in {place}")
    results = _run(options, place)
    terminal.tables(results)
    status = _conclude(results, options.out)
    if status == 0:  # else they are evidence
        shutil.rmtree(place)
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train, kill -9, resume; compare and report.")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the kills")
    parser.add_argument("--kills", type=int, default=30 // len(MODELS), help="per model and store")
    parser.add_argument("--dir", type=Path, help="where states are saved (default: --out)")
    parser.add_argument("--out", type=Path, default=BY_DEFAULT, help="where the report goes")
    options = parser.parse_args()
    if len(MODELS) * options.kills < ENOUGH_KILLS:
        parser.error(f"--kills {options.kills} is too few: {ENOUGH_KILLS} in all are needed")
    return options


def _run(options: argparse.Namespace, place: Path) -> Results:
    started = time.monotonic()
    context = _fork_server()
    terminal.say("1  Uninterrupted runs; after each iteration every store saves, in turn")
    measured = {name: _measure(context, name, place / "timed") for name in MODELS}
    results = Results(options.seed, place, medium.facts(place), measured)
    terminal.say(f"2  The same runs, killed {options.kills} times for each store and resumed")
    jobs = [
        Job(model, store, place / "killed" / model / store) for store in STORES for model in MODELS
    ]
    for done, job in enumerate(jobs):
        # The shelf is never cut short; the others share the time that is left.
        share = (started + RIVALS_UNTIL_S - time.monotonic()) / (len(jobs) - done)
        until = math.inf if STORES[job.store].is_shelf else time.monotonic() + share
        if until <= time.monotonic():
            results.left_out.append(job)
            continue
        results.outcomes.append(_kill(context, results, job, options.kills, until))
    if importlib.util.find_spec("torch") is not None:
        results.language = _train_transformer(context, place / "language", options.seed)
    for outcome in results.shelf:
        saved = ShelfStore(outcome.job.path).load()
        if saved is not None:
            results.final[outcome.job.model] = saved
    results.seconds = time.monotonic() - started
    return results


def _fork_server() -> ForkServerContext:
    # Trainers are forked from a server that imported torch once, so that each starts in
    # milliseconds; they are processes of their own and die by a real SIGKILL. One thread each:
    # sums in one order. The environment is read when the server starts.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    context = multiprocessing.get_context("forkserver")
    preload = ["trainer", "results", "terminal", "medium"]
    if importlib.util.find_spec("torch") is not None:
        preload.append("transformer")
    context.set_forkserver_preload(preload)
    return context


def _measure(context: ForkServerContext, model: str, path: Path) -> Measured:
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(model, path / model, send))
    process.start()
    send.close()
    with receive:
        while not isinstance(told := receive.recv(), Measured):
            terminal.progress(f"{model}: iteration {told} of {MODELS[model].steps}")
    process.join()
    terminal.progress_done(f"{model}: {MODELS[model].steps} iterations")
    return told


def _kill(
    context: ForkServerContext, results: Results, job: Job, wanted: int, until: float
) -> Outcome:
    measured = results.measured[job.model]
    pace = Pace(results.compute_seconds(job.model), results.added_seconds(job.model)[job.store])
    label = f"{job.model}, {job.store}"
    outcome = Campaign(
        context=context,
        job=job,
        reference=Reference(measured.states),
        pace=pace,
        random=random.Random(f"{results.seed}/{job.model}/{job.store}"),
        wanted=wanted,
        until=until,
        on_kill=lambda so_far: terminal.progress(f"{label}: kill {len(so_far.kills)}"),
    ).run()
    terminal.progress_done(
        f"{label}: {len(outcome.kills)} kills, {outcome.mid_save} inside a save, "
        f"{outcome.failures} bad states"
    )
    return outcome


def _train_transformer(context: ForkServerContext, place: Path, seed: int) -> "Language":
    import language

    terminal.say("3  A transformer on the standard library's source, autosaved at every step")
    found = language.run(context, place, seed, terminal.progress)
    terminal.progress_done(
        f"transformer: {len(found.kills)} kills, resumed each time; "
        f"{'DIFFERS' if found.failures else 'losses and weights bit-identical'}"
    )
    return found


def _conclude(results: Results, out: Path) -> int:
    import report  # brings matplotlib, which the trainers need not load

    page = report.write(results, out)
    terminal.say(f"\nMedium of the shelf: {results.medium.sentence}")
    for note in results.medium.notes:
        terminal.say(f"  note: {note}")
    for job in results.left_out:
        terminal.say(f"  left out, the time was up: {job.model} with {job.store}")
    terminal.say(report.NOT_POWER_LOSS)
    terminal.say(f"Report: {page}   ({results.seconds:.0f} s, seed {results.seed})")
    failures = results.failures()
    for failure in failures:
        terminal.say(f"FAILED  {failure}", style="red")
    if failures:
        return 1
    kills = results.shelf_kills + (len(results.language.kills) if results.language else 0)
    terminal.say(
        f"PASSED  {kills} kills of the shelf, each left the last acknowledged "
        "iteration or the one in flight, whole; final states bit-identical",
        style="green",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
