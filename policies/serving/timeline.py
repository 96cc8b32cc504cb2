"""A run over time: at most `MOST_BINS` bins of equal width, whatever its length.

Bins double in width when the run outgrows them, so memory stays bounded. A step belongs to the bin
in which it begins. Within a stretch of equal steps the reserved slots are interpolated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.requests.requests import FloatArray
from policies.serving.stretch_rows import Stretches

MOST_BINS = 128
"""Bins; a long run has between half of this and all."""
_FIRST_WIDTH_S = 2.0**-10
_DIGITS = 5


class Timeline:
    """Sums over the steps of each bin, of all cards that serve."""

    _SUMS = ("seconds", "running", "stored", "reserved", "holes", "tokens")

    def __init__(self) -> None:
        self._width_s = _FIRST_WIDTH_S
        self._sums: FloatArray = np.zeros((MOST_BINS, len(self._SUMS)))

    def add(self, rows: Stretches, times_s: FloatArray) -> None:
        """Add stretches, and seconds of all their steps; none begins before 0."""
        ends_s = rows.begin_s + rows.seconds
        while ends_s.max() >= MOST_BINS * self._width_s:
            self._widen()
        further = np.maximum(rows.steps - 1, 1)
        first = np.stack((
            rows.begin_s, rows.steps, rows.running, rows.stored, rows.grown, rows.reserved,
            (rows.reserved_last - rows.reserved) / further, rows.free_outside, rows.tokens_first,
            rows.tokens,
        ), axis=1)  # fmt: skip
        _into_bins(first, times_s, self._width_s, self._sums)

    def merge(self, other: Timeline) -> None:
        """Add the steps of another, which may be left with wider bins."""
        while self._width_s < other._width_s:
            self._widen()
        while other._width_s < self._width_s:
            other._widen()
        self._sums += other._sums

    def _widen(self) -> None:
        merged = self._sums[0::2] + self._sums[1::2]
        self._sums = np.concatenate((merged, np.zeros_like(merged)))
        self._width_s *= 2

    def figures(self, slots: int) -> dict[str, Any]:
        """Columns of equal length, None in a bin where no step begins: bins begin at multiples of
        `width_s`, and each is the mean of the cards while they run. `slots`: of a card.

        `running` requests; shares of the slots that are `stored` and `reserved`; `utilization`,
        stored over reserved; `external_fragmentation`; `output_tokens_per_s`."""
        columns = self._sums.T
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
def _into_bins(rows: FloatArray, times_s: FloatArray, width_s: float, sums: FloatArray) -> None:
    """Adds steps to the bins in which they begin. rows: float64 (stretches, 10), as `Timeline.add`
    stacks them; times_s: of all their steps; sums: float64 (bins, 6), modified."""
    at = 0
    for row in rows:
        now_s, tokens = row[0], row[8]
        for step in range(int(row[1])):
            seconds, place = times_s[at], sums[int(now_s / width_s)]
            place[0] += seconds
            place[1] += row[2] * seconds
            place[2] += (row[3] + row[4] * step) * seconds
            place[3] += (row[5] + row[6] * step) * seconds
            place[4] += row[7] * seconds
            place[5] += tokens
            now_s, tokens, at = now_s + seconds, row[9], at + 1
