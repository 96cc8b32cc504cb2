"""Stretches of equal steps of a run as rows: summed up when somebody asks, many at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodel.kernel.jit import kernel
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
    compute_s: FloatArray
    """Of all steps, as `attention_s`."""
    attention_s: FloatArray
    weights_s: FloatArray
    """Of a step, as the other two."""
    overhead_s: FloatArray
    prefill_s: FloatArray


class StretchRows:
    """Rows that were added and not taken yet."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []
        self._times_s: list[FloatArray] = []
        self._steps = 0

    def add(self, times_s: FloatArray, row: tuple[float, ...]) -> bool:
        """Add a stretch: seconds of its steps, and values of the columns in order. Whether it is
        time to take all."""
        self._times_s.append(times_s)
        self._rows.append(row)
        self._steps += len(times_s)
        return self._steps > MOST_STEPS or len(self._rows) >= MOST_ROWS

    def take(self) -> tuple[Stretches, list[FloatArray]] | None:
        """(all stretches, seconds of the steps of each); None: there is none."""
        if not (rows := self._rows):
            return None
        columns = Stretches(*np.array(rows, np.float64).T)
        times_s = self._times_s
        self._rows, self._times_s, self._steps = [], [], 0
        return columns, times_s


@kernel
def time_sums(
    total_s: FloatArray, attention_s: FloatArray, compute_s: FloatArray
) -> tuple[float, float, float, float]:
    """Sums over steps: (seconds, seconds times the number of the step, of attention, of what
    compute bounds); float64 (rounds,) each."""
    seconds = steps_s = attention = compute = 0.0
    for step in range(len(total_s)):
        seconds += total_s[step]
        steps_s += step * total_s[step]
        attention += attention_s[step]
        compute += compute_s[step]
    return seconds, steps_s, attention, compute
