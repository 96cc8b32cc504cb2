"""What steps wait for while a tiered cache moves KV (`tiers.py`)."""

from __future__ import annotations

import math

import numpy as np

from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
from policies.memory.contention import Moving
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.kv_link import IN, OUT
from policies.transfers.tier_options import TiersSpec
from policies.transfers.tier_store import TierStore


class TierDelays(StepDelays):
    """Of the tiers of one replica. `efficiency`: of the memory, in the last step."""

    def __init__(
        self, spec: TiersSpec, steps: StepModel, layers: int, store: TierStore, hidden: bool
    ) -> None:  # fmt: skip
        """layers: of the model. hidden: whether hidden states are kept."""
        self._spec, self._steps, self._layers = spec, steps, layers
        self._store, self._hidden = store, hidden
        self.efficiency = Efficiency()
        self._waits: FloatArray = np.zeros(0)
        """What the steps under way are longer by."""

    def moving(self, allocator: Allocator) -> list[Moving]:
        if self._spec.contention != "simulated":
            return []
        queue = self._store.queue
        return [
            Moving(
                job.rate / len(job.near), job.ends == (IN,), near.units,
                1 - queue.left(job), near.first, near.last,
            )
            for job in queue.under_way for near in job.near
        ]  # fmt: skip

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        """DRAM gives less while the link is busy, and layers wait for their KV."""
        self.efficiency = efficiency
        queue = self._store.queue
        waits = np.zeros(len(times.total_s))
        if self._spec.contention and (rate := queue.rate()):
            taken = rate * (2 if self._spec.host.dram == "card" else 1)
            waits += times.contended(taken, self._steps.bandwidth * efficiency.attention, cost)
        if self.restoring:
            overlap = self._spec.host.hcache and self._spec.host.hcache.overlap
            idle_s = float(times.memory_s[0]) if overlap else 0.0
            waits[0] += self._store.projections.step(float(times.total_s[0] + waits[0]), idle_s)
        if self._spec.synchronous:
            waits[0] += max(queue.wait_s(IN), queue.wait_s(OUT))
        if self._spec.layerwise and self._store.loads:
            waits[0] += self._layers_wait_s(float(times.total_s[0] + waits[0]))
        self._waits = waits
        return waits

    def done(self, times: StepTimes) -> None:
        self._store.counted.stalled_s += float(self._waits[: len(times.total_s)].sum())

    @property
    def restoring(self) -> bool:
        """Whether the next step projects hidden states."""
        waits = bool(self._store.loads) or self._store.projections.due_s < math.inf
        return waits and self._hidden

    def _layers_wait_s(self, step_s: float) -> float:
        """What a step that begins now waits for its layers, beyond what it takes."""
        before, layers = self._store.queue.wait_s(IN), self._layers
        last = list(self._store.loads.values())[-1]
        own = self._store.queue.left(last) * last.alone_s
        first = max(before - own, 0.0)
        longest = max(first + own / layers + step_s, first + own + step_s / layers)
        return max(longest - step_s, 0.0)
