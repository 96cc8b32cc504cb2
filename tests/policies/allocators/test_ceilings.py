"""Are the ceilings above what they bound?"""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.ceiling_options import IdealOptions
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import KvLayout
from policies.predictors.predictor import Prediction
from tests.policies import small

LAYOUT = KvLayout(base=0, slots=1024, layers=2, kv_heads=2, head_bytes=16)


def test_who_reserves_ahead_completes_its_reservation_before_the_next_is_admitted() -> None:
    options = IdealOptions(reserve="output")
    allocator = IdealAllocator(LAYOUT, 4, Limits(900, 1024), options)
    demand = Demand(100, 0, Prediction(1.0), output=501)
    assert allocator.reserve(0, demand, 100) and allocator.reserve(1, demand, 100)
    assert allocator.reserved.tolist() == [600, 424, 0, 0] and allocator.free_slots == 0
    assert not allocator.reserve(2, demand._replace(prompt=1), 1)
    assert allocator.grow(1, 324) and not allocator.grow(1, 1)
    allocator.release(0)
    assert allocator.reserved.tolist() == [0, 600, 0, 0] and allocator.grow(1, 1)


def test_without_either_of_its_costs_oracle_is_ideal() -> None:
    """Both costs: runs of exact lengths whose holes cost nothing. Each alone serves more."""
    stream = small.mixed(300, rate=50_000)
    both = {"name": "ideal", "reserve": "output", "admit_on": "output"}
    policies = ({"name": "oracle", "compaction": "free"}, both, {**both, "admit_on": "input"},
                {**both, "reserve": "stored"}, {"name": "ideal"})  # fmt: skip
    oracle, same, ahead, waiting, ideal = (small.run(1024, stream, policy=p) for p in policies)
    assert np.array_equal(oracle.finish_s, same.finish_s)
    assert np.all(np.diff(ahead.first_token_s) >= 0)  # in order of arrival
    speed = [each.metrics["output_tokens_per_s"] for each in (same, ahead, ideal)]
    assert speed == sorted(speed) and waiting.metrics["output_tokens_per_s"] > speed[0]
    assert ahead.metrics["kv_slots"]["binding"]["free"] == 0
