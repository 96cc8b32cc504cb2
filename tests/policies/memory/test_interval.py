"""Does an interval cover the mean as often as it says, where values were taken until they lay close
together?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.student import t_quantile
from policies.memory.interval import confidence_interval, ratio_interval, stopped

PRECISION, DRAWS = 0.02, 6000


def covered(deviation: float, most: int) -> tuple[float, float]:
    """Shares of drawn means, each of 2 to `most` normal values around 1 until Student's interval is
    within PRECISION, in which that interval and the one that is stated cover 1."""
    rng, count = np.random.default_rng(1), np.arange(2, most + 1)
    drawn = rng.normal(1.0, deviation, (DRAWS, most))
    mean = np.cumsum(drawn, 1)[:, 1:] / count
    spread = np.sqrt(np.maximum(np.cumsum(drawn**2, 1)[:, 1:] / count - mean**2, 0.0))
    halves = [t_quantile(int(n) - 1) / np.sqrt(n - 1) for n in count] * spread
    narrow = halves <= PRECISION * mean
    narrow[:, -1] = True
    at = narrow.argmax(1)
    off, half = np.abs(mean - 1)[np.arange(DRAWS), at], halves[np.arange(DRAWS), at]
    wide = half * np.array([stopped(1.0, int(n)) for n in count])[at]
    return float((off <= half).mean()), float((off <= wide).mean())


@pytest.mark.parametrize("most", [32, 100])
@pytest.mark.parametrize("deviation", [0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.1])
def test_a_stopped_interval_covers_in_95_percent_of_cases(deviation: float, most: int) -> None:
    assert covered(deviation, most)[1] >= 0.945  # 0.003 is a deviation of what is counted


def test_students_interval_does_not_where_one_stops_at_it() -> None:
    assert covered(0.04, 32)[0] < 0.90


def test_a_stopped_interval_is_students_at_another_level() -> None:
    mean, half = confidence_interval([0.9, 1.0, 1.1, 1.2])
    assert half is not None
    assert stopped(half, 4) / half == pytest.approx(t_quantile(3, 0.985) / t_quantile(3))
    assert mean == pytest.approx(1.05)


def test_a_share_of_times_is_that_of_all_of_them_together() -> None:
    assert ratio_interval([1.0, 3.0], [2.0, 14.0])[0] == 4 / 16
    assert ratio_interval([], []) == (0.0, None) and ratio_interval([1.0], [4.0]) == (0.25, None)
    share, half = ratio_interval([1.0, 1.0, 1.0], [2.0, 3.0, 4.0])  # all alike: the mean time's
    assert half is not None
    assert half / share == pytest.approx((confidence_interval([2.0, 3.0, 4.0])[1] or 0) / 3)


def test_a_share_of_times_is_covered_where_steps_are_unequal_and_small_ones_are_slow() -> None:
    rng, covers = np.random.default_rng(2), []
    for _ in range(2000):
        part = rng.lognormal(0.0, 1.0, 24)
        whole = (0.2 + part / 0.5) * rng.lognormal(-(0.1**2) / 2, 0.1, 24)
        share, half = ratio_interval(part.tolist(), whole.tolist())
        assert half is not None
        true = float(np.exp(0.5) / (0.2 + np.exp(0.5) / 0.5))
        covers.append(abs(share - true) <= stopped(half, 24))
    assert np.mean(covers) >= 0.95
