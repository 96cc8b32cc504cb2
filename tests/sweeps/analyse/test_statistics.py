"""Are intervals and p values SciPy's, differences paired, and families those of closed testing?"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

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

rates = st.integers(1, 1000).map(lambda n: n / 8)
samples = st.lists(st.integers(-999, 999).map(lambda n: n / 8), min_size=2, max_size=7)


def scipys(values: list[float], level: float = 0.95) -> Interval:
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * error
    return Interval(mean, mean - half, mean + half, len(values))


def same(found: Interval, expected: Interval) -> None:
    for end in ("mean", "low", "high"):
        assert getattr(found, end) == pytest.approx(getattr(expected, end), rel=1e-9, abs=1e-9)
    assert found.count == expected.count


@given(samples, st.integers(0, 5))
def test_an_interval_alone_and_with_others_and_its_p_value(values: list[float], more: int) -> None:
    found, expected = interval(values), scipys(values)
    same(found, expected)
    same(widened(found, more), scipys(values, 1 - 0.05 / max(more, 1)))
    assert found.half == pytest.approx((expected.high - expected.low) / 2)
    assert farthest(found) == max(abs(np.array([found.low, found.high])))
    assert found.is_known == (not found.low < 0)
    assert (found.low + found.high) / 2 == pytest.approx(found.mean, abs=1e-9)
    if found.half:
        assert p_value(found) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-12)
        assert (found.sign != 0) == (p_value(found) < 0.05) and found.sign * found.mean >= 0
    else:
        assert p_value(found) == float(not found.mean)


@pytest.mark.filterwarnings("ignore:Precision loss")  # of equal values
@given(samples, samples)
def test_a_difference_of_means_that_do_not_pair_is_welchs(
    ours: list[float], theirs: list[float]
) -> None:
    found = difference(ours, theirs)
    half = 0.0
    if np.ptp(ours) or np.ptp(theirs):
        test = stats.ttest_ind(ours, theirs, equal_var=False)
        freedom = math.floor(test.df + 1e-9)
        half = stats.t.ppf(0.975, freedom) * np.hypot(stats.sem(ours), stats.sem(theirs))
    mean = float(np.mean(ours) - np.mean(theirs))
    same(found, Interval(mean, mean - half, mean + half, min(len(ours), len(theirs))))
    same(difference(ours[:1], theirs),
         Interval(ours[0] - float(np.mean(theirs)), -math.inf, math.inf, 1))  # fmt: skip


@given(st.lists(st.tuples(rates, rates), min_size=2, max_size=6))
def test_a_relative_gap_is_of_paired_logarithms(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = map(list, zip(*pairs, strict=True))
    logs = scipys(np.log(np.divide(ours, theirs)).tolist())
    found, back = relative_gap(ours, theirs), relative_gap(theirs, ours)
    same(found, logs.mapped(grown))
    assert (1 + found.mean) * (1 + back.mean) == pytest.approx(1)
    shared = relative_gap([2 * each for each in theirs], theirs)
    assert (shared.mean, shared.half) == (pytest.approx(1), pytest.approx(0, abs=1e-12))


def closed(p_values: list[float]) -> list[float]:
    """Adjusted by closed testing: a hypothesis falls with every set of hypotheses that has it, and
    a set by the least of its p values times their number."""
    every = [s for n in range(1, len(p_values) + 1) for s in combinations(range(len(p_values)), n)]
    worth = {s: min(1.0, len(s) * min(p_values[i] for i in s)) for s in every}
    return [max(worth[s] for s in every if i in s) for i in range(len(p_values))]


@given(st.lists(st.floats(0, 0.2) | st.floats(0, 1), max_size=7))
def test_holms_correction_is_that_of_closed_testing(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed(p_values))


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=5), min_size=1, max_size=6))
def test_a_family_has_the_signs_that_its_correction_leaves(families: list[list[float]]) -> None:
    found = {i: interval(values) for i, values in enumerate(families)}
    adjusted = closed([p_value(each) for each in found.values()])
    signs = [each.sign * (p < 0.05) for each, p in zip(found.values(), adjusted, strict=True)]
    assert [*family_signs(found).values()] == signs


@given(st.integers(1, 99))
def test_nine_in_ten_lie_within_it_and_fewer_within_the_one_before(many: int) -> None:
    place = nine_in_ten([float(each) for each in range(many, 0, -1)])
    assert 9 * many <= 10 * place < 9 * many + 10


@given(st.integers(1, 200), st.floats(0.01, 0.999))
def test_quantiles_are_scipys(freedom: int, level: float) -> None:
    assert t_quantile(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom))


def test_what_few_values_say() -> None:
    assert interval([5.0]) == Interval(5.0, -math.inf, math.inf, 1)
    assert (interval([5.0]).sign, p_value(interval([5.0])), widened(interval([5.0]), 3).count) == (
        0, 1, 1,
    )  # fmt: skip
    for wrong, said in ((lambda: interval([]), "no values"), (lambda: t_quantile(0), "1 degree")):
        with pytest.raises(ValueError, match=said):
            wrong()


def test_ends_of_intervals() -> None:
    ends = [(-2.0, -1.0), (-1.0, 0.0), (-1.0, 1.0), (0.0, 1.0), (1.0, 2.0)]
    assert [Interval(0.5, low, high, 2).sign for low, high in ends] == [-1, 0, 0, 0, 1]
    assert [Interval(0.5, low, high, 2).is_known for low, high in ends] == [False] * 3 + [True] * 2
    assert Interval(0.5, -1, 2, 3).within(0, 1) == Interval(0.5, 0, 1, 3)
    assert Interval(0.5, 0.25, 0.75, 3).within(0.3) == Interval(0.5, 0.3, 0.75, 3)
    assert interval([0.5]).within(0, 1) == interval([0.5])
    assert grown(700.0) == math.inf and math.expm1(699.0) == grown(699.0) < math.inf
    assert [significant(p) for p in (0.049, 0.051)] == [True, False]
