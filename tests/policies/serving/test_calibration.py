"""Are a planted scale and a planted spread found again from the figures that they give?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.requests.length_table import QUANTILES
from policies.serving.calibration import (
    TOLERANCE,
    TokenLaw,
    draw,
    s3_accuracy,
    solve_scale,
    solve_spread,
    utilization,
)

LIMIT = 2048
PROMPTS = TokenLaw(sigma=0.3)
SHAPE = TokenLaw(sigma=0.8)
DRAWS = [draw(PROMPTS, SHAPE, 2_000, (1, number)) for number in range(10)]


@pytest.mark.parametrize("scale", [40.0, 300.0, 900.0])
def test_a_planted_scale_comes_back(scale: float) -> None:
    target = float(np.mean([utilization(each, scale, LIMIT) for each in DRAWS]))
    found = solve_scale(target, DRAWS, LIMIT)
    assert found.reached and found.value == pytest.approx(scale, rel=0.01)


@pytest.mark.parametrize("spread", [0.01, 0.1, 0.5])
def test_a_planted_spread_comes_back(spread: float) -> None:
    target = float(np.mean([s3_accuracy(each, 300.0, LIMIT, spread) for each in DRAWS]))
    found = solve_spread(target, DRAWS, 300.0, LIMIT)
    assert found.reached and found.value == pytest.approx(spread, rel=0.05)


def test_what_cannot_be_reached_is_said() -> None:
    # prompts alone are longer than that
    long = [draw(TokenLaw(quantiles=[900] * len(QUANTILES)), SHAPE, 100, (1, 0))]
    found = solve_scale(0.3, long, LIMIT)
    assert not found.reached and found.given > 0.3 + TOLERANCE
    # even the widest errors of the search hit more often than never
    assert not solve_spread(0.0, DRAWS, 300.0, LIMIT).reached


def test_utilization_by_hand() -> None:
    one = draw(
        TokenLaw(quantiles=[24] * len(QUANTILES)),
        TokenLaw(quantiles=[100] * len(QUANTILES)),
        5,
        (1,),
    )
    assert utilization(one, 2.0, 448) == pytest.approx(0.5)  # 24 and 200 of 448
    assert one.output_tokens(1e6, 448).tolist() == [424] * 5  # cut where the reservation ends
    assert one.output_tokens(1e-6, 448).tolist() == [1] * 5


def test_errors_of_no_size_are_always_right() -> None:
    assert s3_accuracy(DRAWS[0], 300.0, LIMIT, 0.0) == 1
    accuracy = [s3_accuracy(DRAWS[0], 300.0, LIMIT, sigma) for sigma in (0.01, 0.1, 1.0)]
    assert sorted(accuracy, reverse=True) == accuracy


def test_a_law_at_its_levels() -> None:
    points = [10 * (k + 1) for k in range(len(QUANTILES))]
    law = TokenLaw(quantiles=points)
    assert law.at(np.array(QUANTILES)) == pytest.approx(points)
    middle = law.at(np.array([0.45]))[0]  # halfway between 40 and 50 %, in the logarithm
    assert middle == pytest.approx(math.sqrt(50 * 60))
    assert TokenLaw(sigma=0.5).at(np.array([0.5]))[0] == pytest.approx(1)
    for wrong in ({}, {"quantiles": points, "sigma": 1.0}, {"quantiles": points[:3]}):
        with pytest.raises(ValueError, match="expected"):
            TokenLaw.model_validate(wrong)


def test_seeds_draw_apart_and_the_same_again() -> None:
    again = draw(PROMPTS, SHAPE, 2_000, (1, 3))
    assert (again.shape == DRAWS[3].shape).all() and again.seed == DRAWS[3].seed
    assert len({each.seed for each in DRAWS}) == 10
