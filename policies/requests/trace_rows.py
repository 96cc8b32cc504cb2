"""Rows of a trace as they are read, and what they are together."""

from __future__ import annotations

import math
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Columns(NamedTuple):
    """What a trace says, in the file's order.

    arrival_s: float64 (n,), non-decreasing, or None where the file has no times. prompt_tokens,
    output_tokens: int64 (n,). dropped: rows left out. prefix_id, prefix_tokens, tree: as in
    `policies.requests.requests.Requests`, or None if the format has none. session: int64 (n,),
    turns of one are next to each other; pause_s: float64 (n,), nan for first turns; goes_on: bool
    (n,); None if the format has no sessions, and then arrival_s is that of the turn's session.
    """

    arrival_s: NDArray[np.float64] | None
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    dropped: int
    prefix_id: NDArray[np.int64] | None = None
    prefix_tokens: NDArray[np.int64] | None = None
    tree: NDArray[np.int64] | None = None
    session: NDArray[np.int64] | None = None
    pause_s: NDArray[np.float64] | None = None
    goes_on: NDArray[np.bool_] | None = None


class TraceRows:
    """Rows that were read. Times must not fall; a row with an empty output is dropped."""

    def __init__(self) -> None:
        self._before = -math.inf
        self._start: float | None = None
        self._arrivals, self._prompts, self._outputs = array("d"), array("q"), array("q")
        self.dropped = 0

    def time(self, now: float, column: str, text: Any) -> None:
        """The row's time; raises ValueError where it is before the last one's."""
        if now < self._before:
            raise ValueError(f"{column} {text!r} is before the row above it; sort by time")
        self._before = now
        self._start = now if self._start is None else self._start

    def add(self, prompt: int, output: int) -> bool:
        """The row's lengths; False if it is dropped."""
        if prompt == 0 or output == 0:
            self.dropped += 1
            return False
        self._arrivals.append(max(self._before, 0.0))
        self._prompts.append(prompt)
        self._outputs.append(output)
        return True

    def columns(self, timed: bool, from_zero: bool, per_second: float) -> Columns:
        """All rows; raises ValueError where there are none."""
        if not self._prompts:
            raise ValueError(f"no requests: {self.dropped} rows, all with an empty output")
        arrival_s = np.frombuffer(self._arrivals)
        if timed and from_zero:
            assert self._start is not None
            arrival_s -= self._start
            arrival_s /= per_second
        prompts = np.frombuffer(self._prompts, np.int64)
        outputs = np.frombuffer(self._outputs, np.int64)
        return Columns(arrival_s if timed else None, prompts, outputs, self.dropped)
