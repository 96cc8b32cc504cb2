"""The request stream of a run as schedulers get it, with what is predicted of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.predictors.inference import Inference, infer
from policies.predictors.prediction import Predictions, RepeatedPredictions
from policies.predictors.predictor import predict
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.serving_spec import ServingSpec


class ServedStream(NamedTuple):
    """A request stream as engines get it, a request a sequence, and as it came."""

    requests: Requests
    outputs: IntArray
    """Output tokens of each, as the engine cuts them, int64 (n,)."""
    predicted: Predictions
    ready_s: FloatArray
    """When each has arrived and, where somebody asks for it, its length is predicted."""
    warmup: int
    """How many at the start do not count."""
    first_sample: IntArray | None
    """Where some have several samples, the first one of each that came."""
    came: Requests
    came_warmup: int
    inference: Inference | None

    def counts(self, admitted: IntArray, most: int | None) -> dict[str, int]:
        """How many of those that came are not among the admitted, int64 (n,), and how many answers
        are cut at so many tokens."""
        dropped = np.isin(np.arange(len(self.requests)), admitted, invert=True)
        dropped = dropped if self.first_sample is None else dropped[self.first_sample]
        cut = self.came.output_tokens > (most or np.inf)
        return {"dropped": int(dropped.sum()), "cut_outputs": int(cut.sum())}

    def predicting(self) -> dict[str, Any]:
        """What predicting lengths took, where it takes time."""
        if self.inference is None:
            return {}
        return {"predictor": self.inference.figures(self.came.arrival_s, self.came_warmup)}

    def require_counted(self, admitted: IntArray) -> None:
        """Raises DescriptionError if all of the admitted requests are warm-up."""
        if self.warmup and self.warmup >= len(admitted):
            raise DescriptionError(
                f"a warm-up of {self.came_warmup} requests leaves none of {len(admitted)} to be"
                " counted"
            )


def stream_of(spec: ServingSpec, requests: Requests, seed: int, warmup: int) -> ServedStream:
    """The stream with its predictions. Raises DescriptionError for what cannot be served so."""
    outputs = spec.engine.cut(requests.output_tokens)
    cost = spec.predictor.inference if spec.predicts else None
    rows = samples_of(requests)
    if requests.closed and cost is not None:
        raise DescriptionError(
            "closed arrivals and sessions need a free predictor, or a policy that asks none"
        )
    if rows is not None and (requests.session >= 0).any():
        raise DescriptionError(
            "workload.samples, beams: not modelled with sessions, whose next turn goes on from one "
            "answer; expected one answer a turn, or requests without sessions"
        )
    if ((requests.context >= 0) & (outputs < requests.output_tokens)).any():
        longest = int(requests.output_tokens.max())
        raise DescriptionError(
            "serving.engine.max_tokens cuts answers that later turns go on from; expected at least "
            f"{longest} tokens, or shorter ones from the workload (lengths.sessions)"
        )
    predicted = predict(spec.predictor, outputs, seed)
    inference = None if cost is None else infer(cost, requests.arrival_s)
    ready_s = requests.arrival_s if inference is None else inference.ready_s
    if rows is None:
        return ServedStream(
            requests, outputs, predicted, ready_s, warmup, None, requests, warmup, inference
        )
    return ServedStream(
        requests.apart(), outputs[rows], RepeatedPredictions(predicted, rows), ready_s[rows],
        int((rows < warmup).sum()), first_samples(rows), requests, warmup, inference,
    )  # fmt: skip


def samples_of(requests: Requests) -> IntArray | None:
    """Of the requests that are served, each a sequence, which of those that came each is a sample
    of, int64 (m,), ascending; None: each came with one."""
    if not (requests.samples > 1).any():
        return None
    return np.repeat(np.arange(len(requests)), requests.samples)


def first_samples(samples: IntArray) -> IntArray:
    """The first sample of each request, int64 (n,), of `samples_of`."""
    return np.searchsorted(samples, np.arange(samples[-1] + 1))
