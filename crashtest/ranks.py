"""`./run crashtest ranks`: a job of several ranks, killed at random moments and started again.

Each round starts the ranks by torchrun (or, with --fork, as forks of one process, which is faster),
does one thing to them, and looks at what they said: every start goes on from one step of all ranks,
no step that was told to be durable is lost, and every loss is, to the last bit, that of a run that
nobody disturbed.

    kill one    a rank dies by SIGKILL, and the others with it, as torchrun sees to it
    kill all    all die at once
    stop        a rank is stopped for a while (SIGSTOP), goes on, and later all are killed
    lose        all die at once, and the shelf of one is gone, with the copies beside it: for
                --replicate

SIGKILL is not power loss: what a rank had written stays in the page cache.
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

TRAINER = pathlib.Path(__file__).with_name("ranks_trainer.py")
SECONDS = 120  # that a start may take
KINDS = ("kill one", "kill all", "stop")
LOSE = "lose"  # where copies are kept


class Violation(Exception):
    """Of what a job promises. Raised, and not asserted: python -O judges as strictly."""


class Job(NamedTuple):
    """What is started, again and again."""

    world: int
    steps: int
    sharded: bool = False  # by FSDP2, and DDP where not
    replicate: int = 0  # copies of each part
    # Who saves pieces of what all hold alike, or how many, or "any": all or one, by the start. Of
    # "" each saves all of it.
    partition: str = ""

    def words(self) -> list[str]:
        """As the trainer takes them."""
        form = "sharded" if self.sharded else "whole"
        return [str(self.steps), form, str(self.replicate), self.partition]


class Ranks:
    """Processes of one start, by rank."""

    def __init__(
        self, pids: Sequence[int], ended: Callable[[float], bool], end: Callable[[], None]
    ):
        self.pids = pids
        self.ended = ended  # within so many seconds
        self.end = end

    def hear(self, number: signal.Signals, ranks: Sequence[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], number)


# ---- starting


def torchrun(folder: pathlib.Path, job: Job, shift: int) -> Ranks:
    world = job.world
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={world}",
        *map(str, (TRAINER, folder, shift)),
        *job.words(),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    log = open(folder / "torchrun.log", "ab")  # noqa: SIM115 - the child's
    agent = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    log.close()
    pids: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(pids) < world and agent.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # between two looks
        pids = children(agent.pid)

    def ended(seconds: float) -> bool:
        try:
            agent.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    return Ranks(pids, ended, agent.kill)


def children(pid: int) -> list[int]:
    """The ranks of an agent of torchrun's, in their order."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    found = []
    for child in map(int, text.split()):
        try:
            words = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
        ranks = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
        if ranks:
            found.append((ranks[0], child))
    return [child for _, child in sorted(found)]


FORKS = multiprocessing.get_context("forkserver")


def fork(folder: pathlib.Path, job: Job, shift: int) -> Ranks:
    meeting = folder / f"meeting.{time.monotonic_ns()}"
    ranks = [
        FORKS.Process(target=_forked, args=(folder, meeting, rank, job, shift))
        for rank in range(job.world)
    ]
    for rank in ranks:
        rank.start()
    pids = [rank.pid or 0 for rank in ranks]

    def ended(seconds: float) -> bool:
        """As torchrun does it: where one failed, the others are ended."""
        deadline = time.monotonic() + seconds
        while any(rank.is_alive() for rank in ranks):
            if any(rank.exitcode for rank in ranks):
                for rank in ranks:
                    rank.terminate()
                deadline = min(deadline, time.monotonic() + 5)
                for rank in ranks:
                    rank.join(max(0.0, deadline - time.monotonic()))
                    rank.kill()
                    rank.join()
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)  # between two looks
        return True

    def end() -> None:
        for rank in ranks:
            rank.kill()
            rank.join()

    return Ranks(pids, ended, end)


def _forked(folder: pathlib.Path, meeting: pathlib.Path, rank: int, job: Job, shift: int) -> None:
    import warnings

    import ranks_trainer
    import torch.distributed as dist

    log = os.open(folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    warnings.simplefilter("ignore")
    meet = f"file://{meeting}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=job.world)
    ranks_trainer.train(folder, shift, *job.words())
    dist.destroy_process_group()


# ---- disturbing


def disturb(kind: str, ranks: Ranks, folder: pathlib.Path, rng: random.Random) -> bool:
    """Once some step is done, and a random while later. All at once die, and lose a shelf, when a
    step is durable by then: so that there is something to go on from. False where they had ended.
    """
    begin = steps_done(folder)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if steps_done(folder) > begin and (
            kind in ("kill one", "stop") or durable(folder, len(ranks.pids))
        ):
            break
        if ranks.ended(0.02):
            return False
    else:
        ranks.end()
        raise Violation(f"no step within {SECONDS} s ({kind}): {folder}")
    world = len(ranks.pids)
    time.sleep(rng.uniform(0.0, 0.3))  # the moment of the strike
    if kind == "stop":
        stopped = [rng.randrange(world)]
        ranks.hear(signal.SIGSTOP, stopped)
        time.sleep(rng.uniform(0.1, 0.5))  # how long it stands still
        ranks.hear(signal.SIGCONT, stopped)
        time.sleep(rng.uniform(0.0, 0.2))  # the moment of the strike
    struck = [rng.randrange(world)] if kind == "kill one" else range(world)
    ranks.hear(signal.SIGKILL, list(struck))
    return True


def lose(folder: pathlib.Path, member: int) -> int:
    """The disk of a member: its shelf, and the copies of others that it kept."""
    lost = list(folder.glob(f"run.{member}.shelf*"))
    for path in lost:
        path.unlink()
    return int(bool(lost))


def steps_done(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("losses.*"))


# ---- looking


def said(folder: pathlib.Path, member: int) -> list[list[str]]:
    path = folder / f"losses.{member}"
    lines = path.read_text().split("\n") if path.exists() else []
    return [line.split() for line in lines[:-1]]  # behind the last newline a line was cut short


def durable(folder: pathlib.Path, world: int) -> int:
    """The last step that some rank was told to be durable."""
    told = []
    for member in range(world):
        path = folder / f"told.{member}"
        if path.exists():
            told += [int(line) for line in path.read_text().split("\n")[:-1]]
    return max(told, default=0)


def check(folder: pathlib.Path, reference: dict[int, dict[str, str]], acknowledged: int) -> int:
    """What the members said since the round began. Returns the step that they resumed at."""
    resumed = {}
    for member, expected in reference.items():
        lines = said(folder, member)
        starts = [int(words[1]) for words in lines if words[0] == "resumed"]
        if starts:
            resumed[member] = starts[-1]
        for word, value in (words for words in lines if words[0] != "resumed"):
            if value != expected.get(word):
                raise Violation(
                    f"member {member}, step {word}: a loss of {value}, and undisturbed "
                    f"{expected.get(word)}; resumed at {starts}"
                )
    if len(set(resumed.values())) > 1:
        raise Violation(f"ranks resumed at {resumed}")
    step = next(iter(resumed.values()), 0)
    if resumed and step < acknowledged:
        raise Violation(f"step {acknowledged} was durable, and {step} is resumed")
    return step


def check_at_the_end(folder: pathlib.Path, world: int) -> None:
    """Of ranks that ended by themselves: one that cannot start would say nothing, and be right."""
    for member in range(world):
        words = [line[0] for line in said(folder, member)]
        if words[-1:] != ["end"]:
            raise Violation(f"member {member} ended too early: {folder}")


def clear(folder: pathlib.Path) -> None:
    for path in (*folder.glob("losses.*"), *folder.glob("told.*")):
        path.unlink()


def await_end(ranks: Ranks, what: str, folder: pathlib.Path) -> None:
    if not ranks.ended(SECONDS):
        ranks.end()
        raise Violation(f"{what} hangs: {folder}")


def run_to_the_end(
    start: Callable[..., Ranks], folder: pathlib.Path, job: Job
) -> dict[int, dict[str, str]]:
    """What each member says of each step."""
    await_end(start(folder, job, 0), "the undisturbed run", folder)
    found = {}
    for member in range(job.world):
        found[member] = dict(words for words in said(folder, member) if words[0] != "resumed")
        if "end" not in found[member]:
            raise Violation(f"member {member} did not come to the end: {folder}")
    return found


def campaign(
    start: Callable[..., Ranks],
    folder: pathlib.Path,
    job: Job,
    *,
    rounds: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
) -> dict[str, int]:
    """How often each kind of disturbance was, and how many steps were resumed behind 0."""
    rng = random.Random(seed)
    undisturbed, disturbed = folder / "undisturbed", folder / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    world = job.world
    reference = run_to_the_end(start, undisturbed, job)
    what = ("resumed behind 0", "came to the end", "renumbered", "shelves lost")
    counts = dict.fromkeys([*kinds, *what], 0)
    acknowledged = reached = 0
    number = 0
    while number < rounds:
        kind = kinds[number % len(kinds)]
        shift = 0 if job.sharded else rng.randrange(world)
        clear(disturbed)
        ranks = start(disturbed, job, shift)
        struck = disturb(kind, ranks, disturbed, rng)
        await_end(ranks, f"round {number} ({kind})", disturbed)
        if not struck:
            check_at_the_end(disturbed, world)
        reached = check(disturbed, reference, acknowledged)
        told = durable(disturbed, world)
        acknowledged = max(acknowledged, told)
        # Where nothing was durable a copy that was lost before may not be made anew yet.
        if kind == LOSE and struck and told:
            counts["shelves lost"] += lose(disturbed, rng.randrange(world))
        counts["resumed behind 0"] += reached > 0
        counts["renumbered"] += shift != 0
        if not struck:  # to its end once: that was no round, and another run begins
            counts["came to the end"] += 1
            for path in disturbed.glob("run.*"):
                path.unlink()
            acknowledged = 0
            continue
        counts[kind] += 1
        number += 1
        if sys.stdout.isatty() or number % 10 == 0:
            print(f"round {number} of {rounds}: resumed at {reached}", flush=True)
    clear(disturbed)
    await_end(start(disturbed, job, 0), "the last run", disturbed)
    counts["resumed behind 0"] += check(disturbed, reference, acknowledged) > 0
    check_at_the_end(disturbed, world)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run crashtest ranks")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--fork", action="store_true", help="forks of one process, no torchrun")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--replicate", type=int, default=0, help="copies of each rank's part")
    parser.add_argument(
        "--partition",
        nargs="?",
        const="any",
        default="",
        metavar="WRITERS",
        help="who saves the model in pieces: every_rank, per_node, ..., how many, or any (default)",
    )
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, LOSE))
    chosen = parser.parse_args()
    kinds = chosen.kinds or (*KINDS, *([LOSE] if chosen.replicate else []))
    if LOSE in kinds and not chosen.replicate:
        parser.error("a shelf that is lost is had back from copies: --replicate 1")
    FORKS.set_forkserver_preload(["ranks_trainer", "torch._dynamo"])
    print(f"{chosen.rounds} rounds of {chosen.world} ranks, seed {chosen.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="tensorshelf-ranks-")
    try:
        counts = campaign(
            fork if chosen.fork else torchrun,
            pathlib.Path(folder),
            Job(chosen.world, chosen.steps, chosen.sharded, chosen.replicate, chosen.partition),
            rounds=chosen.rounds,
            seed=chosen.seed,
            kinds=kinds,
        )
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        print(f"shelves and logs stay in {folder}")
        raise
    shutil.rmtree(folder)
    print(", ".join(f"{what} {count}" for what, count in counts.items()))
    print("no step that was durable was lost, and every loss was that of an undisturbed run")


if __name__ == "__main__":
    main()
