"""Does ODMA put each request where its prediction and its uncertainty say?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.odma import OdmaAllocator
from policies.allocators.odma_options import OdmaOptions
from policies.predictors.predictor import Prediction, entropy
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


def test_uncertainty_is_the_entropy_of_buckets() -> None:
    for guess, low, high in ((Prediction(95, 0.3), 0.4, 0.8), (Prediction(150, 0.8), 0.8, 1.0)):
        assert low < entropy(guess, BOUNDS) / np.log(4) < high


def test_a_prediction_goes_no_further_than_what_may_be_generated() -> None:
    def admitted(**changes: Any) -> tuple[int, int]:
        allocator = odma(bounds=[100, 200, 300, 390], **changes)
        slots = reserved(allocator, 0, 650, Prediction(380, 0.3))  # 1000 - 650 = 350 may come
        return slots, allocator.tag(0, Demand(650, 0, Prediction(380, 0.3)))

    assert admitted() == (1000, 4)  # 380 inflated is above 390: the large one, cut at the context
    assert admitted(clip=True) == (1000, 3)


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


def test_new_bounds_touch_only_new_admissions() -> None:
    allocator = odma(refresh=4, window=4)
    before = reserved(allocator, 0, 10, Prediction(30))
    for request, length in enumerate((10, 20, 40, 80), start=1):
        reserved(allocator, request, 10, Prediction(length))
        allocator.release(request)
        allocator.finished(request, 10, length)
    assert allocator.buckets.bounds == (10, 20, 40, 80)
    assert (before, allocator.reserved[0]) == (110, 110)
    assert reserved(allocator, 9, 10, Prediction(30)) == 50


@pytest.mark.parametrize(("generated", "slots"), [(0, 110), (99, 110), (100, 410)])
def test_does_a_request_come_back_large_only_where_its_bucket_has_no_slot_left(
    generated: int, slots: int
) -> None:
    # 10 of prompt, a bucket of 100: the next token is the 110th slot, or the 111th
    allocator = odma()
    assert allocator.reserve(0, Demand(10, generated, Prediction(60)), 10 + generated)
    assert allocator.reserved[0] == slots


def test_partitions_are_pools_of_equal_blocks() -> None:
    # blocks of 250, 500, 750 and 1000 of prompt + output in 1024 slots each, then 2048... of 6144
    layout = KvLayout(0, 6144, 1, 1, 16)
    options = OdmaOptions(align=1, space="partitioned", pool_share=1 / 3, clip=False)
    allocator = Hands(OdmaAllocator(layout, 100, LIMITS, options))
    assert allocator.reach == 2048
    assert reserved(allocator, 0, 10, Prediction(100)) == 250  # needs 110
    assert reserved(allocator, 1, 10, Prediction(300)) == 500  # needs 310
    assert reserved(allocator, 2, 10, Prediction(1000)) == 410  # a large one, as long as it needs
    assert allocator.start[:3].tolist() == [0, 1024, 4096]
    # three more blocks of 250, then the next waits, and others do not
    assert fill(allocator, 10, 10, 100) == 3
    assert allocator.reserve(20, Demand(10, 0, Prediction(300)), 10)


def test_equal_blocks_never_fragment() -> None:
    figures = {}
    for space in ("arena", "partitioned"):
        bounds = [64, 96, 128, 192]
        allocator = odma(space=space, bucket_on="total", pool_share=0.25, bounds=bounds)
        sizes = [60, 90, 120] * 12
        for request, size in enumerate(sizes):
            allocator.reserve(request, Demand(10, 0, Prediction(size - 10)), 10)
        for request in np.flatnonzero(allocator.resident)[::2]:
            allocator.release(int(request))
        figures[space] = allocator.fragmentation
    assert figures["partitioned"] < 0.1 < 0.3 < figures["arena"]


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


@pytest.mark.parametrize(("overflow", "reach"), [(False, 40), (True, 4056)])
def test_a_pool_that_holds_no_large_one_serves_none_unless_it_overflows(
    overflow: bool, reach: int
) -> None:
    allocator = odma(pool_share=0.01, pool_overflow=overflow)
    assert allocator.reach == reach
    assert allocator.reserve(0, Demand(10, 0, Prediction(500)), 10) is overflow


@pytest.mark.parametrize(("bucket_full", "fits", "larger"), [("wait", 2, 0), ("next_larger", 5, 3)])
def test_a_full_bucket_waits_or_takes_a_larger_block(
    bucket_full: str, fits: int, larger: int
) -> None:
    # pools of 768 slots with blocks of 300 (two), 600 (one), 800 and 900 (none), and large ones of
    # 450 in 1024
    allocator = odma(
        bucket_on="total", space="partitioned", bucket_full=bucket_full, bounds=[300, 600, 800, 900]
    )
    assert fill(allocator, 0, 50, 80) == fits
    for request in range(fits):
        allocator.release(request)
        allocator.finished(request, 50, 80)
    assert allocator.report()["larger_share"] == larger / fits


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


def test_levels_choose_whom_the_last_bound_leaves_out() -> None:
    shares = {}
    for levels in ([0.25, 0.5, 0.75, 1.0], [0.2, 0.4, 0.6, 0.8]):
        allocator = odma(refresh=20, window=20, levels=levels)
        for request in range(40):
            live(allocator, request, 10, 10 * (request % 20 + 1), 10 * (request % 20 + 1))
        shares[levels[-1]] = allocator.report()["large_share"]
    assert shares == {1.0: 0, 0.8: 4 / 40}


@pytest.mark.parametrize(
    ("changes", "bounds"),
    [
        ({}, (100, 200, 300, 400)),
        ({"first_bounds": "longest"}, (400, 400, 400, 400)),
        ({"bounds": [10, 30, 90, 270]}, (10, 30, 90, 270)),
    ],
)
def test_first_bounds_hold_until_the_first_refresh(
    changes: dict[str, Any], bounds: tuple[int, ...]
) -> None:
    allocator = odma(refresh=2, window=2, **changes)
    assert allocator.buckets.bounds == bounds
    for request in range(2):
        live(allocator, request, 10, 50, 50)
    assert allocator.buckets.bounds == (50, 50, 50, 50)


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


def test_a_swapped_request_comes_back_with_what_it_had() -> None:
    allocator = odma()
    reserved(allocator, 0, 10, Prediction(50))
    assert allocator.grow(0, 100)
    assert allocator.swap_out(0) == 110
    assert allocator.free_slots == allocator.slots
    assert allocator.swap_in(0)
    assert allocator.stored[0] == 110
    assert allocator.reserved[0] == 410  # it had filled its bucket


def test_the_report_judges_the_prediction_of_the_admission() -> None:
    allocator = odma(gamma=0.0)
    for request, (guess, true) in enumerate([(50, 60), (50, 150), (150, 50), (1000, 390)]):
        reserved(allocator, request, 10, Prediction(guess))
        allocator.release(request)
        allocator.finished(request, 10, true)
    report = allocator.report()
    assert report["bucket_accuracy"] == 0.25  # only the first; 1000 is beyond the last bucket
    assert report["coverage_raw"] == report["coverage_final"] == 0.75
    assert report["large_share"] == 0.25


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
