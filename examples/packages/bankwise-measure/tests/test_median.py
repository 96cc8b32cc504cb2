"""Is the interval of a median as likely to hold it as it says?"""

from __future__ import annotations

import numpy as np
import pytest
from bankwise_measure.median import coverage, median


def test_the_median_is_the_middle_or_between_the_two() -> None:
    assert median([3.0, 1.0, 2.0]).value == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]).value == 2.5


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (12, 2, 9)]
)
def test_the_interval_is_the_narrowest_pair_that_covers(count: int, low: int, high: int) -> None:
    found = median([float(i) for i in range(count)])
    assert (found.low, found.high, found.count) == (low, high, count)


def test_coverage_is_that_of_drawn_values() -> None:
    drawn = np.sort(np.random.default_rng(1).normal(size=(20_000, 12)), axis=1)
    held = ((drawn[:, 2] < 0) & (drawn[:, 9] > 0)).mean()
    assert held == pytest.approx(coverage(12, 2), abs=0.005)


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])
