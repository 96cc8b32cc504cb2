"""What a text format of access traces consists of: one file in `hwmodel/measure/trace_formats`, and
a line in `hwmodel.measure.simulator_traces`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.kernel.limits import Int

MOST_BYTES = 1 << 20
"""Of one line."""
LETTERS = {b"R": READ, b"r": READ, b"W": WRITE, b"w": WRITE}


class Accesses(NamedTuple):
    """Accesses in order; int64 (n,)."""

    address: Int
    """Bytes, of the device or, where only one channel is meant, of that channel."""
    write: Int
    size: Int
    """Bytes."""
    cycle: Int
    """When it reaches its channel, in clock cycles of the memory."""
    picosecond: Int


Parsed = tuple[list[int], int, int, int]


class Format(NamedTuple):
    """A text format.

    Args:
        parse: the fields of a line -> (numbers of the address, kind, bytes or 0 for a burst, time
            or 0), or ValueError or KeyError.
        lines: accesses -> their lines.

    Example:
        FORMAT = Format("words", "load 0x8000", "times", two_words({b"load": READ}), lines)
    """

    name: str
    example: str
    lacks: str
    """What it does not keep."""
    parse: Callable[[list[bytes]], Parsed]
    lines: Callable[[Accesses], Iterator[str]]
    separator: bytes | None = None
    sized: bool = False
    """Whether a line has a size; else it is a burst."""
    vector: bool = False
    """Whether a line has a number for each level instead of an address."""
    time: Literal["", "cycle", "picosecond"] = ""
    """What the time of a line counts; nothing where it has none."""
    header: bytes | None = None
    """A line that names the columns and is no access."""


def two_words(kinds: dict[bytes, int]) -> Callable[[list[bytes]], Parsed]:
    """Parses lines of a word of `kinds` and an address."""

    def parse(fields: list[bytes]) -> Parsed:
        kind, number = fields
        return [int(number, 0)], kinds[kind], 0, 0

    return parse


def lines_of_words(read: str, write: str) -> Callable[[Accesses], Iterator[str]]:
    """Writes such lines."""

    def lines(a: Accesses) -> Iterator[str]:
        for address, kind in zip(a.address.tolist(), a.write.tolist(), strict=True):
            yield f"{write if kind else read} {address:#x}\n"

    return lines
