"""Does `s3` class, reserve, outgrow and account as S3 does?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.s3 import S3Allocator, S3Options
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Hands

LAYOUT = KvLayout(base=0, slots=4096, layers=2, kv_heads=2, head_bytes=16)
LIMITS = Limits(max_tokens=1000, max_model_len=1500)


def s3(**options: Any) -> Any:
    return Hands(S3Allocator(LAYOUT, 100, LIMITS, S3Options.model_validate(options)))


def guess(length: float, generated: int = 0) -> Demand:
    return Demand(100, generated, Prediction(length))


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({"lengths": [40, 10, 30, 401]}, (101, 201, 301, 401)),
        ({"lengths": [40, 10, 30, 401], "bounds": "quantiles"}, (10, 30, 40, 401)),
    ],
)
def test_the_histogram_is_given(options: dict[str, Any], bounds: tuple[int, ...]) -> None:
    assert s3(buckets=4, **options).bounds == bounds


def test_the_histogram_is_the_first_lengths_and_then_stands() -> None:
    allocator = s3(buckets=2, profile=3, bounds="quantiles")
    seen = []
    for request, output in enumerate([10, 30, 50, 900, 900]):
        assert allocator.reserve(request, guess(10.0), 100)
        allocator.release(request)
        allocator.finished(request, 100, output)
        seen.append(allocator.bounds)
    assert seen == [(500, 1000), (500, 1000), (30, 50), (30, 50), (30, 50)]


@pytest.mark.parametrize(("length", "slots"), [(1.0, 200), (100.0, 200), (100.5, 300), (5e3, 1100)])
def test_reserves_the_smallest_class_that_covers_the_prediction(length: float, slots: int) -> None:
    allocator = s3()
    assert allocator.reserve(0, guess(length), 100)
    assert allocator.reserved[0] == slots
    assert allocator.tag(0, guess(length)) == min((slots - 200) // 100, 9) + (length > 1000)


@pytest.mark.parametrize(
    ("outgrown", "slots"), [("next", [300, 400, 500]), ("double", [300, 500, 900])]
)
def test_who_outgrows_his_class_gets_the_next_one(outgrown: str, slots: list[int]) -> None:
    allocator = s3(outgrown=outgrown)
    generated, seen = 0, []
    for _ in range(3):
        assert allocator.reserve(0, guess(150.0, generated), 100 + generated)
        seen.append(int(allocator.reserved[0]))
        assert allocator.grow(0, seen[-1] - 100 - generated)
        assert not allocator.grow(0, 1)
        generated = seen[-1] - 100 + 1  # the last token is not stored
        allocator.release(0)
    assert seen == slots
    allocator.finished(0, 100, generated)
    assert allocator.report()["reservations_again"] == 2
    assert allocator.report()["coverage_final"] == 0


def test_accuracy_and_coverage_are_told_apart() -> None:
    """A class too high is covered and wrong."""
    allocator = s3()
    for request, (length, output) in enumerate([(50.0, 60), (250.0, 60), (50.0, 160), (50.0, 101)]):
        assert allocator.reserve(request, guess(length), 100)
        allocator.release(request)
        allocator.finished(request, 100, output)
    report = allocator.report()
    assert report["bucket_accuracy"] == 1 / 4
    assert report["coverage_raw"] == 3 / 4  # of 101 tokens the last is never stored
    assert report["migration_rate"] == 1 / 4
