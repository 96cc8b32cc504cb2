"""Where the names of points are written: beside them, without touching one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDE, HIGH = 960, 320
"""Pixels of the area on a wide screen, for which names are placed; they keep their size on a
narrow one, where some may touch."""
_LETTER, _LINE, _GAP, _DOT = 6.6, 13, 7, 4
STYLE = f"""
.label {{ transform: translate({_GAP}px, 50%) }}
.label.left {{ transform: translate(calc(-100% - {_GAP}px), 50%) }}
.label.above {{ transform: translate(-50%, -{_GAP}px) }}
.label.below {{ transform: translate(-50%, calc(100% + {_GAP}px)) }}
"""


class Box(NamedTuple):
    """From its middle: half its width and height, pixels."""

    x: float
    y: float
    wide: float
    high: float

    def shared(self, other: Box) -> float:
        """Pixels that both cover."""
        wide = self.wide + other.wide - abs(self.x - other.x)
        high = self.high + other.high - abs(self.y - other.y)
        return max(wide, 0) * max(high, 0)


def sides(
    names: Sequence[tuple[float, float, str]], dots: Sequence[tuple[float, float]]
) -> list[str]:
    """The class of each name (see STYLE), by the side of its place at which it stands.

    `names`: (share of the width, of the height, text); `dots`: the places of all points. A name
    takes the first side at which it covers no point, no name before it, and no end of the area;
    else that at which it covers least.
    """
    ends = [Box(-WIDE, 0, WIDE, 2 * HIGH), Box(2 * WIDE, 0, WIDE, 2 * HIGH)]
    taken = [*ends, *(Box(WIDE * x, HIGH * y, _DOT, _DOT) for x, y in dots)]
    found = []
    for x, y, text in names:
        tried = boxes(WIDE * x, HIGH * y, len(text))
        side = min(tried, key=lambda each: sum(map(tried[each].shared, taken)))
        taken.append(tried[side])
        found.append(side)
    return found


def boxes(x: float, y: float, letters: int) -> dict[str, Box]:
    """By class, in the order in which they are tried."""
    wide, high = _LETTER * letters / 2, _LINE / 2
    return {
        "label": Box(x + _GAP + wide, y, wide, high),
        "label left": Box(x - _GAP - wide, y, wide, high),
        "label above": Box(x, y + _GAP + high, wide, high),
        "label below": Box(x, y - _GAP - high, wide, high),
    }
