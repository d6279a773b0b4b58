"""Bytes of a piece as they are stored: as they are, or compressed without loss."""

import importlib.util
import zlib
from typing import Any

from tensorshelf._options import choice
from tensorshelf.errors import CorruptError, UnsupportedError

PLAIN = ""
ZLIB = ".zlib"
ZSTD = ".zstd"
SUFFIXES = (PLAIN, ZLIB, ZSTD)  # of the names of objects

_SUFFIX_OF = {"zlib": ZLIB, "zstd": ZSTD}
_LEVEL = 1  # floats give little at any level


def check(compress: str | None) -> str:
    """The suffix of what is compressed so. Raises where it is unknown, or its package lacks."""
    if compress is None:
        return PLAIN
    suffix = choice("compress", compress, _SUFFIX_OF)
    if suffix == ZSTD:
        _zstandard()
    return suffix


def encode(data: bytes, suffix: str) -> tuple[bytes, str]:
    """What is stored, and the suffix that it is stored with: plain where nothing is gained."""
    if suffix == ZLIB:
        made = zlib.compress(data, _LEVEL)
    elif suffix == ZSTD:
        made = _zstandard().ZstdCompressor(level=_LEVEL).compress(data)
    else:
        return data, PLAIN
    return (made, suffix) if len(made) < len(data) else (data, PLAIN)


def decode(data: bytes, suffix: str, nbytes: int) -> bytes:
    """The ``nbytes`` that were stored; of hostile bytes, one more at most.

    Raises CorruptError for what was not compressed so.
    """
    if suffix == PLAIN:
        return data
    if suffix == ZSTD:
        package = _zstandard()
        try:
            with package.ZstdDecompressor().stream_reader(data) as reader:
                return bytes(reader.read(nbytes + 1))
        except package.ZstdError as error:
            raise _damaged() from error
    try:
        return zlib.decompressobj().decompress(data, nbytes + 1)
    except zlib.error as error:
        raise _damaged() from error


def _damaged() -> CorruptError:
    return CorruptError("compressed bytes are damaged", "Fetch another version.")


def _zstandard() -> Any:
    if importlib.util.find_spec("zstandard") is None:
        raise UnsupportedError(
            'compress="zstd" needs the package zstandard, which is not installed',
            'Install zstandard, or use compress="zlib".',
        )
    import zstandard

    return zstandard
