"""A run over time: at most `MOST` bins of equal width, whatever its length.

Bins double in width when the run outgrows them, so memory stays as it is. A step belongs to the bin
in which it begins. Within a stretch of steps alike the reserved slots are interpolated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from policies.requests import FloatArray

MOST = 128
"""Bins; a long run has between half of this and all."""
_FIRST_WIDTH_S = 2.0**-10
_DIGITS = 5


class Stretch(NamedTuple):
    """Steps alike, one after another; slots and tokens as they are in the first step."""

    begin_s: float
    times_s: FloatArray
    """Seconds of each."""
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
        self._sums = np.zeros((len(self._SUMS), MOST))

    def add(self, stretch: Stretch) -> None:
        """Add steps; none begins before 0."""
        times = stretch.times_s
        begins = stretch.begin_s + np.concatenate(([0.0], np.cumsum(times[:-1])))
        while begins[-1] >= MOST * self._width_s:
            self._widen()
        bins = (begins / self._width_s).astype(np.int64)
        first = bins[0]
        if first == bins[-1]:
            self._sums[:, first] += _sums(stretch, 0, len(times))
            return
        edges = np.flatnonzero(np.diff(bins)) + 1
        starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(times)]
        for start, end in zip(starts, ends, strict=True):
            self._sums[:, bins[start]] += _sums(stretch, start, end)

    def _widen(self) -> None:
        merged = self._sums[:, 0::2] + self._sums[:, 1::2]
        self._sums = np.concatenate((merged, np.zeros_like(merged)), axis=1)
        self._width_s *= 2

    def figures(self, slots: int) -> dict[str, Any]:
        """Columns of equal length, None in a bin where no step begins: bins begin at multiples of
        `width_s`, and each is the mean of the cards while they run. `slots`: of a card.

        `running` requests; shares of the slots that are `stored` and `reserved`; `utilization`,
        stored over reserved; `external_fragmentation`; `output_tokens_per_s`."""
        sums = dict(zip(self._SUMS, self._sums, strict=True))
        last = int(np.flatnonzero(sums["seconds"]).max(initial=-1)) + 1
        seconds = sums["seconds"][:last]
        sums = {name: values[:last] for name, values in sums.items()}
        whole = seconds * slots
        return {
            "width_s": self._width_s,
            "running": _ratios(sums["running"], seconds),
            "stored": _ratios(sums["stored"], whole),
            "reserved": _ratios(sums["reserved"], whole),
            "utilization": _ratios(sums["stored"], sums["reserved"]),
            "external_fragmentation": _ratios(sums["holes"], seconds),
            "output_tokens_per_s": _ratios(sums["tokens"], seconds),
        }


def _sums(stretch: Stretch, start: int, end: int) -> list[float]:
    """The sums of steps [start, end) of a stretch."""
    times, count = stretch.times_s[start:end], len(stretch.times_s)
    seconds = float(times.sum())
    steps_s = float(np.arange(start, end) @ times)  # each step's number times its seconds
    slope = (stretch.reserved_last - stretch.reserved) / max(count - 1, 1)
    tokens = stretch.tokens * (end - start)
    if start == 0:
        tokens += stretch.tokens_first - stretch.tokens
    return [
        seconds,
        stretch.running * seconds,
        stretch.stored * seconds + stretch.grown * steps_s,
        stretch.reserved * seconds + slope * steps_s,
        stretch.free_outside * seconds,
        tokens,
    ]


def _ratios(amounts: FloatArray, wholes: FloatArray) -> list[float | None]:
    pairs = zip(amounts.tolist(), wholes.tolist(), strict=True)
    return [float(f"{a / b:.{_DIGITS}g}") if b > 0 else None for a, b in pairs]
