"""A predictor that errs by a factor.

The literature's length predictors err by about a constant factor (S3, Jin et al. 2023; assumed
form). With bias 0 the predictive law lognormal(length, sigma) is calibrated under a flat prior of
ln(true).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from policies.predictors.prediction import LognormalPredictions, Predictions
from policies.predictors.predictor import PredictorSpec
from policies.requests.requests import IntArray

_LONGEST = 1e9
"""Predictions are cut here (tokens), so that they stay integers."""


class LognormalPredictor(PredictorSpec):
    """Off by a factor exp(bias + sigma z), z normal."""

    kind: Literal["lognormal"] = "lognormal"
    sigma: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Spread of ln(predicted / true)."""
    bias: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Mean of ln(predicted / true), of which the predictor does not know."""
    longest: Annotated[int, Field(ge=1)] | None = None
    """Predictions are cut here (tokens). None: nowhere."""

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        error = self.bias + self.sigma * stream.standard_normal(len(output_tokens))
        guessed = output_tokens.astype(np.float64) * np.exp(error)
        return LognormalPredictions(np.clip(guessed, 1.0, self.longest or _LONGEST), self.sigma)
