"""A model of `bankwise new predictor`, by its calibration table, since workloads carry no text to
read."""

from __future__ import annotations

from typing import Literal

import numpy as np

from policies.predictors.confusion import Scale, load_table
from policies.predictors.inference import InferenceSpec
from policies.predictors.prediction import Predictions
from policies.predictors.predictor import PredictorSpec
from policies.requests.requests import IntArray


class TrainedPredictor(PredictorSpec):
    """What the model said of held-out prompts with such answers."""

    timed = True
    kind: Literal["trained"] = "trained"
    model: str
    """A model file."""
    scale: Scale = "levels"
    """What the bins of its table stand for; see `policies.predictors.confusion`."""

    @property
    def file(self) -> str:
        return self.model

    @property
    def inference(self) -> InferenceSpec | None:
        if self.cost is None or self.cost.sizes:
            return self.cost
        return self.cost.with_times_of(self.model)

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        table = load_table(self.model)
        return table.predict(output_tokens, stream.random(len(output_tokens)), self.scale)
