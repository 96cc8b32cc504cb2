"""Sizes of the kernel's arrays, its instants and choices as numbers, and records in cache lines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.commands import COMMANDS, LEAST_BELOW_ODD, PERIODIC_COMMANDS, POWER_COMMANDS

Int = NDArray[np.int64]
NEVER = -(1 << 60)
"""An instant before every other."""
FOREVER = 1 << 60
"""An instant after every other."""
N_COMMANDS = COMMANDS.index(POWER_COMMANDS[0])
"""Commands with a lane of their own; those of power states and at intervals follow them."""
LANES = 16
"""Numbers that the kernel handles at once: banks, or all commands that wait for others by rows."""

FRFCFS, OLDEST_READY, FCFS = 0, 1, 2
REFRESH_NONE, REFRESH_ALL_BANK, REFRESH_PER_BANK = 0, 1, 2
PAGE_OPEN, PAGE_CLOSED, PAGE_TIMEOUT, PAGE_ADAPTIVE = 0, 1, 2, 3

MAX_BANKS, MAX_PCS, MAX_RANKS, MAX_LEVELS = 128, 2, 16, 6
LOW_BITS = LEAST_BELOW_ODD
"""Of a burst index, whose place is looked up in a table; that of the bits above is kept from the
last burst, for neighbours have them in common."""
MAX_PERIODIC = len(PERIODIC_COMMANDS)
MAX_RULES = MAX_LEVELS * N_COMMANDS
MAX_SEGMENTS, MAX_FIELDS, MAX_HASHES = 4, 24, 8

DQ_TICKS = 1024
"""Ticks of DQ that a channel remembers; more than from a command to the end of its data."""
_LINE = 64
"""Bytes of a cache line: what lies in one is loaded, and stored, as one vector."""


def in_lines(fields: list[Any]) -> np.dtype[np.void]:
    """A record of int64 fields in which each array that fills LANES begins a cache line, if it
    does so itself."""
    offsets, end = [], 0
    for _, _, *shape in fields:
        numbers = math.prod(*shape) if shape else 1
        if numbers >= LANES:
            end += -end % _LINE
        offsets.append(end)
        end += 8 * numbers
    names, formats = [field[0] for field in fields], [field[1:] for field in fields]
    return np.dtype(
        {
            "names": names,
            "formats": [np.dtype(tuple(form) if len(form) > 1 else form[0]) for form in formats],
            "offsets": offsets,
            "itemsize": end + -end % _LINE,
        }
    )


def zeroed_bytes(count: int, kind: np.dtype[np.void]) -> int:
    """Bytes of the block of `zeroed`."""
    return count * kind.itemsize + _LINE


def zeroed(count: int, kind: np.dtype[np.void], behind: int = 0) -> NDArray[np.void]:
    """`count` records of zeros that begin a cache line; `behind`: bytes more at the end of their
    block."""
    space = np.zeros(zeroed_bytes(count, kind) + behind, np.uint8)
    start = -space.ctypes.data % _LINE
    return space[start : start + count * kind.itemsize].view(kind)
