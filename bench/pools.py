"""A pool of libpmemobj as a checkpoint's place, in the two ways that its users have: baselines.

"pmemobj_tx": one object that stays; a transaction notes what it held, and overwrites it.
"pmemobj alloc": a new object for each save; a transaction names it in the place of the old one.
Through ctypes, for the calls take no time beside the bytes. On tmpfs the library syncs with msync,
or where PMEM_IS_PMEM_FORCE=1 is set as it does on persistent memory.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

TYPE = 1


class Oid(ctypes.Structure):
    _fields_ = [("pool", ctypes.c_uint64), ("offset", ctypes.c_uint64)]


def load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libpmemobj.so.1")
    except OSError:
        return None
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
    for name, result, arguments in (
        ("pmemobj_create", pointer, [ctypes.c_char_p, ctypes.c_char_p, size, ctypes.c_uint32]),
        ("pmemobj_close", None, [pointer]),
        ("pmemobj_root", Oid, [pointer, size]),
        ("pmemobj_direct", pointer, [Oid]),
        ("pmemobj_errormsg", ctypes.c_char_p, []),
        ("pmemobj_tx_begin", ctypes.c_int, [pointer, pointer, ctypes.c_int]),
        ("pmemobj_tx_add_range_direct", ctypes.c_int, [pointer, size]),
        ("pmemobj_tx_alloc", Oid, [size, number]),
        ("pmemobj_tx_free", ctypes.c_int, [Oid]),
        ("pmemobj_tx_commit", None, []),
        ("pmemobj_tx_end", ctypes.c_int, []),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class PoolSaver:
    """Saves one array again and again; `anew`: into a new object each time."""

    def __init__(self, path: Path, array: np.ndarray, anew: bool) -> None:
        library = load()
        assert library is not None
        self.library = library
        self.anew = anew
        room = 3 * array.nbytes + array.nbytes // 4 + (64 << 20)  # the log of what was, too
        path.unlink(missing_ok=True)  # of a run that was interrupted
        self.pool = library.pmemobj_create(bytes(path), b"bench", room, 0o600)
        if not self.pool:
            raise OSError(library.pmemobj_errormsg().decode())
        self.root = library.pmemobj_direct(library.pmemobj_root(self.pool, ctypes.sizeof(Oid)))
        self.begin()
        self.name(library.pmemobj_tx_alloc(array.nbytes, TYPE))
        self.end()

    def begin(self) -> None:
        assert self.library.pmemobj_tx_begin(self.pool, None, 0) == 0

    def end(self) -> None:
        self.library.pmemobj_tx_commit()
        assert self.library.pmemobj_tx_end() == 0

    @property
    def named(self) -> Oid:
        return Oid.from_buffer_copy(ctypes.string_at(self.root, ctypes.sizeof(Oid)))

    def name(self, oid: Oid) -> None:
        self.library.pmemobj_tx_add_range_direct(self.root, ctypes.sizeof(Oid))
        ctypes.memmove(self.root, ctypes.addressof(oid), ctypes.sizeof(Oid))

    def __call__(self, array: np.ndarray) -> None:
        old = self.named
        self.begin()
        if self.anew:
            target = self.library.pmemobj_tx_alloc(array.nbytes, TYPE)
            self.name(target)
            self.library.pmemobj_tx_free(old)
        else:
            target = old
            place = self.library.pmemobj_direct(old)
            self.library.pmemobj_tx_add_range_direct(place, array.nbytes)
        ctypes.memmove(self.library.pmemobj_direct(target), array.ctypes.data, array.nbytes)
        self.end()

    def close(self) -> None:
        self.library.pmemobj_close(self.pool)
