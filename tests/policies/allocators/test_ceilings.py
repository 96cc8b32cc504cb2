"""Are the ceilings above what they bound?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Caches, Remembers
from policies.allocators.ceiling_options import IdealOptions
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import KvLayout
from policies.predictors.predictor import Prediction
from policies.serving.serving import ServingResult
from tests.policies import small

LAYOUT = KvLayout(base=0, slots=1024, layers=2, kv_heads=2, head_bytes=16)


def ideal() -> IdealAllocator:
    return IdealAllocator(LAYOUT, 20, Limits(128, 512), IdealOptions())


def test_ideal_holds_what_is_stored_and_not_a_slot_more() -> None:
    allocator = ideal()
    for request in range(10):
        assert allocator.reserve(request, Demand(100, 0, Prediction(1.0)), 100)
    assert allocator.free_slots == allocator.largest_hole == 24
    assert allocator.headroom(np.arange(10), 100) == 2
    allocator.advance(np.arange(10), 2)
    assert allocator.headroom(np.arange(10), 100) == 0
    assert allocator.reserved_total == allocator.stored.sum() == 1020


def test_ideal_keeps_every_request_in_one_run_whoever_leaves() -> None:
    allocator = ideal()
    for request in range(5):
        assert allocator.reserve(request, Demand(200, 0, Prediction(1.0)), 200)
    allocator.release(1)
    allocator.release(3)
    assert allocator.reserve(7, Demand(400, 0, Prediction(1.0)), 400)
    starts = [int(allocator.units(request).start[0]) for request in (0, 2, 4, 7)]
    assert starts == [0, 200, 400, 600]
    assert allocator.extents(7, 0, 0).size.tolist() == [400 * LAYOUT.half_bytes]


def test_ideal_finds_again_what_a_preempted_request_had() -> None:
    allocator = ideal()
    demand = Demand(100, 0, Prediction(1.0))
    assert allocator.reserve(0, demand, 100) and allocator.grow(0, 30)
    allocator.release(0)
    assert (
        allocator.able(Caches).cached(0, 130) == 130 and allocator.able(Caches).cached(0, 10) == 10
    )
    allocator.able(Remembers).finished(0, 100, 31)
    assert allocator.able(Caches).cached(0, 130) == 0


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


@pytest.fixture(scope="module")
def served() -> dict[str, ServingResult]:
    """Too much load for the memory, whoever serves it."""
    policies = ("static", "paged", "s3", "oracle", "ideal")
    return {
        name: small.run(1024, small.mixed(300, rate=50_000), policy={"name": name})
        for name in policies
    }


@pytest.mark.parametrize("more", [{}, {"ends": "length"}])
def test_what_is_reserved_whole_lasts_where_steps_are_scheduled_ahead(more: dict[str, str]) -> None:
    """A step too many is stored of each sequence whose end is not foreseen."""
    engine = {"async_scheduling": True, **more}
    both = {"name": "ideal", "reserve": "output", "admit_on": "output"}
    for policy in ({"name": "oracle"}, both):
        found = small.run(1024, small.mixed(30), policy=policy, engine=engine).metrics
        assert (found["preemptions"], found["finished"]) == (0, 30)


def test_oracle_wastes_no_slot_it_reserved(served: dict[str, ServingResult]) -> None:
    metrics = served["oracle"].metrics
    assert metrics["preemptions"] == 0 and metrics["utilization"] == 1
    assert metrics["external_fragmentation"] > 0


def test_ideal_holds_most_tokens_and_serves_most(served: dict[str, ServingResult]) -> None:
    share = {name: result.metrics["kv_stored_share"] for name, result in served.items()}
    speed = {name: result.metrics["output_tokens_per_s"] for name, result in served.items()}
    assert max(share, key=lambda name: share[name]) == "ideal"
    assert max(speed, key=lambda name: speed[name]) == "ideal"
    assert speed["static"] < speed["oracle"] < speed["ideal"]
