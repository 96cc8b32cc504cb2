"""A predictor that knows when it does not know: 15 % of the lengths are guessed with a log-sd of
1.2, the others with 0.2 (assumed), and each prediction has its own."""

from __future__ import annotations

from typing import Literal

import numpy as np

from policies.predictors.prediction import Prediction
from policies.predictors.predictor import PredictorSpec
from policies.requests.requests import FloatArray, IntArray


class UnsurePredictions:
    """Medians `length` and the log-sd of each, float64 (n,)."""

    def __init__(self, length: FloatArray, sigma: FloatArray) -> None:
        self.length = length
        self._sigma = sigma

    def __getitem__(self, request: int) -> Prediction:
        return Prediction(float(self.length[request]), float(self._sigma[request]))


class UnsurePredictor(PredictorSpec):
    """Off by a factor exp(sigma z), z normal, with a sigma of each request."""

    kind: Literal["unsure"] = "unsure"
    share: float = 0.15
    sigma: float = 1.2
    otherwise: float = 0.2

    def predictions(
        self, output_tokens: IntArray, stream: np.random.Generator
    ) -> UnsurePredictions:
        count = len(output_tokens)
        sigma = np.where(stream.random(count) < self.share, self.sigma, self.otherwise)
        guessed = output_tokens.astype(np.float64) * np.exp(sigma * stream.standard_normal(count))
        return UnsurePredictions(np.maximum(guessed, 1.0), sigma)
