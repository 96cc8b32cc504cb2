"""Are the intervals Student's, and are differences paired?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.measure.student import t_quantile
from sweeps.analyse.statistics import (
    Interval,
    difference,
    family_signs,
    farthest,
    grown,
    holm,
    interval,
    nine_in_ten,
    p_value,
    relative_gap,
    significant,
    widened,
)


@pytest.mark.parametrize(("many", "place"), [(1, 1), (9, 9), (10, 9), (11, 10), (44, 40)])
def test_nine_in_ten_lie_within_it_and_fewer_within_the_one_before(many: int, place: int) -> None:
    errors = [float(each) for each in range(many, 0, -1)]
    assert nine_in_ten(errors) == place
    assert 0.9 * many <= place < 0.9 * many + 1


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
    assert (found.low + found.high) / 2 == pytest.approx(12)


def test_one_value_has_no_interval() -> None:
    assert interval([5.0]) == Interval(5.0, -math.inf, math.inf, 1)
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


def test_a_relative_gap_by_hand() -> None:
    # ratios 1.1, 1.2, 1.5; their logarithms 0.0953102, 0.1823216, 0.4054651:
    # mean 0.2276990; deviations -0.1323888, -0.0453774, 0.1777661; their squares 0.0175268,
    # 0.0020591, 0.0316008, together 0.0511867; standard error sqrt(0.0511867 / 2 / 3) = 0.0923641;
    # times 4.302653: 0.3974107; so from exp(-0.1697117) to exp(0.6251097), less 1
    found = relative_gap([110.0, 240.0, 450.0], [100.0, 200.0, 300.0])
    assert found.mean == pytest.approx((1.1 * 1.2 * 1.5) ** (1 / 3) - 1, rel=1e-9)
    assert found.low == pytest.approx(-0.15609, abs=1e-5)
    assert found.high == pytest.approx(0.86845, abs=1e-5)
    assert found.sign == 0


def test_a_gap_and_its_reverse_agree() -> None:
    ours, theirs = [110.0, 240.0, 450.0], [100.0, 200.0, 300.0]
    gap, back = relative_gap(ours, theirs), relative_gap(theirs, ours)
    assert (1 + gap.mean) * (1 + back.mean) == pytest.approx(1)
    assert (1 + gap.low) * (1 + back.high) == pytest.approx(1)


def test_one_noisy_replication_does_not_carry_a_gap_below_nothing() -> None:
    gap = relative_gap([20.0, 1.0], [1.0, 1.0])
    assert -1 <= gap.low < 0 < gap.high


def test_how_wide_is_a_difference_of_means_that_do_not_pair() -> None:
    # variances 4 and 1, over 3: 4/3 and 1/3; (5/3)^2 / ((4/3)^2 / 2 + (1/3)^2 / 2) = 2.94 degrees
    # of freedom, rounded down to 2
    found = difference([10.0, 12.0, 14.0], [1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (10.0, 3)
    assert found.high - 10 == pytest.approx(4.302653 * math.sqrt(5 / 3))
    assert 10 - found.low == pytest.approx(found.half)
    # of 3 and 2 values: 1/3 and 4, of which the second decides: 1.17, so 1
    found = difference([1.0, 2.0, 3.0], [0.0, 4.0])
    assert (found.mean, found.count) == (0.0, 2)
    assert found.half == pytest.approx(12.706205 * math.sqrt(1 / 3 + 4))


def test_what_do_values_without_a_spread_say_of_their_difference() -> None:
    assert difference([3.0, 3.0], [1.0, 1.0, 1.0]) == Interval(2.0, 2.0, 2.0, 2)
    assert difference([3.0], [1.0, 2.0]) == Interval(1.5, -math.inf, math.inf, 1)
    assert difference([3.0, 3.0], [1.0, 3.0]).half == pytest.approx(12.706205)


def test_on_which_side_of_zero_is_an_interval() -> None:
    ends = [(-2.0, -1.0), (-1.0, 0.0), (-1.0, 1.0), (0.0, 1.0), (1.0, 2.0)]
    assert [Interval(0.5, low, high, 2).sign for low, high in ends] == [-1, 0, 0, 0, 1]


def test_does_a_ratio_too_large_for_a_float_become_infinite() -> None:
    assert grown(700.0) == math.inf
    assert math.expm1(699.0) == grown(699.0) < math.inf
    with pytest.raises(ValueError, match="at least 1 degree"):
        t_quantile(0)


def test_p_values_are_those_of_the_t_law_in_closed_form() -> None:
    # of two degrees of freedom P(|T| > t) = 1 - t / sqrt(t^2 + 2); here t = 12 / (2 / sqrt(3))
    t = 12 / (2 / math.sqrt(3))
    assert p_value(interval([10.0, 12.0, 14.0])) == pytest.approx(1 - t / math.sqrt(t * t + 2))
    # of one, Cauchy's: 1 - 2 atan(t) / pi
    assert p_value(interval([1.0, 2.0])) == pytest.approx(1 - 2 * math.atan(3) / math.pi)
    assert p_value(interval([5.0])) == p_value(interval([0.0, 0.0])) == 1
    assert p_value(interval([1.0, 1.0])) == 0


def test_holm_by_hand() -> None:
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, 1 x 0.04 raised to what comes before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1, 1] and holm([]) == [] and holm([0.04]) == [0.04]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_rejects_no_more_than_single_tests_and_no_less_than_bonferroni(
    p_values: list[float],
) -> None:
    adjusted = holm(p_values)
    for one, several in zip(p_values, adjusted, strict=True):
        assert one <= several <= min(len(p_values) * one, 1) + 1e-12
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=5), min_size=1, max_size=8))
def test_a_family_has_no_more_signs_than_its_intervals(families: list[list[float]]) -> None:
    found = {i: interval(values) for i, values in enumerate(families)}
    for i, sign in family_signs(found).items():
        assert sign in (0, found[i].sign)


def test_an_interval_that_holds_with_others() -> None:
    found = widened(interval([10.0, 12.0, 14.0]), 2)
    assert found.half == pytest.approx(6.205347 * 2 / math.sqrt(3), rel=1e-6)  # t(2), 97.5 %
    assert widened(interval([10.0, 12.0, 14.0]), 1).low == pytest.approx(7.031725)
    assert farthest(Interval(-1, -3, 1, 3)) == 3 and not significant(0.051) and significant(0.049)
