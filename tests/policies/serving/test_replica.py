"""Which steps are advanced together, until something happens?"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Demand
from policies.memory.step_times import StepTimes
from policies.predictors.predictor import Prediction
from policies.serving.replica import Replica
from tests.policies.allocators.test_odma import odma


def replica(refresh_s: float = 0.0, arrival_s: float = math.inf) -> Replica:
    """Its clock at 10 s; with a pending refresh of the buckets and an arrival at these
    times."""
    allocator = odma(refresh=1, refresh_delay=refresh_s)
    if refresh_s:
        assert allocator.reserve(0, Demand(10, 0, Prediction(50)), 10)
        allocator.release(0)
        allocator.finished(0, 10, 50)
        allocator.clock(0.0)
        assert allocator.due_s == refresh_s
    engine: Any = SimpleNamespace(
        allocator=allocator, connectors=[], admits_arrivals=lambda step: step == "open"
    )
    nothing: Any = None
    found = Replica(engine, SimpleNamespace(pipeline=None), nothing, nothing)
    found.now_s = 10.0
    if arrival_s < math.inf:
        found.arrive([0], [arrival_s])
    return found


def cut(replica: Replica, step: str = "open", until_s: float = math.inf) -> tuple[int, float]:
    """(steps, end) of five steps of 1, 2, 3, 4 and 5 s, at whose begins it is 10, 11, 13, 16 and 20
    s."""
    seconds = np.arange(1.0, 6.0)
    times = StepTimes(0.0, seconds, 0.0, 0.0, 0.0, seconds, seconds)
    anything: Any = step
    return replica.cut(anything, times, until_s)


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [(10.5, (1, 11.0)), (13.0, (2, 13.0)), (13.5, (3, 16.0)), (24.9, (5, 25.0)), (25.0, (5, 25.0))],
)
def test_does_no_step_begin_at_or_after_what_happens_next(
    at_s: float, expected: tuple[int, float]
) -> None:
    assert cut(replica(), until_s=at_s) == expected
    assert cut(replica(refresh_s=at_s)) == expected
    assert cut(replica(arrival_s=at_s)) == expected


def test_does_the_first_of_several_events_cut_the_steps() -> None:
    assert cut(replica()) == (5, 25.0)
    assert cut(replica(refresh_s=12.0, arrival_s=15.0), until_s=18.0) == (2, 13.0)
    assert cut(replica(refresh_s=18.0, arrival_s=12.0), until_s=15.0) == (2, 13.0)
    # an arrival that the step would not admit
    assert cut(replica(refresh_s=18.0, arrival_s=12.0), "full", until_s=15.0) == (3, 16.0)
