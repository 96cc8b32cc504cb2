"""Run directories made by hand, whose figures tests can work out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.analyse.figures import LIMITS, THROUGHPUT
from sweeps.plan.experiment import Task
from sweeps.run import rehearsal, sweep_run
from sweeps.run.store import RunDirectory

RESULTS = Path(__file__).resolve().parent / "yaml"
"""Sweeps that tests alone run."""
CONFIG: dict[str, Any] = {
    "kind": "sweep",
    "name": "made",
    "summary": "made by hand <&>",
    "base": {"replications": 3, "warmup_requests": 20},
    "axes": {"device": ["card", "/a/b/other.yaml"], "serving.policy": ["paged", {"name": "odma"}]},
    "variants": {"analytic": {"set": {"serving.memory.fidelity": "analytic"}, "role": "control"}},
    "compare": "serving.policy",
}
PROVENANCE: dict[str, Any] = {
    "version": "0.1.0", "commit": "abc", "dirty": True, "seeds": [[1, 3]],
    "assumed": {"card": {"dma.window": "16384"}},
    "inputs": {"sweep": {"name": "made"}, "devices": {"card": "f" * 64}},
    "libraries": {"numpy": "2"},
}  # fmt: skip


def measuring(patch: pytest.MonkeyPatch, measure: Callable[[Task], dict[str, Any]]) -> None:
    """Nothing is simulated: results of runs are what this says."""
    for room in (sweep_run, rehearsal):
        patch.setattr(room, "measure", measure)


def results(path: Path) -> list[dict[str, Any]]:
    """Of a run, without wall times."""
    walls = ("wall_s", "walls")
    records = RunDirectory(path).records()
    return [{key: value for key, value in r.items() if key not in walls} for r in records]


def metrics(rate: float, **changes: Any) -> dict[str, Any]:
    found = {
        THROUGHPUT: rate, "ttft_s": {"p50": 1.25, "p99": 2.5}, "tpot_s": {"mean": 0.05},
        "utilization": 0.875, "finished": 50, "preemptions": 12, "migrations": 3, "kv_gbps": 111.1,
        "memory": {"phases": {"attention": {
            "row_hit_rate": 0.5, "by_extent": [[16384, 250.0], [32768, 260.5]],
            "banks": {"row_hits": 0.5, "row_misses": 0.1, "row_conflicts": 0.4,
                      "activations_per_kib": 8.0, "open_share": 0.9},
        }}},
        "energy": {"mj_per_token": 3.0, "confidence": "D",
                   "parts_mj_per_token": {"read": 2.0, "refresh": 1.0}},
        "phase_share": {"weights": 0.6, "prefill": 0.4}, "compute_share": 0.2,
        LIMITS: {"kv_memory": 0.75, "offered_load": 0.25},
        "quantiles": {name: [0.01 * rate + 0.1 * i for i in range(101)]
                      for name in ("ttft_s", "tpot_s", "latency_s")},
        "over_time": {
            "warm_s": 2.0, "width_s": 1.0,
            "running": [3, 4, None, 5], "reserved": [0.5, 1, None, 1],
            "utilization": [0.5, 0.6, None, 0.7], "external_fragmentation": [0, 0.1, None, 0.2],
        },
        "policy": {"over_time": [
            {"bounds": [16, 64], "lengths": [8, 12, 20, 40, 60]},
            {"bounds": [32, 64], "lengths": [10, 20, 30, 45, 62]},
        ]},
    }  # fmt: skip
    return found | changes


def made(
    path: Path, odma: float = 130, skip: int = 0, seed: int = 1, config: dict[str, Any] = CONFIG,
    **changes: Any,
) -> Path:  # fmt: skip
    """A run directory of 2 devices x 2 policies x (main, analytic) x 3 replications."""
    run = RunDirectory(path)
    run.create(config, PROVENANCE, {})
    index = 0
    for control in ("", "analytic"):
        for device in CONFIG["axes"]["device"]:
            for policy, rate in (("paged", 100.0), ({"name": "odma"}, odma)):
                for replication in (1, 2, 3):
                    record = {
                        "point": index, "control": control, "replication": replication,
                        "overrides": {"device": device, "serving.policy": policy},
                        "rate_per_s": 1.0, "seed": [seed, replication],
                        "metrics": metrics(rate * (1 + replication / 100), **changes),
                    }  # fmt: skip
                    if index >= skip:
                        run.append(record)
                index += 1
    run.release()
    return path
