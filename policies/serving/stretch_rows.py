"""Stretches of equal steps of a run as rows: summed up when somebody asks, many at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.memory.step_times import StepTimes
from policies.requests.requests import FloatArray

MOST_ROWS, MOST_STEPS = 2048, 1 << 18
"""Kept until they are summed up, so that they stay small (assumed)."""


class Stretches(NamedTuple):
    """Columns, float64 (stretches,) each; slots and tokens are those of the first step of each, and
    of all requests together."""

    begin_s: FloatArray
    seconds: FloatArray
    """Of all steps of a stretch."""
    steps_s: FloatArray
    """Sum of each step's seconds times its number, from 0 on."""
    attention_s: FloatArray
    """Of all steps, as `compute_s`."""
    compute_s: FloatArray
    steps: FloatArray
    running: FloatArray
    """Requests."""
    grown: FloatArray
    """Tokens stored more from step to step."""
    stored: FloatArray
    reserved: FloatArray
    reserved_last: FloatArray
    """In the last step."""
    slots: FloatArray
    """Of the card."""
    free_outside: FloatArray
    """External fragmentation: the share of free slots outside the largest hole."""
    tokens_first: FloatArray
    """Output tokens of the first step."""
    tokens: FloatArray
    """Of each other step."""
    fitting: FloatArray
    """Slots that requests in line would fit; see `Engine.fitting`."""
    unneeded: FloatArray
    """Slots reserved that never hold a token."""
    fewer_s: FloatArray
    """Slots that were reserved in the last step and not in earlier ones, times their seconds."""
    limit: FloatArray
    """Its number among STEP_LIMITS."""
    weights_s: FloatArray
    """Of a step, as the other two."""
    overhead_s: FloatArray
    prefill_s: FloatArray


class StretchRows:
    """Rows that were added and not taken yet."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []
        self._times_s: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self._steps = 0

    def add(self, times: StepTimes, begin_s: float, row: tuple[float, ...]) -> bool:
        """Add a stretch: times of its steps, the first from `begin_s` on, and values of the columns
        from `steps` on. Whether it is time to take all."""
        self._times_s.append((times.total_s, times.attention_s, times.compute_s))
        self._rows.append((begin_s, 0.0, 0.0, 0.0, 0.0, *row))
        self._steps += len(times.total_s)
        return self._steps > MOST_STEPS or len(self._rows) >= MOST_ROWS

    def take(self) -> tuple[Stretches, FloatArray] | None:
        """(all stretches, seconds of all their steps); None: there is none."""
        if not self._rows:
            return None
        rows = np.array(self._rows, np.float64)
        total_s, attention_s, compute_s = map(np.concatenate, zip(*self._times_s, strict=True))
        _time_sums(total_s, attention_s, compute_s, rows)
        self._rows, self._times_s, self._steps = [], [], 0
        return Stretches(*rows.T), total_s


@kernel
def _time_sums(
    total_s: FloatArray, attention_s: FloatArray, compute_s: FloatArray, rows: FloatArray
) -> None:
    """Sums over the steps of each stretch, of which these are the times one behind the other. rows:
    float64 (stretches, columns of `Stretches`), modified."""
    at = 0
    for row in rows:
        for step in range(int(row[5])):
            row[1] += total_s[at]
            row[2] += step * total_s[at]
            row[3] += attention_s[at]
            row[4] += compute_s[at]
            at += 1
