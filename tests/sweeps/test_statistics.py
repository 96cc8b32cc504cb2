"""Are the intervals Student's, and are differences paired?"""

from __future__ import annotations

import math

import pytest

from sweeps.statistics import Interval, interval, relative_gap, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (9, 2.262157), (30, 2.042272)],
)
def test_quantiles_are_those_of_the_printed_table(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-6)


def test_many_degrees_of_freedom_approach_the_normal_law() -> None:
    assert t_quantile(100_000) == pytest.approx(1.959988, abs=1e-5)


def test_one_degree_of_freedom_is_the_cauchy_law() -> None:
    for level in (0.5, 0.9, 0.99):
        assert t_quantile(1, level) == pytest.approx(math.tan(math.pi * level / 2), rel=1e-9)


def test_an_interval_by_hand() -> None:
    # mean 12, sum of squares 8, variance 4, standard error 2 / sqrt(3)
    found = interval([10.0, 12.0, 14.0])
    assert found.mean == 12
    assert found.half == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)
    assert (found.low, found.high) == (12 - found.half, 12 + found.half)


def test_one_value_has_no_interval() -> None:
    assert interval([5.0]) == Interval(5.0, math.inf, 1)
    assert interval([5.0]).sign == 0
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_pairing_removes_what_replications_share() -> None:
    ours, theirs = [110.0, 220.0, 440.0], [100.0, 200.0, 400.0]
    gap = relative_gap(ours, theirs)
    assert gap.mean == pytest.approx(0.1)
    assert gap.half == pytest.approx(0, abs=1e-12)
    assert gap.sign == 1
    assert relative_gap(theirs, ours).sign == -1
