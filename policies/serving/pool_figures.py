"""What the nodes of a run with prefill and decode apart did, and what moved between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policies.requests.percentiles import summary
from policies.serving.pool_replica import Pool
from policies.transfers.kv_link import Link
from policies.transfers.ports import Place

KEPT = (
    "kv_capacity_tokens", "kv_stored_share", "batch", "steps", "step_s", "preemptions",
    "prefill_tokens", "cached_tokens", "phase_share", "limit_share", "mean_run_tokens",
)  # fmt: skip
"""Metrics that each node shows."""


def figures_of_pools(
    pools: Mapping[str, Pool], steady_s: float,
    arrived: Sequence[tuple[int, int, float, float, float]], fabric: Link,
    busy_s: Mapping[Place, float],
) -> dict[str, Any]:  # fmt: skip
    """Of each node the seconds of steps of the replicas with the least and the most; after the
    warm-up what its steps did (`Metrics.figures`), and the shares of time, until no request waits,
    and of DRAM that its links took; transfers, of which `memory_ms` is the wait for blocks after
    the prefill, `link_ms` that for the link.

    arrived: descriptors, bytes; ms for memory, in line and on the link: of each transfer. busy_s:
    of each replica's link before the warm-up ended."""
    found: dict[str, Any] = {}
    span_s = max(steady_s, 1e-300)
    moved = sum(each[1] for each in arrived)
    for name, pool in pools.items():
        replicas = pool.replicas
        many = len(replicas)
        linked_s = [
            fabric.busy_s.get((name, number), 0.0) - busy_s.get((name, number), 0.0)
            for number in range(many)
        ]
        steps_s = pool.node.busy_s
        figures = pool.figures()
        came = figures["cached_tokens"] + figures["prefill_tokens"]
        found[name] = {
            "replicas": many, "cards": many * pool.cards,
            "busy_s": {"least": float(steps_s.min()), "most": float(steps_s.max())},
            **{key: figures[key] for key in KEPT}, **pool.reports(),
            "hit_share": figures["cached_tokens"] / max(came, 1),
            "busy_share": 1 - figures["limit_share"].get("idle", 0.0),
            "link_share": sum(linked_s) / many / span_s,
            "dram_share": moved / many / span_s / replicas[0].port.bandwidth,
            "stalled_s": sum(each.port.stalled_s for each in replicas),
        }  # fmt: skip
    rows = np.array(arrived or np.zeros((0, 5)), np.float64)
    found["transfers"] = {"count": len(rows)}
    if len(rows):
        descriptors, size, memory, link, moving = rows.T
        found["transfers"] |= {
            "descriptors": float(descriptors.mean()), "bytes": float(size.mean()),
            "memory_ms": summary(memory), "link_ms": summary(link), "ms": summary(moving),
            "gbps": float(size.sum() / moving.sum() / 1e6),
        }  # fmt: skip
    return found
