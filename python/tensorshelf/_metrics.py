"""A shelf's counters in the text format that Prometheus reads.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from collections.abc import Mapping

_COUNTERS = {  # by their names in stats()
    "commits": ("commits", "versions committed"),
    "bytes_staged": ("staged_bytes", "bytes copied from callers"),
    "bytes_unchanged": ("unchanged_bytes", "bytes assigned that were there, and not written"),
    "bytes_copied_forward": ("copied_forward_bytes", "bytes copied from slot to slot"),
    "metadata_bytes": ("metadata_bytes", "bytes of metadata written"),
    "bytes_read": ("read_bytes", "bytes read by callers"),
    "chunks_verified": ("verified_chunks", "chunks whose checksum was checked"),
    "chunks_healed": ("healed_chunks", "damaged chunks that were read from another slot"),
    "medium_writes": ("medium_writes", "writes to the medium"),
    "medium_bytes": ("medium_bytes", "bytes written to the medium"),
    "barriers": ("barriers", "flushes of the medium"),
    "commit_seconds": ("commit_seconds", "seconds of sealing commits, from their turn to durable"),
}
_GAUGES = {
    "version": "number of the newest durable version",
    "step": "step of the newest durable version",
    "free_bytes": "bytes there is room for without growing",
}


def text(path: str, counters: Mapping[str, float], gauges: Mapping[str, float | None]) -> str:
    """Samples of one shelf, which the label ``path`` names; what is None is left out."""
    lines = []
    for key, (name, meaning) in _COUNTERS.items():
        lines += _metric(f"{name}_total", "counter", meaning, path, counters[key])
    for key, meaning in _GAUGES.items():
        value = gauges[key]
        if value is not None:
            lines += _metric(key, "gauge", meaning, path, value)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, meaning: str, path: str, value: float) -> list[str]:
    label = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return [
        f"# HELP tensorshelf_{name} {meaning}",
        f"# TYPE tensorshelf_{name} {kind}",
        f'tensorshelf_{name}{{path="{label}"}} {value}',
    ]
