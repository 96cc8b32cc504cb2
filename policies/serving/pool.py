"""A prefill or a decode pool: its replicas, and their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.allocators.capabilities import report_of
from policies.engines.engine import Engine
from policies.requests.requests import IntArray, Requests
from policies.serving.metrics import Metrics
from policies.serving.node import Node, mean_of
from policies.serving.replica import Replica
from policies.serving.replica_builder import ReplicaBuilder
from policies.serving.slot_use import Known
from policies.transfers.ports import Port


class PoolMetrics(Metrics):
    """Metrics of one pool, with the times, ends and tokens of the whole."""

    def __init__(self, whole: Metrics, requests: Requests, first_sample: IntArray | None) -> None:
        super().__init__(requests, whole.requests.output, whole.warmup, first_sample)
        self.whole, self.requests, self._of = whole, whole.requests, requests

    def beside(self) -> PoolMetrics:
        """Of a side of the same whole; it has collected nothing."""
        return PoolMetrics(self.whole, self._of, None)

    def saturated(self, now: float) -> None:
        """The pools know together whether requests wait."""

    def produced(self, output_tokens: int) -> None:
        super().produced(output_tokens)
        self.whole.produced(output_tokens)

    def end(self, requests: list[int], now: float) -> bool:
        self.ended += len(requests)
        return self.whole.end(requests, now)

    def counted(self, engines: Sequence[Engine | Known]) -> NDArray[np.bool_]:
        here = np.sum([engine.reserved_ever for engine in engines], axis=0) > 0
        here = self.requests.whole(np.logical_or, here)
        counted: NDArray[np.bool_] = super().counted(engines) & here
        return counted

    def steady(self) -> tuple[int, float]:
        return self.whole.steady()


@dataclass
class Pool:
    """One side."""

    builder: ReplicaBuilder
    metrics: PoolMetrics
    node: Node

    @property
    def cards(self) -> int:
        """Of a replica."""
        return self.builder.run.spec.tensor_parallel

    @property
    def replicas(self) -> list[Replica]:
        """Those that serve now, each on a card of its own."""
        return self.node.own

    def port(self, number: int) -> Port:
        """Of that which serves a card."""
        return self.builder.ports[self.node.replicas[number]]

    def reports(self) -> dict[str, Any]:
        """`policy`, `memory` and what components report, of its replicas as of one."""
        weights = np.ones(len(self.replicas), np.int64)
        moved = self.metrics.moved_bytes() // len(weights)
        allocators = [each.engine.allocator for each in self.replicas]
        return {
            "policy": mean_of([report_of(each) for each in allocators], weights),
            "memory": mean_of([each.memory.report(moved) for each in self.replicas], weights),
            **self.node.figures(weights),
        }
