"""When requests came, gave their first token and ended, and figures of these times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.requests.percentiles import quantiles, summary
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.ratios import mean, rate


class RequestTimes:
    """Seconds, float64 (requests,), nan where a thing has not happened. `first_sample`, int64:
    where prompts have several samples, the first one of each request that figures are of."""

    def __init__(
        self, requests: Requests, output_tokens: IntArray, first_sample: IntArray | None
    ) -> None:
        self.arrival_s = requests.arrival_s.copy()
        """In a closed loop known once a request is sent."""
        self.first_s: FloatArray = np.full(len(requests), np.nan)
        self.end_s: FloatArray = np.full(len(requests), np.nan)
        self.output = output_tokens
        self.steps_late = 0
        """Steps that a request waits besides, as the scheduler works so many ahead: one that comes
        while a step runs finds the next one made already (vLLM's `step_with_batch_queue`). Each
        takes what a further token does in the median over requests (assumed). Not with pools, where
        a first token is made on one card and the others on another."""
        self._first_sample = first_sample

    def whole(self, combine: np.ufunc, values: Any) -> Any:
        """Values of samples, combined for each request that figures are of."""
        if self._first_sample is None:
            return values
        return combine.reduceat(values, self._first_sample)

    def of_requests(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds of each request's arrival, first token, of any sample, and last, of all."""
        arrival_s, first_s = (
            self.whole(np.minimum, times) for times in (self.arrival_s, self.first_s)
        )
        end_s = self.whole(np.maximum, self.end_s)
        if not self.steps_late:
            return arrival_s, first_s, end_s
        further = self.whole(np.maximum, self.output) - 1
        ended = np.isfinite(end_s) & (further > 0)
        if not ended.any():
            return arrival_s, first_s, end_s
        each_s = np.median((end_s - first_s)[ended] / further[ended])
        late_s = self.steps_late * float(each_s)
        return arrival_s, first_s + late_s, end_s + late_s

    def done(self, warmup: int) -> NDArray[np.bool_]:
        """Requests behind the first `warmup` that have ended."""
        counted = self.whole(np.minimum, np.arange(len(self.output))) >= warmup
        ended: NDArray[np.bool_] = counted & np.isfinite(self.of_requests()[2])
        return ended

    def seconds(self, done: NDArray[np.bool_]) -> dict[str, FloatArray]:
        """Of each request that counts: to the first token, of each further token where there are
        any, and to the last."""
        arrival_s, first_s, end_s = self.of_requests()
        output = self.whole(np.maximum, self.output)
        each = (end_s - first_s) / np.maximum(output - 1, 1)
        return {
            "ttft_s": (first_s - arrival_s)[done],
            "tpot_s": each[done & (output > 1)],
            "latency_s": (end_s - arrival_s)[done],
        }

    def figures(self, made: int, steady_s: float, warmup: int) -> dict[str, Any]:
        """Counts, rates and summaries of seconds; `made` output tokens in the steady part."""
        arrival_s, first_s, end_s = self.of_requests()
        done = self.done(warmup)
        late = first_s[done] > np.max(arrival_s, initial=0.0)
        finished = int(np.isfinite(end_s).sum())
        start_s = float(self.arrival_s[0]) if len(self.arrival_s) else 0.0
        makespan = float(np.nanmax(self.end_s, initial=0.0)) - start_s if len(end_s) else 0.0
        return {
            "requests": len(end_s),
            "finished": finished,
            "output_tokens_per_s": rate(made, steady_s),
            "makespan_output_tokens_per_s": rate(
                int(self.output[np.isfinite(self.end_s)].sum()), makespan
            ),
            "makespan_s": makespan,
            "steady_s": steady_s,
            "requests_per_s": rate(finished, makespan),
            "backlog_share": mean(late.astype(np.float64)),
            **{name: summary(values) for name, values in self.seconds(done).items()},
        }

    def quantiles(self, warmup: int) -> dict[str, Any]:
        """Of the same seconds."""
        return {name: quantiles(each) for name, each in self.seconds(self.done(warmup)).items()}
