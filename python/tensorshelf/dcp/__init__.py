"""Shelves as the storage of ``torch.distributed.checkpoint``: many ranks, one commit for all.

    import torch.distributed.checkpoint as dcp
    import tensorshelf.dcp

    writer = tensorshelf.dcp.ShelfWriter("run.shelf")
    dcp.save(state, storage_writer=writer)
    dcp.load(state, storage_reader=tensorshelf.dcp.ShelfReader("run.shelf"))

It needs torch 2.9 or later. docs/distributed.md says what a crash leaves, and what the limits are.
"""

from tensorshelf.dcp._convert import from_dcp, to_dcp
from tensorshelf.dcp._reader import ShelfReader
from tensorshelf.dcp._writer import ShelfWriter

__all__ = ["ShelfReader", "ShelfWriter", "from_dcp", "to_dcp"]
