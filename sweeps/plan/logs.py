"""Logs of single replications, on demand: files in the run directory's `logs/`.

They are written beside the run directory and move into it with the result they belong to, so that
a run that was stopped has whole logs of the results it has.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from policies.requests.requests import Requests
from policies.serving.memory_log import MemoryLog
from policies.serving.perfetto import PerfettoTrace
from policies.serving.recorder import Recorder, Recorders, RequestLog, StepLog

LogKind = Literal["requests", "steps", "trace", "memory"]
FOLDER, MEMORY = "logs", "memory.csv"

_MADE: dict[str, tuple[str, Callable[[Path, Requests], Recorder]]] = {
    "requests": ("requests.csv", RequestLog),
    "steps": ("steps.csv", lambda path, requests: StepLog(path)),
    "trace": ("trace.json.gz", PerfettoTrace),
    "memory": (MEMORY, MemoryLog),
}
"""Kind -> end of the file's name, and who writes it."""


def recorder(kinds: Sequence[LogKind], stem: str | None, requests: Requests) -> Recorder | None:
    """What writes these logs into files that begin with `stem`; None where there are none."""
    if not kinds or stem is None:
        return None
    made = (_MADE[kind] for kind in kinds)
    return Recorders([write(Path(f"{stem}-{end}"), requests) for end, write in made])


def stem_of(point: int, replication: int) -> str:
    """How the files of a replication of a point begin."""
    return f"point{point}-r{replication}"


@contextmanager
def staging(out: Path, wanted: bool) -> Iterator[Path | None]:
    """A folder beside `out` for logs in the making, gone at the end; None where none are wanted."""
    if not wanted:
        yield None
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-logs-", dir=out.parent) as folder:
        yield Path(folder)


def keep(folder: Path, stem: str, out: Path) -> None:
    """Move the finished logs of a replication to the run directory."""
    for file in sorted(folder.glob(f"{stem}-*")):
        (out / FOLDER).mkdir(exist_ok=True)
        os.replace(file, out / FOLDER / file.name)
