"""The command ``tensorshelf``."""

import argparse
import sys
import warnings
from collections.abc import Sequence

from tensorshelf._auto.joined import JoinedTraces, join_traces
from tensorshelf._group.merge import Merged, merge
from tensorshelf._size import format_size, parse_size
from tensorshelf.errors import BadArgument, ShelfError, TierWarning

_SHOWN = 5  # paths of what is left out


def main(arguments: Sequence[str] | None = None) -> int:
    """What the process exits with: 0; 1 for what could not be done; 130 for Ctrl-C. argparse exits
    with 2 for what cannot be understood.
    """
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore", TierWarning)  # of files that are read once
    try:
        options.do(options)
    except ShelfError as error:
        return _failed(error.what, error.remedy)
    except OSError as error:
        return _failed(str(error), "")
    except MemoryError:
        return _failed("there is not enough memory", "Do it where there is more.")
    except KeyboardInterrupt:
        return 130
    return 0


def _merge(options: argparse.Namespace) -> None:
    made = merge(options.shelves, options.to, size=options.size, progress=_to_be_shown())
    _tell(options.to, made)


def _join(options: argparse.Namespace) -> None:
    _tell_joined(options.to, join_traces(options.traces, options.to))


def _to_be_shown() -> bool:
    return sys.stderr.isatty()


def _tell(path: str, made: Merged) -> None:
    step = "no step" if made.step is None else f"step {made.step}"
    tensors = "1 tensor" if made.tensors == 1 else f"{made.tensors} tensors"
    print(f"{path}: {tensors}, {format_size(made.nbytes)}, {step}")
    if made.left_out:
        more = len(made.left_out) - _SHOWN
        names = ", ".join(made.left_out[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        print(f"left out, for it is no tensor: {names}", file=sys.stderr)


def _tell_joined(path: str, made: JoinedTraces) -> None:
    ranks = "1 rank" if len(made.ranks) == 1 else f"{len(made.ranks)} ranks"
    aligned = "clocks aligned by the times of day alone"
    if made.within is not None:
        aligned = f"clocks aligned within {made.within * 1e3:.3g} ms"
    print(f"{path}: {ranks}, {aligned}")


def _failed(what: str, remedy: str) -> int:
    print(f"error: {what}", file=sys.stderr)
    if remedy:
        print(f"  {remedy}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tensorshelf", description="Crash-consistent tensors.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    merging = commands.add_parser(
        "merge",
        help="make one shelf, or a safetensors file, of those of all ranks of a group",
        description="Makes one shelf of those that the ranks of a group saved, when none runs: "
        "sharded tensors are whole, all else is rank 0's.",
    )
    merging.add_argument("shelves", nargs="+", metavar="SHELF", help="of each rank, in any order")
    merging.add_argument(
        "--to", required=True, metavar="PATH", help="the new shelf, or a file *.safetensors"
    )
    merging.add_argument(
        "--size",
        type=_size,
        metavar="SIZE",
        help="cap on its growth, such as 4GiB; none by default",
    )
    merging.set_defaults(do=_merge)
    joining = commands.add_parser(
        "traces",
        help="make one trace of those of all ranks of a group",
        description="Makes one trace for Perfetto of those that auto.write_trace() wrote on the "
        "ranks of a group: each is a process of it, and their clocks are aligned.",
    )
    joining.add_argument("traces", nargs="+", metavar="TRACE", help="of each rank, in any order")
    joining.add_argument("--to", required=True, metavar="PATH", help="the new trace")
    joining.set_defaults(do=_join)
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except BadArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None
