"""A model of `bankwise new predictor`, by its calibration table, since workloads carry no text to
read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.files import by_contents, read_text
from policies.predictors.confusion import ConfusionTable, Scale
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
        return _with_times_of(self.cost, self.model)

    def contents(self) -> dict[str, Any]:
        return load_calibration(self.model).model_dump(mode="json")

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        table = load_calibration(self.model)
        return table.predict(output_tokens, stream.random(len(output_tokens)), self.scale)


@by_contents
def load_calibration(path: str) -> ConfusionTable:
    """The calibration table of a model file. Raises DescriptionError."""
    with _trained_file(path) as data:
        return ConfusionTable.model_validate(data["calibration"])


@contextmanager
def _trained_file(path: str) -> Iterator[Any]:
    """What `bankwise new predictor` wrote. Raises DescriptionError for a file that it did not,
    also where the reader finds that."""
    try:
        yield json.loads(read_text(path))
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror}", path) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        why = "not a trained predictor, as `bankwise new predictor` writes it"
        raise DescriptionError(why, path) from None


def _with_times_of(cost: InferenceSpec, model: str) -> InferenceSpec:
    """A cost with the times that training measured. Raises DescriptionError."""
    with _trained_file(model) as data:
        found = data["inference_s"].items()
        times = {int(size): 1e9 * float(seconds) for size, seconds in found}
        sizes = sorted(times)
        most = sizes[-1]
    if (cost.max_batch or 1) > most:
        raise DescriptionError(f"cost.max_batch: {most} is the largest measured", model)
    return cost.model_copy(update={"sizes": sizes, "times": [times[size] for size in sizes]})
