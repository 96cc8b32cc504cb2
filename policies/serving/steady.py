"""The steady part of a run: from the end of the warm-up until a request waits for the last time.

Steps are counted as they end, many at a time, and units are not in step. What is counted is put
right here by what lies across either end: output tokens of steps that begin before it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from policies.serving.metrics import Metrics
from policies.serving.unit import Stretch, Unit


class SteadyPart:
    """Watches the units of a run for `metrics`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._early = 0
        """Output tokens of steps under way as the steady part began: they are not of it."""
        self._late: list[tuple[int, Stretch]] = []
        """That end after the steady part, as far as it is known, each with its turn."""
        self._most_late = 16
        self._turn = self._before = 0
        """Of the next to be counted; of the first that was not when the steady part was last seen
        to go on. Others are counted while they go on, if somebody looks."""

    def began(self, unit: Unit, at_s: float, lasts: bool) -> None:
        """Steps begin. lasts: whether requests wait, or will come. Steps that go on after somebody
        has looked, and changed nothing, are no new ones."""
        if lasts and (unit.paused is None or unit.paused != unit.state):
            self._lasts(at_s)
        unit.paused = None

    def done(self, unit: Unit, stretch: Stretch) -> None:
        """These steps are over, and are counted next."""
        until_s, begin_s = unit.steady_s, stretch.begin_s
        if until_s is not None and begin_s <= until_s and stretch.rounds > 1:
            begins_s = np.cumsum([begin_s, *stretch.parts[0].times.total_s[:-1]])
            last = int(np.searchsorted(begins_s, until_s, "right")) - 1
            self._lasts(float(begins_s[last]))
        self._late.append((self._turn, stretch))
        self._turn += 1
        if len(self._late) > self._most_late:
            close_s = self._metrics.close[0]
            self._late = [each for each in self._late if each[1].end_s > close_s]
            self._most_late = 2 * len(self._late) + 16

    def _lasts(self, at_s: float) -> None:
        self._metrics.saturated(at_s)
        self._before = self._turn

    def warm(self, now_s: float, ahead: Iterable[Stretch]) -> None:
        """The warm-up ends, while these steps lie ahead; others, that end later, are counted."""
        self._early = sum(each.made(now_s) for each in ahead)
        for _, each in self._late:
            if each.end_s > now_s:
                self._early -= each.made() - each.made(now_s)

    def close(self) -> None:
        """The run is over: `metrics` has the tokens of the steady part."""
        close_s, made = self._metrics.close
        made -= self._early
        for turn, each in self._late:
            if each.end_s > close_s:
                made += each.made(close_s) - (each.made() if turn < self._before else 0)
        self._metrics.close = (close_s, made)
