"""torch.distributed.checkpoint over shelves beside its own files: saves, loads and kills."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import dcp_kills
import dcp_saves


def run(folder: Path, nbytes: int, kills: int, quick: bool) -> dict[str, Any]:
    logging.disable(logging.ERROR)  # the titles name the media
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=folder) as place:  # empty: room is scarce
        results["saves"] = dcp_saves.run(Path(place), nbytes, 1 if quick else 5)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        results["kills"] = dcp_kills.run(Path(place), kills)
    return results
