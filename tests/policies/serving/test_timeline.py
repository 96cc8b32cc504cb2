"""Do the bins of a run hold what happened in them, however the run is cut?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.serving.stretch_rows import Stretches
from policies.serving.timeline import MOST_BINS, Timeline
from tests.policies.small import mixed, run


def add(timeline: Timeline, begin_s: float, steps: int, seconds: float, **changes: float) -> None:
    """Adds equal steps to a timeline, with other values of the columns of `Stretches`."""
    times = np.full(steps, seconds)
    told = dict.fromkeys(Stretches._fields, 0.0) | {
        "begin_s": begin_s, "seconds": times.sum(), "steps": steps,
        "steps_s": float(np.arange(steps) @ times), "running": 2, "stored": 50, "reserved": 100,
        "reserved_last": 100, "free_outside": 0.25, "tokens_first": 2, "tokens": 2,
    } | changes  # fmt: skip
    timeline.add(Stretches(*(np.array([told[name]]) for name in Stretches._fields)), times)


def test_a_stretch_within_a_bin_by_hand() -> None:
    timeline = Timeline()
    add(timeline, 0.0, 4, 1e-4, tokens_first=3, grown=10)
    found = timeline.figures(200)
    assert found["width_s"] == 2**-10
    # stored 50, 60, 70, 80 of 200 slots, 100 reserved; 3 + 2 + 2 + 2 tokens in 0.4 ms
    assert found["stored"] == [pytest.approx(65 / 200)]
    assert found["reserved"] == [0.5] and found["utilization"] == [pytest.approx(0.65)]
    assert found["output_tokens_per_s"] == [pytest.approx(9 / 4e-4)]
    assert (found["running"], found["external_fragmentation"]) == ([2], [0.25])


def test_steps_belong_to_the_bin_they_begin_in() -> None:
    timeline = Timeline()
    add(timeline, 0.0, 4, 2.0**-11, reserved_last=103, stored=10)  # two steps a bin
    found = timeline.figures(100)
    assert found["reserved"] == [pytest.approx(1.005), pytest.approx(1.025)]
    add(timeline, 2.0**-8, 1, 2.0**-12)
    assert timeline.figures(100)["running"] == [2, 2, None, None, 2]


def test_bins_widen_and_nothing_is_lost() -> None:
    timeline = Timeline()
    now, tokens = 0.0, 0
    for steps in (1, 7, 500, 3, 9000):
        add(timeline, now, steps, 0.01)
        now, tokens = now + steps * 0.01, tokens + 2 * steps
    found = timeline.figures(100)
    assert MOST_BINS / 2 <= len(found["running"]) <= MOST_BINS
    assert found["width_s"] * len(found["running"]) == pytest.approx(now, rel=0.05)
    assert set(found["running"]) == {2}
    assert set(found["output_tokens_per_s"]) == {200}


def test_rows_of_a_policy_with_buckets_tell_the_lengths() -> None:
    metrics = run(
        4096, mixed(1200), policy={"name": "odma"}, engine={"max_model_len": 1024}
    ).metrics
    (row,) = metrics["policy"]["over_time"]
    assert row["lengths"] == sorted(row["lengths"]) and len(row["lengths"]) == 5
    outputs = mixed(1200).output_tokens
    assert row["lengths"][2] == pytest.approx(np.median(outputs), rel=0.2)
