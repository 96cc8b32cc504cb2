"""Metrics of a serving run, collected as its steps pass: sums over steps, times of requests, use of
slots, and figures out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import STEP_LIMITS, Step
from policies.memory.step_times import StepTimes
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.request_times import RequestTimes
from policies.serving.slot_use import Known, SlotUse, slot_figures
from policies.serving.step_figures import acceptance, step_figures
from policies.serving.step_sums import Sums
from policies.serving.stretch_rows import Stretches, StretchRows
from policies.serving.timeline import Timeline

LIMIT_NUMBERS = {limit: number for number, limit in enumerate(STEP_LIMITS)}


class Metrics:
    """Collects a run. `warmup`: the first requests to end and to arrive do not count as steady.
    `first_sample`: see `RequestTimes`."""

    def __init__(
        self,
        requests: Requests,
        output_tokens: IntArray,
        warmup: int,
        first_sample: IntArray | None = None,
    ) -> None:
        self.requests = RequestTimes(requests, output_tokens, first_sample)
        """When they came, began and ended."""
        self.prompt = requests.prompt_tokens
        self.warmup = warmup
        self._sums = Sums()
        self._timeline = Timeline()
        self._rows = StretchRows()
        """Of stretches that are not in sums and timeline yet."""
        self.ended = 0
        self.begin: tuple[float, Sums] = (0.0, Sums())
        """When the warm-up ended, and what had been done by then."""
        self.close: tuple[float, int] = (0.0, 0)
        """When the steady part ends, and the output tokens made by then."""
        self._slots = SlotUse(requests, output_tokens)

    def merge(self, parts: Sequence[tuple[Metrics, IntArray]]) -> None:
        """Make this, which has collected nothing, what parts have that served the requests of these
        rows. The steady part is between the means of where theirs begin and end."""
        share = 1 / len(parts)
        begin_s = close_s = 0.0
        begin, made = Sums(), 0
        for part, rows in parts:
            for name in ("arrival_s", "first_s", "end_s"):
                getattr(self.requests, name)[rows] = getattr(part.requests, name)
            self._sums = self._sums.plus(part.sums)
            self._timeline.merge(part.timeline)
            self.ended += part.ended
            begin_s, begin = begin_s + share * part.begin[0], begin.plus(part.begin[1])
            part_close_s, part_made = part.closed
            close_s, made = close_s + share * part_close_s, made + part_made
        self.begin, self.close = (begin_s, begin), (close_s, made)

    def idle(self, seconds: float, stages: int = 1) -> None:
        """Nothing ran for this long on a replica of so many stages."""
        self._sums.idle(seconds, stages)

    def saturated(self, now: float) -> None:
        """Requests wait or are still to arrive: the steady part reaches at least to `now`."""
        self.close = (now, self._sums.output_tokens)

    def steps(
        self, step: Step, times: StepTimes, allocator: Allocator, running: IntArray, begin_s: float,
        reserved: int, fitting: int = 0, holders: IntArray | None = None,
    ) -> None:  # fmt: skip
        """Add consecutive equal steps, from `begin_s` on; `reserved` slots in the first of them,
        `allocator` as it is at the end of the last; `fitting`, `holders`: see `Engine`."""
        times_s, batch, slots = times.total_s, step.tokens, self._slots
        rounds = len(times_s)
        stored = slots.stored(step, allocator, running, rounds, holders)
        unneeded, fewer_s = slots.beyond(step, times_s, allocator, running)
        begun, made = 0, step.output
        for chunk in step.chunks:
            if chunk.last:
                begun += 1
        self.produced(made * rounds + begun)
        self._sums.add(step, times, allocator.layout)
        if self._rows.add(times, begin_s, (
            rounds, len(running), batch, stored, reserved, allocator.reserved_total,
            allocator.slots, allocator.fragmentation, made + begun, made, fitting, unneeded,
            fewer_s, LIMIT_NUMBERS[step.limit], times.weights_s, times.overhead_s, times.prefill_s,
        )):  # fmt: skip
            self._sum_up()

    @property
    def made(self) -> int:
        """Output tokens of all steps so far."""
        return self._sums.output_tokens

    def produced(self, output_tokens: int) -> None:
        """Steps made so many."""
        self._sums.output_tokens += output_tokens

    def _sum_up(self) -> None:
        """Add the rows that are kept to sums and timeline."""
        if (taken := self._rows.take()) is not None:
            self.passed(*taken)

    def passed(self, stretches: Stretches, times_s: FloatArray) -> None:
        """Add stretches that are counted already, and seconds of all their steps."""
        self._sums.add_stretches(stretches)
        self._timeline.add(stretches, times_s)

    @property
    def sums(self) -> Sums:
        """Over all steps so far."""
        self._sum_up()
        return self._sums

    @property
    def timeline(self) -> Timeline:
        """Of all steps so far."""
        self._sum_up()
        return self._timeline

    def end(self, requests: list[int], now: float) -> bool:
        """These requests ended; True if the warm-up ended with them."""
        self.requests.end_s[requests] = now
        self.ended += len(requests)
        warm = self.ended - len(requests) < self.warmup <= self.ended
        if warm:
            self.begin = (now, self.sums.copy())
        return warm

    @property
    def after(self) -> Sums:
        """What was done after the warm-up."""
        return self.sums.since(self.begin[1])

    def moved_bytes(self) -> int:
        """Bytes that decoding moved on the mean card in the whole run: weights in each step, and
        what attention reads and writes."""
        moved = self.sums.moved_bytes()
        return moved["weights"] + moved["attention"]

    def figures(self, engines: Sequence[Engine | Known], layout: KvLayout) -> dict[str, Any]:
        """All metrics by name; times in seconds, rates a second, shares from 0 to 1.

        `output_tokens_per_s` is that of the steady part: from the end of the warm-up until the last
        time that a request waits or is still to arrive. `backlog_share`: of the counted requests,
        those that had no token when the last one arrived. `cached_share`: tokens found in
        memory over those that requests came with, to be computed or not.

        engines: those of all cards, each with room as in `layout`. Seconds of steps add up over the
        cards, so that shares and means are those of a card. `phase_gbps`: what a phase moved over
        its time, which is less than its memory's where FLOPs take longer.
        """
        after, requests = self.after, self.requests
        return {
            **requests.figures(*self.steady(), self.warmup),
            **slot_figures(
                after, engines, layout, self.prompt + requests.output, self.counted(engines),
                requests.whole,
            ),
            **step_figures(after),
            **acceptance(self.sums),
            "kv_capacity_tokens": layout.tokens,
            "quantiles": requests.quantiles(self.warmup),
            "over_time": {"warm_s": self.begin[0], **self.timeline.figures(layout.slots)},
        }  # fmt: skip

    def counted(self, engines: Sequence[Engine | Known]) -> NDArray[np.bool_]:
        """Requests whose use of slots counts."""
        return self.requests.done(self.warmup)

    @property
    def _begin_s(self) -> float:
        """When the steady part begins."""
        first = self.warmup == 0 and len(self.requests.arrival_s)
        return float(self.requests.arrival_s[0]) if first else self.begin[0]

    @property
    def closed(self) -> tuple[float, int]:
        """`close`, or the end of all where no request waited after the warm-up: then everything
        after it is the steady part."""
        if self.close[0] > self._begin_s:
            return self.close
        return float(np.nanmax(self.requests.end_s, initial=0.0)), self.sums.output_tokens

    def steady(self) -> tuple[int, float]:
        """Output tokens of the steady part, and its seconds."""
        close_s, made = self.closed
        return made - self.begin[1].output_tokens, close_s - self._begin_s
