"""Where the names of points are written: beside them, without touching one another.

Vega has a transform for this, but only where a canvas is, so not in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LETTER, _LINE, _GAP, _DOT = 5.6, 11, 7, 4
"""Pixels."""


class Side(NamedTuple):
    """Where a name stands by its point: offsets in pixels (down is positive), and which of its
    ends is there."""

    dx: int
    dy: int
    align: str


Box = tuple[float, float, float, float]
"""Middle, and half its width and height."""
_SIDES = (
    Side(_GAP, 0, "left"), Side(-_GAP, 0, "right"), Side(0, -_GAP - 4, "center"),
    Side(0, _GAP + 4, "center"),
)  # fmt: skip
"""In the order in which they are tried."""


def sides(points: Sequence[tuple[float, float, str]], width: float) -> list[Side]:
    """The side of each name, of points at (x, y, name) in pixels of a picture `width` wide.

    A name takes the first at which it covers no point, no name before it and no end of the
    picture; else that at which it covers least."""
    ends: list[Box] = [(-width, 0, width, 1e6), (2 * width, 0, width, 1e6)]
    taken = ends + [(x, y, _DOT, _DOT) for x, y, _ in points]
    found = []
    for point in points:
        boxes = {side: label(*point, side) for side in _SIDES}
        best = min(boxes, key=lambda side: sum(shared(boxes[side], other) for other in taken))
        taken.append(boxes[best])
        found.append(best)
    return found


def label(x: float, y: float, name: str, side: Side) -> Box:
    """Where the name of a point is."""
    half = _LETTER * len(name) / 2
    along = {"left": half, "right": -half, "center": 0.0}[side.align]
    return x + side.dx + along, y + side.dy, half, _LINE / 2


def shared(one: Box, other: Box) -> float:
    """Square pixels that both cover."""
    wide = one[2] + other[2] - abs(one[0] - other[0])
    high = one[3] + other[3] - abs(one[1] - other[1])
    return max(wide, 0.0) * max(high, 0.0)
