"""Are the ceilings above what they bound?"""

from __future__ import annotations

import numpy as np

from tests.policies import small


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
