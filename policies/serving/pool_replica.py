"""A replica of a prefill or a decode pool, its metrics, and a pool of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.capabilities import report_of
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.component import Component
from policies.memory.fidelity import Memory
from policies.memory.step import StepModel
from policies.requests.requests import Requests
from policies.serving.cluster import mean_of
from policies.serving.metrics import Known, Metrics
from policies.serving.replica import Replica, Steps
from policies.transfers.fabric import Fabric, Place
from policies.transfers.ports import Port, ReceivingPort, SendingPort
from policies.transfers.tier_options import Contends

PREFILL, DECODE = "prefill", "decode"


class PoolMetrics(Metrics):
    """Metrics of one pool, with the times, ends and tokens of the whole."""

    def __init__(self, whole: Metrics, requests: Requests) -> None:
        super().__init__(requests, whole.output, whole.warmup)
        self.whole = whole
        self.arrival_s, self.first_s, self.end_s = whole.arrival_s, whole.first_s, whole.end_s

    def saturated(self, now: float, tokens: int = 0) -> None:
        """The pools know together whether requests wait."""

    def steps(self, *args: Any, **named: Any) -> None:
        before = self.sums.output_tokens
        super().steps(*args, **named)
        self.whole.sums.output_tokens += self.sums.output_tokens - before

    def end(self, requests: list[int], now: float) -> bool:
        self.ended += len(requests)
        return self.whole.end(requests, now)

    def _memory_figures(
        self, engines: Sequence[Engine | Known], layout: KvLayout, done: NDArray[np.bool_]
    ) -> dict[str, Any]:  # fmt: skip
        here = np.sum([engine.reserved_ever for engine in engines], axis=0) > 0
        return super()._memory_figures(engines, layout, done & here)

    def _steady(self) -> tuple[int, float]:
        return self.whole._steady()


class PoolReplica(Replica):
    """A replica whose requests come, and go, through a port."""

    def __init__(
        self, engine: Engine, steps: Steps, memory: Memory, metrics: Metrics,
        components: Sequence[Component], together: bool,
    ) -> None:  # fmt: skip
        super().__init__(engine, steps, memory, metrics, together, components=components)
        self.port = next(each for each in components if isinstance(each, Port))
        self.step: Step | None = None
        """The last step, which ended at `now_s`; None: nothing was computed."""
        self.began_s = 0.0

    def go_on(self, horizon: Callable[[], float]) -> list[int]:
        """As `advance`, where `horizon` knows the driver's next event once a step is scheduled."""
        self.step = None
        step, fitting = self.begin(math.inf)
        until_s = max(horizon(), math.nextafter(self.now_s, math.inf))
        if self.idles(step):
            return []
        self.step, self.began_s = step, self.now_s
        times = self.times(step, *self.observe(step))
        return self.end(step, fitting, *self.cut(step, times, until_s))

    def meet(self, request: int, made: int, at_s: float) -> None:
        """A request that has made so many tokens elsewhere comes then."""
        self.port.expect(request, made)
        self.arrive([request], [at_s])

    def withdraw(self, request: int) -> None:
        """It comes no more, or waits no more."""
        self._to_come = [item for item in self._to_come if item[1] != request]
        heapq.heapify(self._to_come)
        if request in self.engine.waiting:
            self.engine.waiting.remove(request)


@dataclass
class Side:
    """What makes a replica one of a pool."""

    port: Callable[[StepModel, TransformerSpec, int], Port]
    contention: Contends

    @classmethod
    def of(cls, fabric: Fabric, place: Place, contention: Contends) -> Side:
        kind = SendingPort if place[0] == PREFILL else ReceivingPort
        return cls(
            lambda steps, model, cards: kind(steps, fabric, place, contention, model, cards),
            contention,
        )


@dataclass
class Pool:
    """One side. `make(number)`: a new replica of it."""

    device: Device
    local: TransformerSpec
    cards: int
    """Of a replica."""
    make: Callable[[int], PoolReplica]
    metrics: PoolMetrics
    replicas: list[PoolReplica] = field(default_factory=list)
    former: list[PoolReplica] = field(default_factory=list)
    """Those that failed."""

    def reports(self) -> dict[str, Any]:
        """`policy`, `memory` and what components report, of its replicas as of one."""
        weights = np.ones(len(self.replicas), np.int64)
        moved = self.metrics.moved_bytes(self.local) // len(weights)
        allocators = [each.engine.allocator for each in self.replicas]
        return {
            "policy": mean_of([report_of(each) for each in allocators], weights),
            "memory": mean_of([each.memory.report(moved) for each in self.replicas], weights),
            **mean_of([each.figures() for each in self.replicas], weights),
        }

    def figures(self) -> dict[str, Any]:
        """All metrics, as of a card (`Metrics.figures`); those of requests are of the whole."""
        engines = [each.engine for each in (*self.replicas, *self.former)]
        layout = self.replicas[0].engine.allocator.layout
        return self.metrics.figures(engines, self.local, layout)
