"""What a simulation may take before its worker is ended: time by the clock, and memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity

LOOK_S = 0.1
"""How often workers are looked at (assumed)."""
_NS = 1e-9


class TaskLimits(NamedTuple):
    """None: as much as it takes."""

    seconds: float | None = None
    resident_bytes: float | None = None

    def broken(self, process: int, began_s: float) -> str | None:
        """Which limit a worker is beyond that began its task at `began_s` of the monotonic clock,
        in words; None where it is within both."""
        if self.seconds is not None and time.monotonic() - began_s > self.seconds:
            return f"it took longer than --time-limit, {self.seconds:g} s"
        if self.resident_bytes is not None and _resident_bytes(process) > self.resident_bytes:
            return f"it took more memory than --memory-limit, {self.resident_bytes:.4g} bytes"
        return None


def read_limits(
    time_limit: str | None, memory_limit: str | None, cluster: str | None
) -> TaskLimits:
    """The limits as typed. Raises DescriptionError."""
    found: list[float | None] = []
    for option, text, kind in (
        ("--time-limit", time_limit, "time"), ("--memory-limit", memory_limit, "size"),
    ):  # fmt: skip
        if text is None:
            found.append(None)
            continue
        if cluster is not None:
            raise DescriptionError(
                "does not go with --cluster, whose workers have their own", option
            )
        try:
            value = float(parse_quantity(text, kind))
        except ValueError as error:
            raise DescriptionError(str(error), option) from None
        if value <= 0:
            raise DescriptionError(f"expected more than nothing; got {text!r}", option)
        found.append(value)
    seconds, resident_bytes = found
    if resident_bytes is not None and not _statm(os.getpid()).is_file():
        raise DescriptionError("needs a system that has /proc/PID/statm", "--memory-limit")
    return TaskLimits(None if seconds is None else seconds * _NS, resident_bytes)


def _statm(process: int) -> Path:
    return Path(f"/proc/{process}/statm")


def _resident_bytes(process: int) -> int:
    """Memory of a process, bytes; 0 of one that has ended."""
    try:
        pages = int(_statm(process).read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


_in_force = TaskLimits()


def put_in_force(limits: TaskLimits) -> None:
    """From now on these hold for what `sweeps.run.executor` does."""
    global _in_force
    _in_force = limits


def in_force() -> TaskLimits:
    """The limits that hold now."""
    return _in_force
