"""What the nodes of a run with prefill and decode apart did, what moved between them, and how those
of cells become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from policies.allocators.kv_layout import KvLayout
from policies.requests.percentiles import summary
from policies.requests.requests import FloatArray, IntArray
from policies.serving.node import mean_of
from policies.serving.pool import Pool, PoolMetrics
from policies.serving.pool_fabric import Arrived
from policies.serving.ratios import rate
from policies.serving.slot_use import Known
from policies.transfers.kv_link import KvPlace

KEPT = (
    "kv_capacity_tokens", "kv_stored_share", "batch", "steps", "step_s", "preemptions",
    "prefill_tokens", "cached_tokens", "phase_share", "limit_share", "mean_run_tokens",
)  # fmt: skip
"""Metrics that each node shows."""


class SideRun(NamedTuple):
    """What one side did. `cards`: of a replica; `linked_s`: of each replica's link, after the
    warm-up."""

    metrics: PoolMetrics
    engines: Sequence[Known]
    layout: KvLayout
    cards: int
    steps_s: FloatArray
    linked_s: Sequence[float]
    stalled_s: float
    bandwidth: float
    reports: dict[str, Any]

    @property
    def figures(self) -> dict[str, Any]:
        """All metrics, as of a card (`Metrics.figures`); those of requests are of the whole."""
        return self.metrics.figures(self.engines, self.layout)


class PoolsRun(NamedTuple):
    """What both sides did. `arrived`: all transfers; `failures`, `controllers`: what these report,
    by name."""

    sides: Mapping[str, SideRun]
    arrived: Sequence[Arrived]
    failures: dict[str, int]
    controllers: dict[str, dict[str, Any]]


def side_run(name: str, pool: Pool, busy_s: Mapping[Any, float]) -> SideRun:
    """Of a pool. busy_s: of each end of links after the warm-up."""
    replicas, ports = pool.replicas, pool.builder.ports
    direction = ports[replicas[0]].direction
    ends = [(KvPlace(name, number), direction) for number in range(len(replicas))]
    return SideRun(
        pool.metrics, [
            Known(each.engine.reserved_ever, each.engine.run_tokens, each.engine.allocator.layout)
            for each in pool.node.built
        ],
        replicas[0].engine.allocator.layout, pool.cards, pool.node.busy_s,
        [busy_s.get(each, 0.0) for each in ends],
        sum(ports[each].delays.stalled_s for each in replicas), ports[replicas[0]].delays.bandwidth,
        pool.reports(),
    )  # fmt: skip


def figures_of_pools(run: PoolsRun, steady_s: float) -> dict[str, Any]:
    """Of each node the seconds of steps of the replicas with the least and the most; after the
    warm-up what its steps did (`Metrics.figures`), and the shares of time, until no request waits,
    and of DRAM that its links took; transfers, of which `memory_ms` is the wait for blocks after
    the prefill, `link_ms` that for the link."""
    found: dict[str, Any] = {}
    span_s = max(steady_s, 1e-300)
    moved = sum(each.bytes for each in run.arrived)
    for name, side in run.sides.items():
        many, figures, steps_s = len(side.linked_s), side.figures, side.steps_s
        came = figures["cached_tokens"] + figures["prefill_tokens"]
        found[name] = {
            "replicas": many, "cards": many * side.cards,
            "busy_s": {"least": float(steps_s.min()), "most": float(steps_s.max())},
            **{key: figures[key] for key in KEPT}, **side.reports,
            "hit_share": figures["cached_tokens"] / max(came, 1),
            "busy_share": 1 - figures["limit_share"].get("idle", 0.0),
            "link_share": sum(side.linked_s) / many / span_s,
            "dram_share": moved / many / span_s / side.bandwidth,
            "stalled_s": side.stalled_s,
        }  # fmt: skip
    rows = np.array(run.arrived or np.zeros((0, 5)), np.float64)
    found["transfers"] = {"count": len(rows)}
    if len(rows):
        descriptors, size, memory, link, moving = rows.T
        found["transfers"] |= {
            "descriptors": float(descriptors.mean()), "bytes": float(size.mean()),
            "memory_ms": summary(memory), "link_ms": summary(link), "ms": summary(moving),
            "gbps": float(size.sum() / moving.sum() / 1e6),
        }  # fmt: skip
    found["failures"] = run.failures
    return found | run.controllers


def figures_of_run(run: PoolsRun, decode: str) -> dict[str, Any]:
    """All metrics: those of a decode replica, but of requests, what they find in memory and what is
    computed those of the whole, and `pools`."""
    side = run.sides[decode]
    figures = {**side.figures, **side.reports}
    figures["pools"] = figures_of_pools(run, side.metrics.steady()[1])
    sides = [figures["pools"][name] for name in run.sides]
    found, computed = (
        sum(each[f"{what}_tokens"] for each in sides) for what in ("cached", "prefill")
    )
    sums = [each.metrics.after for each in run.sides.values()]
    busy_s = sum(each.seconds for each in sums)
    return {
        **figures, "prefill_tokens": computed, "cached_tokens": found,
        "cached_share": rate(found, found + computed),
        "compute_share": rate(sum(each.compute_s for each in sums), busy_s),
    }  # fmt: skip


def merged_runs(
    runs: Sequence[PoolsRun], rows: Sequence[IntArray], served: IntArray, metrics: PoolMetrics
) -> PoolsRun:  # fmt: skip
    """The runs of cells as one, whose cards have an own router each. rows: the requests of each;
    served: how many ended there; metrics: of one side, which has collected nothing."""
    sides = {}
    for name in runs[0].sides:
        parts = [run.sides[name] for run in runs]
        own = metrics.beside()
        own.merge([(each.metrics, mine) for each, mine in zip(parts, rows, strict=True)])
        many = len(metrics.requests.output)
        known = Known(np.zeros(many, np.int64), np.full(many, np.nan), parts[0].layout)
        for each, mine in zip(parts, rows, strict=True):
            reserved = [engine.reserved_ever for engine in each.engines]
            lengths = np.array([engine.run_tokens for engine in each.engines])
            known.reserved_ever[mine] = np.sum(reserved, axis=0)
            never = np.isnan(lengths).all(axis=0)
            known.run_tokens[mine] = np.where(never, np.nan, np.nansum(lengths, axis=0))
        sides[name] = SideRun(
            own, [known], parts[0].layout, parts[0].cards,
            np.concatenate([each.steps_s for each in parts]),
            [each for part in parts for each in part.linked_s],
            sum(each.stalled_s for each in parts), parts[0].bandwidth,
            mean_of([each.reports for each in parts], served),
        )  # fmt: skip
    failures = {key: sum(run.failures[key] for run in runs) for key in runs[0].failures}
    controllers = {
        name: mean_of([run.controllers[name] for run in runs], served)
        for name in runs[0].controllers
    }
    return PoolsRun(sides, [each for run in runs for each in run.arrived], failures, controllers)
