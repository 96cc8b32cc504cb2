"""A length classifier by its confusion table."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.predictors.confusion import Scale, load_table
from policies.predictors.prediction import Predictions
from policies.predictors.predictor import PredictorSpec
from policies.requests.requests import IntArray


class ConfusionPredictor(PredictorSpec):
    """The class that a real classifier gave to such lengths."""

    kind: Literal["confusion"] = "confusion"
    table: str
    """A confusion table: a shipped predictor or a file."""
    scale: Scale = "levels"
    """What the bins of the table stand for: quantile levels of the workload's own lengths, or the
    lengths themselves."""

    @property
    def file(self) -> str:
        return self.table

    def contents(self) -> dict[str, Any]:
        return load_table(self.table).model_dump(mode="json")

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        table = load_table(self.table)
        return table.predict(output_tokens, stream.random(len(output_tokens)), self.scale)
