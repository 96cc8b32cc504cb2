"""The contract of a predictor of the output length: which law the prediction of each request has.

Every request has its own draw, made from the seed and its index alone, so that policies compared
under one seed meet the same predictions. A predictor is added by one file and one line in
`policies.predictors.predictors`, or by a plug-in (docs/extend.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hwmodel.description.description import DescriptionError, Strict, checked
from policies.predictors.inference import InferenceSpec
from policies.predictors.prediction import Prediction, Predictions, Predictive, entropy
from policies.requests.requests import IntArray

__all__ = ["Prediction", "Predictions", "Predictive", "PredictorSpec", "entropy", "predict"]


class PredictorSpec(Strict):
    """Base of every predictor, which is its options; `kind` is the registry key."""

    exact: ClassVar[bool] = False
    """Whether it knows the lengths."""
    timed: ClassVar[bool] = False
    """Whether its file says how long predicting takes."""
    kind: str
    cost: InferenceSpec | None = None
    """Time and room that predicting takes; None: neither."""

    @checked
    def _times_are_known(self) -> None:
        if self.cost is not None and not self.cost.sizes and not self.timed:
            raise ValueError(f"cost: give sizes and times; kind {self.kind} has none measured")

    @property
    def file(self) -> str | None:
        """The shipped table, or the file, that predictions are made from; None: none is."""
        return None

    def contents(self) -> dict[str, Any]:
        """What a run records of its `file`. Empty: the file's hash alone, as of one that is
        `timed`."""
        return {}

    @property
    def inference(self) -> InferenceSpec | None:
        """The cost with its times, as measured where none are given. Raises DescriptionError."""
        return self.cost

    @property
    def on_card_bytes(self) -> int:
        """Memory of each card that it takes."""
        return 0 if self.cost is None else self.cost.on_card

    def predictions(self, output_tokens: IntArray, stream: np.random.Generator) -> Predictions:
        """Predictions of requests with these true lengths, int64 (n,), by draws from `stream`."""
        raise NotImplementedError


def predict(spec: PredictorSpec, output_tokens: IntArray, seed: int) -> Predictions:
    """Predictions of requests, at least 1 token each. The n-th draw belongs to the n-th request.

    Raises DescriptionError where a file does not read, or a predictor of one's own returns no
    length for each.
    """
    key = tuple(b"policies.predictor")
    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    given = output_tokens.view()
    given.flags.writeable = False  # a predictor of one's own may not change what is served
    found = spec.predictions(given, stream)
    try:
        length: Any = np.asarray(getattr(found, "length", None), np.float64)
    except (TypeError, ValueError):
        length = np.zeros(0)
    wanted = f"predictor {spec.kind}: expected `length`, at least 1 token for each of "
    if length.shape != output_tokens.shape:
        raise DescriptionError(
            f"{wanted}{len(output_tokens)} requests; predictions returned {type(found).__name__} "
            f"with {length.size}"
        )
    bad = ~(length >= 1) | np.isinf(length)
    if bad.any():
        request = int(bad.argmax())
        raise DescriptionError(
            f"{wanted}{len(output_tokens)} requests; predictions returned {length[request]} for "
            f"request {request}"
        )
    return found
