"""The command ``tensorshelf``."""

import argparse
import sys
import warnings
from collections.abc import Sequence

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
        made = merge(options.shelves, options.to, size=options.size, progress=_to_be_shown())
    except ShelfError as error:
        return _failed(error.what, error.remedy)
    except OSError as error:
        return _failed(str(error), "")
    except MemoryError:
        return _failed("there is not enough memory", "Merge where there is more.")
    except KeyboardInterrupt:
        return 130
    _tell(options.to, made)
    return 0


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
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except BadArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None
