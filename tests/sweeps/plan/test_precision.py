"""Does `precision` choose what gives an interval of that width, and only what is not given?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sweeps.analyse.statistics import interval
from sweeps.plan.precision import (
    MOST,
    PROBES,
    REQUESTS,
    SAMPLING,
    SPREAD,
    probes_for,
    replications_for,
)
from sweeps.plan.sweep import load_sweep


def _sweep(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "sweep", "name": "wanted", "summary": "", "precision": "4%",
        "base": {
            "device": "mlu370-x4", "model": "llama-3.2-1b", "workload": "sharegpt",
            "serving": {"memory": {"fidelity": "sampled"}}, "load": {"relative": 1.5, "of": "best"},
            "requests": 1000,
        },
        "axes": {"serving.policy": ["static", "paged"]}, "compare": "serving.policy", **changes,
    }  # fmt: skip


def _chosen(*overrides: str, **changes: Any) -> tuple[int, int, int]:
    sweep = load_sweep(_sweep(**changes), overrides)
    assert "precision" not in sweep.config
    (chosen,) = {(
        each.experiment.replications, each.experiment.serving.memory.probe_bytes,
        each.experiment.serving.memory.max_probes,
    ) for each in sweep.points}  # fmt: skip
    assert sweep.config["base"]["replications"] == chosen[0]
    return chosen


@pytest.mark.parametrize("half", [0.02, 0.04, 0.1])
def test_have_so_many_replications_an_interval_of_that_width(half: float) -> None:
    rng = np.random.default_rng(5)
    count = replications_for(half, REQUESTS)
    drawn = rng.normal(0.0, SPREAD, (2000, count))
    halves = [interval(each).half for each in drawn]
    assert 0.75 * half < np.mean(halves) <= half
    if count > 3:
        fewer = [interval(each[:-1]).half for each in drawn]
        assert np.mean(fewer) > np.mean(halves)
    covered = np.mean([abs(each.mean()) <= one for each, one in zip(drawn, halves, strict=True)])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_are_fewer_requests_repeated_more_often() -> None:
    counts = [replications_for(0.04, requests) for requests in (250, 500, 1000, 4000)]
    assert counts == sorted(counts, reverse=True) and counts[0] > 3 * counts[-1] / 2
    with pytest.raises(ValueError, match=f"more than {MOST} replications: expected .* requests:"):
        replications_for(0.01, 100)


def test_leaves_sampling_an_error_that_adds_little() -> None:
    assert math.hypot(1, SAMPLING) < 1.04
    for error, size, many in PROBES:
        assert probes_for(error / SAMPLING) == (size, many)
    assert probes_for(0.99 * PROBES[-1][0] / SAMPLING) is None
    assert [error for error, _, _ in PROBES] == sorted((e for e, _, _ in PROBES), reverse=True)


def test_chooses_what_is_not_given() -> None:
    assert _chosen() == (6, 2 << 20, 6)
    assert _chosen("precision=10%") == (3, 1 << 20, 4)
    assert _chosen("replications=2") == (2, 2 << 20, 6)
    assert _chosen("serving.memory.max_probes=3") == (6, 2 << 20, 3)
    assert _chosen("fidelity=analytic") == (6, 2 << 20, 6)
    assert _chosen("fidelity=analytic", "precision=4%") == (6, 6 << 20, 100)


def test_is_what_a_file_wants_of_its_own_requests() -> None:
    assert _chosen("requests=50") == (6, 2 << 20, 6)
    assert _chosen("requests=500", "precision=4%")[0] > 6
