"""How the token slots of KV memory are used: stored, reserved, free and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import OnDemand
from policies.allocators.columns import product_of, sum_of
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.ratios import mean, rate, shares
from policies.serving.step_sums import Sums


class Known(NamedTuple):
    """What engines know of requests that have ended; see `Engine`."""

    reserved_ever: IntArray
    run_tokens: FloatArray
    allocator: KvLayout
    """Whose `slots` are the card's."""


class SlotUse:
    """Of a run."""

    def __init__(self, requests: Requests, output_tokens: IntArray) -> None:
        self._needed = requests.prompt_tokens + output_tokens - 1
        """Tokens that each request has stored at its end."""
        self._filled: tuple[IntArray | None, int, int] = (None, 0, 0)
        """The requests that ran last, what was reserved then, and `_unneeded` of it."""
        self._shares = bool((requests.prefix_id >= 0).any() or (requests.parent >= 0).any())
        self._grows: dict[type, bool] = {}
        """Whether an allocator of a type reserves as tokens are stored."""

    def stored(
        self, step: Step, allocator: Allocator, running: IntArray, rounds: int,
        holders: IntArray | None,
    ) -> int:  # fmt: skip
        """Slots that hold a token in the first of so many steps; shared ones once."""
        layout = allocator.layout
        if layout.groups is None and len(step.decode) == len(running):  # all, before they grew
            stored = step.context + step.tokens
        elif layout.groups is None:
            stored = sum_of(allocator.stored, running) - step.tokens * (rounds - 1)
        else:
            stored = int(layout.slots_of(allocator.stored[running]).sum())
            stored -= step.tokens * (rounds - 1)
        others = () if holders is None else holders
        if len(others):
            stored += int(layout.slots_of(allocator.stored[others]).sum())
        if self._shares:
            held = int(allocator.reserved[running].sum())
            held += int(allocator.reserved[others].sum()) if len(others) else 0
            stored -= max(held - allocator.reserved_total, 0)
        return stored

    def beyond(
        self, step: Step, times_s: FloatArray, allocator: Allocator, running: IntArray
    ) -> tuple[int, float]:
        """(slots reserved that never hold a token, slots reserved in the last of the steps and not
        in earlier ones times seconds of these)."""
        if (grows := self._grows.get(type(allocator))) is None:
            grows = self._grows[type(allocator)] = allocator.able(OnDemand) is not None
        if step.migrations:  # what is reserved may be as much as before, and others'
            self._filled = (None, 0, 0)
        if not grows:
            return self._unneeded(allocator, running), 0.0
        if len(times_s) == 1:
            return 0, 0.0
        fewer = cast(OnDemand, allocator).grown(step.decode, len(times_s))
        return 0, product_of(fewer, times_s)

    def _unneeded(self, allocator: Allocator, running: IntArray) -> int:
        """Slots reserved for `running`, of which reservations are made once, that never hold a
        token."""
        before, reserved, unneeded = self._filled
        if running is not before or allocator.reserved_total != reserved:
            reserved = allocator.reserved_total
            needed = allocator.layout.slots_of(self._needed[running])
            filled = np.minimum(allocator.reserved[running], needed)
            unneeded = reserved - int(filled.sum())
            self._filled = (running, reserved, unneeded)
        return unneeded


def slot_figures(
    after: Sums, engines: Sequence[Engine | Known], layout: KvLayout, held_tokens: IntArray,
    done: NDArray[np.bool_], whole: Callable[[np.ufunc, Any], Any],
) -> dict[str, Any]:  # fmt: skip
    """How KV memory was used after the warm-up. held_tokens: of each request at its end; `done`:
    those that count; whole: combines the samples of a prompt."""
    reserved = whole(np.add, np.sum([engine.reserved_ever for engine in engines], axis=0))
    held = np.minimum(whole(np.add, layout.slots_of(held_tokens)), reserved)
    runs = [engine.run_tokens for engine in engines]
    run_tokens = np.where(np.isnan(runs).all(axis=0), np.nan, np.nansum(runs, axis=0))
    run_tokens = whole(np.add, run_tokens) / whole(np.add, np.ones(len(run_tokens)))
    busy = max(after.seconds, 1e-300)
    slots: float = layout.slots
    if any(engine.allocator.slots != slots for engine in engines):  # cards that joined
        slots = sum(after.slot_s.values()) / busy
    return {
        "utilization": rate(int(held[done].sum()), int(reserved[done].sum())),
        "time_weighted_utilization": rate(after.stored_seconds, after.reserved_seconds),
        "kv_stored_share": after.stored_seconds / busy / slots,
        "external_fragmentation": after.hole_seconds / busy,
        "kv_slots": {
            "binding": shares(after.binding_slot_s) if after.limit_s["kv_memory"] else {},
            "overall": shares(after.slot_s),
        },
        "mean_run_tokens": mean(run_tokens[done]),
    }
