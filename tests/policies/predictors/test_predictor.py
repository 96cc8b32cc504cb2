"""Are predictions as wrong, and as sure of themselves, as the description says?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from policies.predictors.lognormal_predictor import LognormalPredictor
from policies.predictors.oracle_predictor import OraclePredictor
from policies.predictors.predictor import Prediction, entropy, predict

LENGTHS = np.full(20_000, 1000, np.int64)


class Classes(NamedTuple):
    """A law over classes, such as a classifier gives: `shares[i]` at lengths up to `edges[i]`."""

    edges: tuple[int, ...]
    shares: tuple[float, ...]
    length: float
    spread: float

    def below(self, bound: float) -> float:
        return sum(
            share for edge, share in zip(self.edges, self.shares, strict=True) if edge <= bound
        )


def test_the_oracle_knows() -> None:
    assert (predict(OraclePredictor(), LENGTHS, 1).length == 1000).all()
    assert entropy(Prediction(1000), [500, 1000, 2000]) == 0
    assert Prediction(1000).spread == 0


def test_sigma_and_bias_are_those_of_the_log_ratio() -> None:
    spec = LognormalPredictor(sigma=0.4, bias=-0.2)
    error = np.log(predict(spec, LENGTHS, 7).length / 1000)
    assert error.mean() == pytest.approx(-0.2, abs=0.01)
    assert error.std() == pytest.approx(0.4, abs=0.01)


def test_every_request_has_its_own_draw_whatever_follows() -> None:
    spec = LognormalPredictor(sigma=0.4)
    whole = predict(spec, LENGTHS, 7).length
    assert (predict(spec, LENGTHS[:10], 7).length == whole[:10]).all()
    assert (predict(spec, LENGTHS, 8).length != whole).any()


def test_entropy_is_largest_where_all_classes_are_as_likely() -> None:
    # quartiles of a lognormal: median exp(-+0.6745 sigma)
    sigma, quartile = 0.5, 0.674489750196
    bounds = [100 * math.exp(z * sigma) for z in (-quartile, 0, quartile)] + [1e6]
    assert entropy(Prediction(100.0, sigma), bounds) == pytest.approx(math.log(4))


def test_entropy_by_hand() -> None:
    # two classes that part at the median: ln 2; far from the median: 0; one class: 0
    assert entropy(Prediction(64.0, 0.3), [64, 128]) == pytest.approx(math.log(2))
    assert entropy(Prediction(64.0, 0.3), [640, 1280]) == pytest.approx(0, abs=1e-9)
    assert entropy(Prediction(64.0, 0.3), [128]) == 0
    p = 0.5 * math.erfc(-math.log(2) / math.sqrt(2))
    expected = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert entropy(Prediction(50.0, 1.0), [100, 200]) == pytest.approx(expected)


def test_a_discrete_law_has_an_entropy_too() -> None:
    # 3/4 in the first of two classes, whatever lies inside it
    guess = Classes(edges=(100, 200), shares=(0.75, 0.25), length=50.0, spread=0.6)
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy(guess, [100, 200]) == pytest.approx(expected)
    assert entropy(guess, [100]) == 0
