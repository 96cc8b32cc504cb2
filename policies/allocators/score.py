"""How well reservations by predicted length did, judged as each request ends."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np

PERIOD = 1_000
"""Requests that a row of the figures over time sums up."""
LENGTHS = (10, 25, 50, 75, 90)
"""Percentiles of the realised lengths, of the kind the bounds bound, in such a row."""


class Guess(NamedTuple):
    """What was decided when a request was first admitted."""

    bounds: tuple[int, ...]
    """The bounds of that time, in tokens."""
    predicted: int
    """The class of the prediction as it came, before inflation."""
    raw_slots: int
    """Slots of a reservation in that class."""
    requested: int
    """Slots of a reservation in the class of the inflated prediction, or of a large one."""
    slots: int
    """Slots that were reserved."""
    large: bool
    """Whether a large reservation was asked for."""


class RequestOutcome(NamedTuple):
    """What became of a request."""

    length: int
    """Its realised length, of the kind the bounds bound."""
    needed: int
    """Slots it came to need."""
    output: int
    """Output tokens of all its samples."""
    whole: int
    """The same with its prompt."""
    held: int
    """Slots of all the places of its last residence."""
    moves: int
    """How often it moved."""


class Score:
    """Counts over requests that ended, all of them and in rows of PERIOD."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(
            (
                "ended", "exact", "raw", "final", "large", "larger", "moves", "output", "used",
                "held",
            ),
            0,
        )  # fmt: skip
        self._before = self._counts.copy()
        self._rows: list[dict[str, Any]] = []
        self._lengths: list[int] = []

    def end(self, guess: Guess, outcome: RequestOutcome) -> bool:
        """A request ended; True if PERIOD of them are complete, and `close` is to add their row."""
        counts = self._counts
        counts["ended"] += 1
        self._lengths.append(outcome.length)
        counts["exact"] += bisect_left(guess.bounds, outcome.length) == guess.predicted
        counts["raw"] += guess.raw_slots >= outcome.needed
        counts["final"] += guess.slots >= outcome.needed
        counts["large"] += guess.large
        counts["larger"] += guess.slots > guess.requested
        counts["moves"] += outcome.moves
        counts["output"] += outcome.output
        counts["used"] += min(outcome.whole, outcome.held)
        counts["held"] += outcome.held
        return counts["ended"] % PERIOD == 0

    def close(self, bounds: tuple[int, ...]) -> None:
        """Add a row; `bounds` are those in force now."""
        part = {name: value - self._before[name] for name, value in self._counts.items()}
        self._before = self._counts.copy()
        row = {**_shares(part), "utilization": part["used"] / part["held"]}
        lengths = np.percentile(self._lengths, LENGTHS).round().astype(int).tolist()
        self._lengths.clear()
        period = {"output_tokens": part["output"], "bounds": list(bounds), "lengths": lengths}
        self._rows.append({**row, **period, "until_s": None})

    def clock(self, now_s: float) -> None:
        """The next step begins: the last row ended here."""
        if self._rows and self._rows[-1]["until_s"] is None:
            self._rows[-1]["until_s"] = now_s

    def figures(self) -> dict[str, Any]:
        """Shares of the requests that ended; `over_time` has a row for each PERIOD of them, with
        utilisation, output tokens, the bounds, percentiles `LENGTHS` of the realised lengths, and
        `until_s`, when the next step began."""
        return {**_shares(self._counts), "over_time": self._rows}


def _shares(counts: dict[str, int]) -> dict[str, float]:
    ended = max(counts["ended"], 1)
    final = counts["final"] / ended
    return {
        "bucket_accuracy": counts["exact"] / ended,
        "coverage_raw": counts["raw"] / ended,
        "coverage_final": final,
        "large_share": counts["large"] / ended,
        "larger_share": counts["larger"] / ended,
        "migration_rate": 1 - final if counts["ended"] else 0.0,
        "moves_per_request": counts["moves"] / ended,
    }
