"""The Pareto front: what nothing else beats in all objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

Direction = Literal["maximize", "minimize"]


def costs(values: Iterable[float], directions: Iterable[Direction]) -> list[float]:
    """Values of the objectives, the less the better."""
    return [
        value if direction == "minimize" else -value
        for value, direction in zip(values, directions, strict=True)
    ]


def front(costs: Sequence[Sequence[float]]) -> list[int]:
    """The places of those that no other one beats: as good in every cost, and not the same."""
    return [
        place
        for place, mine in enumerate(costs)
        if not any(_beats(theirs, mine) for theirs in costs)
    ]


def _beats(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))
