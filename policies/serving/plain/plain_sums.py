"""What plain replicas of a fleet did, in the order in which it ended, as metrics take it."""

from __future__ import annotations

import bisect
import math
from typing import Any, NamedTuple

import numpy as np

from policies.requests.requests import FloatArray, IntArray
from policies.serving.plain.plain_state import COUNTED
from policies.serving.stretch_rows import MOST_ROWS, MOST_STEPS, Stretches

_ENDED, _LASTS = len(COUNTED), len(COUNTED) + 1
"""Columns of `Rows.counts`."""
_SUMS = {
    "new_preempted": "preemptions", "new_prefilled": "prefill_tokens",
    "new_cached": "cached_tokens",
}  # fmt: skip
_MOVED = {
    "weight_bytes": ("weights", "weights"), "read_bytes": ("attention", "kv_read"),
    "written_bytes": ("attention", "kv_written"), "chunk_read_bytes": ("prefill", "kv_read"),
    "chunk_written_bytes": ("prefill", "kv_written"),
}  # fmt: skip


class Passed(NamedTuple):
    """Stretches, as `Rows` has them, of these cards."""

    card: IntArray
    stretches: FloatArray
    ends_s: FloatArray
    counts: IntArray
    times_s: FloatArray

    @property
    def steps(self) -> IntArray:
        """Of each."""
        return self.stretches[:, 5].astype(np.int64)

    def of(self, chosen: slice | IntArray) -> Passed:
        """These of them, in this order."""
        steps = self.steps
        first = np.cumsum(steps) - steps
        many = steps[chosen]
        behind = np.cumsum(many) - many
        times = np.repeat(first[chosen] - behind, many) + np.arange(many.sum())
        return Passed(
            self.card[chosen], self.stretches[chosen], self.ends_s[chosen], self.counts[chosen],
            self.times_s[times],
        )  # fmt: skip

    def made_before(self, before_s: float) -> int:
        """Output tokens of the steps that begin before then (`Stretch.made`)."""
        made = behind = 0
        for row in self.stretches:
            total_s = self.times_s[behind : behind + int(row[5])]
            behind += len(total_s)
            begun = int(np.searchsorted(row[0] + np.cumsum(total_s) - total_s, before_s))
            made += begun * int(row[14]) + (int(row[13] - row[14]) if begun else 0)
        return made


class FleetSums:
    """Adds to the metrics of a run."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics
        self._kept: list[Passed] = []
        """In order, not summed up yet: that is done where the general way does it."""
        self._many = self._steps = 0
        """Stretches and steps of these."""
        self._idle: list[tuple[float, int, float]] = []
        self._warm_s: float | None = None
        self._early = 0
        """Output tokens of steps that were under way as the warm-up ended."""
        self._close_s = 0.0
        self._late: list[Passed] = []
        """That may end after the steady part."""

    def idle(self, until_s: float, card: int, seconds: float) -> None:
        """A card had nothing to do until then."""
        self._idle.append((until_s, card, seconds))

    def add(self, parts: list[Passed]) -> None:
        """All that has ended since the last time."""
        if not parts:
            return
        whole = Passed(*map(np.concatenate, zip(*parts, strict=True)))
        passed = whole.of(np.lexsort((whole.card, whole.ends_s)))
        lasts = passed.counts[:, _LASTS] != 0
        self._close_s = max(self._close_s, float(passed.stretches[lasts, 0].max(initial=0.0)))
        late = [each.of(np.flatnonzero(each.ends_s > self._close_s))
                for each in (*self._late, passed)]  # fmt: skip
        self._late = [each for each in late if len(each.card)]
        metrics = self._metrics
        after = metrics.ended + np.cumsum(passed.counts[:, _ENDED])
        if metrics.ended < metrics.warmup <= after[-1]:
            at = int(np.searchsorted(after, metrics.warmup)) + 1
            self._pass_on(passed.of(slice(0, at)))
            self._warm(float(passed.ends_s[at - 1]))
            passed = passed.of(slice(at, None))
        if self._warm_s is not None:
            under_way = passed.of(np.flatnonzero(passed.stretches[:, 0] < self._warm_s))
            self._early += under_way.made_before(self._warm_s)
        self._pass_on(passed)

    def _warm(self, at_s: float) -> None:
        self._sum_up()
        self._take_idle(at_s)
        self._warm_s = at_s
        self._metrics.begin = (at_s, self._metrics.sums.copy())

    def _pass_on(self, passed: Passed) -> None:
        sums = self._metrics._sums
        counted = dict(zip(COUNTED, passed.counts.sum(axis=0).tolist(), strict=False))
        sums.output_tokens += counted["made"]
        for field, name in _SUMS.items():
            setattr(sums, name, getattr(sums, name) + counted[field])
        for field, key in _MOVED.items():
            sums.moved[key] += counted[field]
        self._metrics.ended += int(passed.counts[:, _ENDED].sum())
        while len(passed.card):
            steps = self._steps + np.cumsum(passed.steps)
            at = min(int(np.searchsorted(steps, MOST_STEPS, "right")), MOST_ROWS - self._many - 1)
            now = passed.of(slice(0, at + 1))
            self._kept.append(now)
            self._many += len(now.card)
            self._steps += len(now.times_s)
            if at >= len(passed.card):
                return
            self._sum_up()
            passed = passed.of(slice(at + 1, None))

    def _sum_up(self) -> None:
        if self._kept:
            stretches = np.concatenate([each.stretches for each in self._kept])
            times_s = np.concatenate([each.times_s for each in self._kept])
            self._metrics.passed(Stretches(*stretches.T.copy()), times_s)
        self._kept, self._many, self._steps = [], 0, 0

    def _take_idle(self, before_s: float) -> None:
        self._idle.sort()
        taken = bisect.bisect_left(self._idle, (before_s,))
        for _, _, seconds in self._idle[:taken]:
            self._metrics.idle(seconds)
        del self._idle[:taken]

    def close(self) -> None:
        """The run is over."""
        self._sum_up()
        self._take_idle(math.inf)
        made = self._metrics._sums.output_tokens - self._early
        for each in self._late:
            late = each.of(np.flatnonzero(each.ends_s > self._close_s))
            made += late.made_before(self._close_s) - int(late.counts[:, 0].sum())
        self._metrics.close = (self._close_s, made)
