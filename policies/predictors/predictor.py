"""Predictors of the output length: which law the prediction of each request has.

Every request has its own draw, made from the seed and its index alone, so that policies compared
under one seed meet the same predictions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializeAsAny

from hwmodel.description.description import DescriptionError, Strict, checked
from hwmodel.description.written import Chosen
from policies.predictors.confusion import Scale, load_table
from policies.predictors.inference import InferenceSpec
from policies.predictors.prediction import (
    LognormalPredictions,
    Prediction,
    Predictions,
    Predictive,
    entropy,
)
from policies.requests.requests import IntArray

__all__ = ["PREDICTORS", "Prediction", "Predictions", "Predictive", "PredictorSpec", "entropy",
           "predict"]  # fmt: skip

_LONGEST = 1e9
"""Predictions are cut here (tokens), so that they stay integers."""
_OWN = {
    "oracle": set(),
    "lognormal": {"sigma", "bias", "longest"},
    "confusion": {"table", "scale"},
    "trained": {"model", "scale"},
}
"""Options of each kind."""


class PredictorSpec(Strict):
    """`oracle` knows the length; `lognormal` is off by a factor exp(bias + sigma z), z normal;
    `confusion` is a length classifier by its confusion table; `trained` a model of `bankwise
    predictor train` by its calibration table, since workloads carry no text to read."""

    kind: Literal["oracle", "lognormal", "confusion", "trained"] = "oracle"
    sigma: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Spread of ln(predicted / true)."""
    bias: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Mean of ln(predicted / true), of which the predictor does not know."""
    longest: Annotated[int, Field(ge=1)] | None = None
    """Predictions are cut here (tokens). None: nowhere."""
    table: str | None = None
    """A confusion table: a shipped predictor or a file."""
    model: str | None = None
    """A model file."""
    scale: Scale = "levels"
    """What the bins of the table stand for; see `policies.predictors.confusion`."""
    cost: InferenceSpec | None = None
    """Time and room that predicting takes; None: neither."""

    @checked
    def _options_of_its_kind(self) -> None:
        if type(self) is not PredictorSpec:
            return
        every = set().union(*_OWN.values())
        for name in sorted((every - _OWN[self.kind]) & self.model_fields_set):
            if getattr(self, name) != type(self).model_fields[name].default:
                kinds = " or ".join(kind for kind, own in _OWN.items() if name in own)
                raise ValueError(f"{name}: belongs to kind: {kinds}")
        for name in ("table", "model"):
            if name in _OWN[self.kind] and getattr(self, name) is None:
                raise ValueError(f"{name}: kind: {self.kind} needs one")
        if self.cost is not None and not self.cost.sizes and self.model is None:
            raise ValueError("cost: sizes and times are measured for kind: trained only")

    @property
    def file(self) -> str | None:
        """The shipped table, or the file, that predictions are made from; None: none is."""
        return self.table or self.model

    @property
    def inference(self) -> InferenceSpec | None:
        """The cost with its times, as measured where none are given. Raises DescriptionError."""
        if self.cost is None or self.cost.sizes or self.model is None:
            return self.cost
        return self.cost.with_times_of(self.model)

    @property
    def on_card_bytes(self) -> int:
        """Memory of each card that it takes."""
        return 0 if self.cost is None else self.cost.on_card

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        """Predictions of requests with these true lengths, int64 (n,), by draws from `stream`. A
        predictor of one's own overrides this."""
        exact = output_tokens.astype(np.float64)
        if self.kind == "oracle":
            return LognormalPredictions(exact)
        if self.file is not None:
            table = load_table(self.file)
            return table.predict(output_tokens, stream.random(len(exact)), self.scale)
        error = self.bias + self.sigma * stream.standard_normal(len(exact))
        longest = self.longest or _LONGEST
        return LognormalPredictions(np.clip(exact * np.exp(error), 1.0, longest), self.sigma)


PREDICTORS: dict[str, type[PredictorSpec]] = dict.fromkeys(_OWN, PredictorSpec)
"""Kind -> the class that reads it."""
_CHOSEN = Chosen("predictor", lambda: dict(PREDICTORS), default="oracle", key="kind")
ChosenPredictor = Annotated[SerializeAsAny[PredictorSpec], _CHOSEN]
"""Field type: a predictor of any registered kind."""


def predict(spec: PredictorSpec, output_tokens: IntArray, seed: int) -> Predictions:
    """Predictions of requests, at least 1 token each. The n-th draw belongs to the n-th request.

    Lognormal error: the literature's length predictors err by about a constant factor
    (S3, Jin et al. 2023; assumed form). With bias 0 the predictive law lognormal(length, sigma) is
    calibrated under a flat prior of ln(true). Raises DescriptionError where a file does not read,
    or a predictor of one's own returns no length for each.
    """
    key = tuple(b"policies.predictor")
    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    found = spec.predictions(output_tokens, stream)
    length: Any = np.asarray(getattr(found, "length", None), np.float64)
    if length.shape != output_tokens.shape or not (length >= 1).all() or np.isinf(length).any():
        raise DescriptionError(
            f"predictor {spec.kind}: expected `length`, at least 1 token for each of "
            f"{len(output_tokens)} requests; got {length.size} or less than 1"
        )
    return found
