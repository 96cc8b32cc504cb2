"""Does ODMA put each request where its prediction and its uncertainty say?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.allocator import Demand, Limits
from policies.kv_layout import KvLayout
from policies.odma import OdmaAllocator, OdmaOptions
from policies.predictor import Prediction

LAYOUT = KvLayout(0, 4096, 1, 1, 16)
LIMITS = Limits(max_tokens=400, max_model_len=1000)


def odma(**changes: Any) -> OdmaAllocator:
    return OdmaAllocator(LAYOUT, 3000, LIMITS, OdmaOptions(**{"align": 1, **changes}))


def reserved(allocator: OdmaAllocator, request: int, prompt: int, guess: Prediction) -> int:
    assert allocator.reserve(request, Demand(prompt, 0, guess), prompt)
    return int(allocator.reserved[request])


@pytest.mark.parametrize(
    ("length", "slots"), [(1, 150), (100, 150), (101, 250), (300, 350), (301, 450), (401, 450)]
)
def test_the_smallest_covering_bucket_follows_the_prompt(length: float, slots: int) -> None:
    # bounds 100, 200, 300, 400 of the output
    assert reserved(odma(), 0, 50, Prediction(length)) == slots


def test_total_buckets_bound_the_prompt_too() -> None:
    # bounds 250, 500, 750, 1000 of prompt + output
    allocator = odma(bucket_on="total")
    assert reserved(allocator, 0, 200, Prediction(50)) == 250
    assert reserved(allocator, 1, 200, Prediction(51)) == 500


def test_inflation_lifts_a_length_over_its_bound() -> None:
    guess = Prediction(95, 0.3)
    unsure = guess.uncertainty([100, 200, 300, 400])
    assert 0.4 < unsure < 0.8
    assert 95 * (1 + 0.2 * unsure) > 100
    assert reserved(odma(), 0, 10, guess) == 210
    assert reserved(odma(gamma=0.0), 0, 10, guess) == 110


def test_an_unsure_prediction_gets_the_large_reservation() -> None:
    guess = Prediction(150, 0.8)
    assert guess.uncertainty([100, 200, 300, 400]) > 0.8
    assert reserved(odma(), 0, 10, guess) == 410
    assert reserved(odma(tau=1.0, gamma=0.0), 0, 10, guess) == 210
    assert reserved(odma(large="max_model_len"), 0, 10, guess) == 1000


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


def test_a_request_that_filled_its_bucket_comes_back_large() -> None:
    allocator = odma()
    again = Demand(10, 100, Prediction(60))
    assert allocator.reserve(0, again, 110)
    assert allocator.reserved[0] == 410


def test_partitions_are_regions_of_their_own() -> None:
    allocator = odma(pool="partitioned", pool_share=0.5)  # 4 x 512 slots, then 2048
    assert allocator.reach == 2048
    starts = []
    for request, length in enumerate((100, 200, 300, 400, 1000)):
        reserved(allocator, request, 10, Prediction(length))
        starts.append(int(allocator.start[request]))
    assert starts == [0, 512, 1024, 1536, 2048]
    # the third bucket's region of 512 holds one reservation of 310: the next waits, others do not
    assert not allocator.reserve(7, Demand(10, 0, Prediction(300)), 10)
    assert allocator.reserve(8, Demand(10, 0, Prediction(100)), 10)


def test_a_bucket_its_region_can_never_hold_is_large() -> None:
    allocator = odma(pool="partitioned", pool_share=0.75)  # 4 x 256 slots
    reserved(allocator, 0, 10, Prediction(300))
    assert allocator.start[0] == 1024 and allocator.reserved[0] == 410


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
