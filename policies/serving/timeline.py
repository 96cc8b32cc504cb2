"""A run over time: at most `MOST_BINS` bins of equal width, whatever its length.

Bins double in width when the run outgrows them, so memory stays bounded. A step belongs to the bin
in which it begins. Within a stretch of equal steps the reserved slots are interpolated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.requests.requests import FloatArray, IntArray

MOST_BINS = 128
"""Bins; a long run has between half of this and all."""
_FIRST_WIDTH_S = 2.0**-10
_DIGITS = 5


class Stretch(NamedTuple):
    """Consecutive equal steps; slots and tokens are those of the first."""

    begin_s: float
    times_s: FloatArray
    """Seconds of each."""
    seconds: float
    """Of all."""
    steps_s: float
    """Sum of each step's seconds times its number, from 0 on."""
    running: int
    grown: int
    """Tokens stored more from step to step."""
    stored: int
    reserved: int
    reserved_last: int
    """In the last step."""
    free_outside: float
    """External fragmentation: the share of free slots outside the largest hole."""
    tokens_first: int
    """Output tokens of the first step."""
    tokens: int
    """Of each other step."""


class Timeline:
    """Sums over the steps of each bin, of all cards that serve."""

    _SUMS = ("seconds", "running", "stored", "reserved", "holes", "tokens")

    def __init__(self) -> None:
        self._width_s = _FIRST_WIDTH_S
        self._sums = [[0.0] * len(self._SUMS) for _ in range(MOST_BINS)]

    def add(self, stretch: Stretch) -> None:
        """Add steps; none begins before 0."""
        begin_s, count = stretch.begin_s, len(stretch.times_s)
        end_s = begin_s + stretch.seconds
        while end_s >= MOST_BINS * self._width_s:
            self._widen()
        first = int(begin_s / self._width_s)
        if count == 1 or first == int(end_s / self._width_s):
            self._count(first, stretch, stretch.seconds, stretch.steps_s, count, True)
            return
        times = stretch.times_s
        starts, bins = _runs(begin_s, times, self._width_s)
        edges = starts.tolist()
        for start, end, place in zip(edges, [*edges[1:], count], bins.tolist(), strict=True):
            part = times[start:end]
            steps_s = float(np.arange(start, end) @ part)
            seconds = float(np.add.reduce(part))
            self._count(place, stretch, seconds, steps_s, end - start, start == 0)

    def _count(
        self, place: int, stretch: Stretch, seconds: float, steps_s: float, steps: int, first: bool
    ) -> None:
        """Add some steps of a stretch to a bin; `first`: the first of all is among them."""
        sums = self._sums[place]
        sums[0] += seconds
        sums[1] += stretch.running * seconds
        sums[2] += stretch.stored * seconds + stretch.grown * steps_s
        sums[3] += stretch.reserved * seconds
        if steps_s:
            slope = (stretch.reserved_last - stretch.reserved) / (len(stretch.times_s) - 1)
            sums[3] += slope * steps_s
        sums[4] += stretch.free_outside * seconds
        sums[5] += stretch.tokens * steps + first * (stretch.tokens_first - stretch.tokens)

    def merge(self, other: Timeline) -> None:
        """Add the steps of another, which may be left with wider bins."""
        while self._width_s < other._width_s:
            self._widen()
        while other._width_s < self._width_s:
            other._widen()
        pairs = zip(self._sums, other._sums, strict=True)
        self._sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]

    def _widen(self) -> None:
        pairs = zip(self._sums[0::2], self._sums[1::2], strict=True)
        merged = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
        self._sums = merged + [[0.0] * len(self._SUMS) for _ in merged]
        self._width_s *= 2

    def figures(self, slots: int) -> dict[str, Any]:
        """Columns of equal length, None in a bin where no step begins: bins begin at multiples of
        `width_s`, and each is the mean of the cards while they run. `slots`: of a card.

        `running` requests; shares of the slots that are `stored` and `reserved`; `utilization`,
        stored over reserved; `external_fragmentation`; `output_tokens_per_s`."""
        columns = np.array(self._sums).T
        last = int(np.flatnonzero(columns[0]).max(initial=-1)) + 1
        sums = dict(zip(self._SUMS, columns[:, :last], strict=True))
        seconds, whole = sums["seconds"], sums["seconds"] * slots
        return {
            "width_s": self._width_s,
            "running": _ratios(sums["running"], seconds),
            "stored": _ratios(sums["stored"], whole),
            "reserved": _ratios(sums["reserved"], whole),
            "utilization": _ratios(sums["stored"], sums["reserved"]),
            "external_fragmentation": _ratios(sums["holes"], seconds),
            "output_tokens_per_s": _ratios(sums["tokens"], seconds),
        }


def _ratios(amounts: FloatArray, wholes: FloatArray) -> list[float | None]:
    pairs = zip(amounts.tolist(), wholes.tolist(), strict=True)
    return [float(f"{a / b:.{_DIGITS}g}") if b > 0 else None for a, b in pairs]


@kernel
def _runs(begin_s: float, times_s: FloatArray, width_s: float) -> tuple[IntArray, IntArray]:
    """(the first of the steps that begin in each bin, the bin), int64 (bins,) each."""
    starts, bins = np.empty(len(times_s), np.int64), np.empty(len(times_s), np.int64)
    found, passed_s = 0, 0.0
    for step in range(len(times_s)):
        place = np.int64((begin_s + passed_s) / width_s)
        if found == 0 or bins[found - 1] != place:
            starts[found], bins[found] = step, place
            found += 1
        passed_s += times_s[step]
    return starts[:found], bins[:found]
