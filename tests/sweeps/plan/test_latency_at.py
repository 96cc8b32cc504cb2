"""Are latencies above capacity left out, and those of the second pass measured below it?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import BACKLOG, OVERLOADED
from sweeps.plan.experiment import Task, measure
from sweeps.plan.sweep import load_sweep

SLO = "slo={ttft: 10s, tpot: 1s, attainment: 0.9}"


def metrics(rate: float, *sets: str) -> dict[str, Any]:
    point = load_sweep("smoke", ["requests=300", *sets]).points[0]
    found: dict[str, Any] = measure(Task(point.experiment, 1, rate))
    return found


def test_a_second_pass_is_at_the_share_of_the_rate_at_saturation() -> None:
    above = metrics(1e3, "latency_at=0.5", SLO)
    assert above[BACKLOG] > OVERLOADED
    below = above["at_share"]
    assert below[BACKLOG] < OVERLOADED and below["share"] == 0.5
    assert below["ttft_s"]["p50"] < above["ttft_s"]["p50"]
    assert 0 < below["goodput_per_s"] <= below["rate_per_s"] < 1e3
    assert {k: v for k, v in above.items() if k != "at_share"} == metrics(1e3, SLO)


def test_mistakes_are_refused() -> None:
    with pytest.raises(DescriptionError, match="have a rate"):
        metrics(1e3, "latency_at=0.5", "load=null", "arrivals={process: all_at_once}")
    with pytest.raises(DescriptionError, match="goodput is below capacity"):
        metrics(1.0, "latency_at=0.5", "load={goodput: {ttft: 1s, tpot: 1s}}")
