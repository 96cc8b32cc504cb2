"""Does ODMA put each request where its prediction and its uncertainty say?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.odma import OdmaAllocator
from policies.allocators.odma_options import OdmaOptions
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Hands
from tests.policies.allocators.test_allocator_contract import EXAMPLES
from tests.policies.allocators.test_allocator_contract import run as keep_contract

LAYOUT = KvLayout(0, 4096, 1, 1, 16)
LIMITS = Limits(max_tokens=400, max_model_len=1000)
BOUNDS = [100, 200, 300, 400]
"""The first bounds of the output."""


def odma(**changes: Any) -> Any:
    """With the levels and the space of which figures are easily worked out by hand."""
    plain = {"align": 1, "balance": "requests", "clip": False}
    if "space" not in changes:
        plain["space"] = "arena"
    return Hands(OdmaAllocator(LAYOUT, 3000, LIMITS, OdmaOptions(**{**plain, **changes})))


def reserved(allocator: OdmaAllocator, request: int, prompt: int, guess: Prediction) -> int:
    assert allocator.reserve(request, Demand(prompt, 0, guess), prompt)
    return int(allocator.reserved[request])


def live(allocator: OdmaAllocator, request: int, prompt: int, guess: float, true: int) -> None:
    """A whole life, with a move where the place is too small."""
    assert allocator.reserve(request, Demand(prompt, 0, Prediction(guess)), prompt)
    while not allocator.grow(request, prompt + true - 1 - int(allocator.stored[request])):
        assert allocator.grow(request, int(allocator.headroom(np.array([request]), 10_000)))
        assert allocator.migrate(request)
        allocator.settle()
    allocator.release(request)
    allocator.finished(request, prompt, true)


def fill(allocator: OdmaAllocator, first: int, prompt: int, guess: float) -> int:
    """Admit requests alike until one is refused; how many."""
    count = 0
    while allocator.reserve(first + count, Demand(prompt, 0, Prediction(guess)), prompt):
        count += 1
    return count


TOTAL = {"bucket_on": "total"}
"""Bounds 250, 500, 750, 1000 of prompt and output."""


@pytest.mark.parametrize(
    ("changes", "prompt", "length", "spread", "slots"),
    [
        # the smallest covering bucket of 100, 200, 300, 400 follows the prompt
        ({}, 50, 1, 0.0, 150), ({}, 50, 100, 0.0, 150), ({}, 50, 101, 0.0, 250),
        ({}, 50, 300, 0.0, 350), ({}, 50, 301, 0.0, 450), ({}, 50, 401, 0.0, 450),
        (TOTAL, 200, 50, 0.0, 250), (TOTAL, 200, 51, 0.0, 500),
        # uncertainty inflates: u = 0.5, and 95 (1 + 0.2 u) is above 100
        ({}, 10, 95, 0.3, 210), ({"gamma": 0.0}, 10, 95, 0.3, 110),
        ({"uncertainty": "entropy_nats"}, 10, 95, 0.3, 210),  # u = 0.7
        ({"uncertainty": "entropy_nats", "tau": 0.6}, 10, 95, 0.3, 410),
        ({"uncertainty": "spread"}, 10, 95, 0.3, 210),  # u = 0.3: 95 x 1.06 = 100.7
        ({"uncertainty": "spread", "gamma": 0.1}, 10, 95, 0.3, 110),
        ({"uncertainty": "constant"}, 10, 95, 0.3, 210),  # u = 0.5
        ({"uncertainty": "constant", "constant": 0.1}, 10, 95, 0.3, 110),
        ({"uncertainty": "constant", "constant": 0.9}, 10, 95, 0.3, 410),
        # and beyond tau, here u = 0.9, the large reservation is taken
        ({}, 10, 150, 0.8, 410), ({"tau": 1.0, "gamma": 0.0}, 10, 150, 0.8, 210),
        ({"large": "max_model_len"}, 10, 150, 0.8, 1000),
        # a bucket that its pool can never hold is large: 4 x 256 slots have one block, of 250
        ({"space": "partitioned", "pool_share": 0.75}, 10, 300, 0.0, 410),
        ({"clip": True}, 10, 1000, 0.0, 410),
    ],
)  # fmt: skip
def test_how_many_slots_does_an_admission_reserve(
    changes: dict[str, Any], prompt: int, length: float, spread: float, slots: int
) -> None:
    assert reserved(odma(**changes), 0, prompt, Prediction(length, spread)) == slots


def test_profiled_lengths_set_the_first_bounds_and_the_pools() -> None:
    prompt, output = np.full(8, 10), np.array([10, 20, 30, 40, 50, 60, 70, 400])
    allocator = odma()
    allocator.profile(prompt, output)
    assert allocator.bounds == (20, 40, 60, 400)
    assert allocator.report()["bucket_refreshes"] == 0
    pools = odma(space="partitioned", bucket_on="total", pool_share=0.5)
    pools.profile(prompt, output)
    assert pools.bounds == (30, 50, 70, 410)
    assert fill(pools, 0, 10, 20) == 17  # 512 slots in blocks of 30
    kept = odma(first_bounds="even")
    kept.profile(prompt, output)
    assert kept.bounds == tuple(BOUNDS)


@pytest.mark.parametrize(
    ("balance", "bounds"),
    [
        ("requests", (20, 40, 60, 80)),
        ("residents", (40, 60, 70, 80)),  # 360 token-steps: 90, 180, 270
        ("slots", (50, 70, 80, 80)),  # of 20,400: 5,500, 14,000 and all up to these
    ],
)
def test_what_buckets_have_equally_much_of_sets_the_bounds(
    balance: str, bounds: tuple[int, ...]
) -> None:
    allocator = odma(balance=balance)
    allocator.profile(np.full(8, 10), np.arange(10, 90, 10))
    assert allocator.bounds == bounds


@pytest.mark.parametrize(
    ("repartition", "fits", "stranded"),
    [
        ("never", 1, 12 + 12 + 512 + 512),
        ("when_empty", 15, 4 * 12),
        ("on_refresh", 17, 62 + 3 * 12),
    ],
)
def test_repartition_decides_what_is_stranded_when_bounds_move(
    repartition: str, fits: int, stranded: int
) -> None:
    # four pools of 512 slots with blocks of 250, 500, 750 (none fits) and 1000 (none), of which one
    # in the first is taken; then everybody turns out to be 100 long
    allocator = odma(
        bucket_on="total", space="partitioned", repartition=repartition, pool_share=0.5,
        refresh=4, window=4,
    )  # fmt: skip
    reserved(allocator, 0, 50, Prediction(50))
    for request in range(1, 5):
        live(allocator, request, 50, 50, 50)
    assert allocator.buckets.bounds == (100, 100, 100, 100)
    assert allocator.fragmentation == pytest.approx(stranded / allocator.free_slots)
    assert fill(allocator, 10, 50, 50) == fits


POOLS: dict[str, Any] = {"space": "partitioned", "bucket_on": "total"}
SPLIT: dict[str, Any] = {**POOLS, "pool_share": 0.25, "bounds": [150, 300, 450, 600]}
FEW: dict[str, Any] = {**POOLS, "pool_share": 0.11, "bounds": [100, 200, 300, 450]}
OVERFLOW: dict[str, Any] = {"pool_share": 0.2, "pool_overflow": True}


@pytest.mark.parametrize(
    ("changes", "prompt", "guess", "fits"),
    [
        # 3072 slots, evenly or as 1 : 2 : 3 : 4, for blocks of 150 and more
        ({**SPLIT, "pool_split": "slots"}, 50, 80, 5),
        ({**SPLIT, "pool_split": "blocks"}, 50, 80, 2),
        # a share moves room to large ones, 401 slots each of 820 or 2458, from those of 150
        ({"pool_share": 0.2}, 1, 500, 2), ({"pool_share": 0.6}, 1, 500, 6),
        ({"pool_share": 0.2}, 50, 100, 21), ({"pool_share": 0.6}, 50, 100, 10),
        # beyond their pool eight large ones lie in the 3276 before it; the pool is theirs alone
        (OVERFLOW, 1, 500, 10), ({**OVERFLOW, "compaction": "copied"}, 1, 500, 10),
        (OVERFLOW, 50, 100, 21),
        # a pool of one large one, and 911 slots a pool: two blocks of 450 cover others
        (FEW, 1, 500, 1), ({**FEW, "pool_overflow": True}, 1, 500, 3),
    ],
)  # fmt: skip
def test_how_many_fit_beside_one_another(
    changes: dict[str, Any], prompt: int, guess: float, fits: int
) -> None:
    assert fill(odma(**changes), 0, prompt, guess) == fits


def test_a_full_large_pool_preempts_or_moves_to_the_next_bucket() -> None:
    moved = {}
    for choice in ("preempt", "preempt_last", "next_larger"):
        allocator = odma(pool_share=0.15, large_full=choice)  # 614 slots: one large of 410
        reserved(allocator, 0, 10, Prediction(500))
        reserved(allocator, 1, 10, Prediction(50))
        assert allocator.grow(1, 100) and not allocator.grow(1, 1)
        moved[choice] = (allocator.migrate(1), allocator.preempts)
    assert moved["preempt"] == (None, "itself")
    assert moved["preempt_last"] == (None, "last")
    migration, victim = moved["next_larger"]
    assert migration and (migration.tokens, migration.left, victim) == (110, 110, "itself")
    assert allocator.reserved[1] == 210


def test_a_late_refresh_costs_coverage() -> None:
    # outputs are 100 long, and 120 from the 15th request on, which the predictor never learns
    coverage = []
    for delay_s in (0.0, 5.0, 20.0):
        allocator = odma(refresh=10, window=10, refresh_delay=delay_s, gamma=0.0)
        for request in range(40):
            allocator.clock(float(request))
            live(allocator, request, 10, 100, 100 if request < 15 else 120)
        coverage.append(allocator.report()["coverage_final"])
    # the 20th length brings quartiles of 100, 100, 120, 120, the 30th those that serve: too small
    # are the bounds for requests 15 to 29, and for as many more as end within the delay
    assert coverage == [25 / 40, 20 / 40, 15 / 40]


def test_requests_of_one_bucket_have_one_tag() -> None:
    allocator = odma()
    guesses = (50, 99, 150, 399, 999)
    tags = [allocator.tag(i, Demand(10, 0, Prediction(n))) for i, n in enumerate(guesses)]
    assert tags == [0, 0, 1, 3, 4]
    reserved(allocator, 0, 10, Prediction(50))
    assert allocator.grow(0, 100) and allocator.migrate(0)
    assert allocator.tag(0, Demand(10, 0, Prediction(50))) == 4  # it is a large one now


def test_a_move_is_judged_once_and_all_its_places_count() -> None:
    allocator = odma(gamma=0.0, refresh=0)
    for request in range(1000):  # half of them outgrow 110 slots and move to 410
        live(allocator, request, 10, 50, 150 if request % 2 else 100)
    report = allocator.report()
    assert report["migration_rate"] == report["moves_per_request"] == 0.5
    row = report["over_time"][0]
    assert (row["coverage_final"], row["migration_rate"]) == (0.5, 0.5)
    assert row["utilization"] == (110 + 160) / (110 + 110 + 410)
    assert (row["output_tokens"], row["bounds"]) == (500 * 250, BOUNDS)
    allocator.clock(77.0)
    allocator.clock(78.0)
    assert row["until_s"] == 77.0


MOVING: dict[str, Any] = {"space": "partitioned", "repartition": "on_refresh"}


@pytest.mark.parametrize(
    "changes",
    [
        {**MOVING, "repartition": "never", "bucket_full": "next_larger"},
        {**MOVING, "repartition": "when_empty", "large_full": "next_larger"},
        {**MOVING, "bucket_full": "next_larger", "pool_split": "blocks", "bucket_on": "total"},
        {**MOVING, "refresh_delay": 5.0, "large": "max_model_len"},
        {**MOVING, "pool_overflow": True, "large_full": "next_larger"},
        {"borrow": 1.0}, {"borrow": 8.0},
        {"align": 1, "pool_share": 0.3, "large_full": "preempt"},
        {"align": 1, "pool_share": 0.3, "large_full": "next_larger", "pool_overflow": True},
    ],
)  # fmt: skip
def test_bounds_that_change_often_keep_the_contract(changes: dict[str, Any]) -> None:
    options = {"refresh": 3, "window": 5, "align": 8, **changes}
    keep_contract(OdmaOptions(**options), EXAMPLES // 2)
