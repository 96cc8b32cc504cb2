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


class _Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float

    def shared(self, other: _Box) -> float:
        """Pixels that both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.high, other.high) - max(self.low, other.low)
        return max(wide, 0) * max(high, 0)


def sides(
    names: Sequence[tuple[float, float, str]], dots: Sequence[tuple[float, float]]
) -> list[str]:
    """The class of each name (see STYLE), by the side of its place at which it stands.

    `names`: (share of the width, of the height, text); `dots`: the places of all points. A name
    takes the first side at which it covers no point, no name before it, and no end of the area;
    else that at which it covers least.
    """
    taken = [_around(WIDE * x, HIGH * y, _DOT, _DOT) for x, y in dots]
    found = []
    for x, y, text in names:
        tried = boxes(WIDE * x, HIGH * y, _LETTER * len(text))
        side = min(tried, key=lambda each: _covered(tried[each], taken))
        taken.append(tried[side])
        found.append(side)
    return found


def _covered(box: _Box, taken: Sequence[_Box]) -> float:
    outside = max(-box.left, 0) + max(box.right - WIDE, 0)
    return outside * _LINE + sum(box.shared(each) for each in taken)


def boxes(x: float, y: float, width: float) -> dict[str, _Box]:
    """By class, in the order in which they are tried."""
    middle, half, away = _GAP + width / 2, _LINE / 2, _GAP + _LINE / 2
    places = {
        "label": (x + middle, y), "label left": (x - middle, y),
        "label above": (x, y + away), "label below": (x, y - away),
    }  # fmt: skip
    return {side: _around(*at, width / 2, half) for side, at in places.items()}


def _around(x: float, y: float, wide: float, high: float) -> _Box:
    return _Box(x - wide, y - high, x + wide, y + high)
