"""Logs of a real server: when each request came, and when it had its first and its last token.

Formats: `policies.requests.logged_requests`, plain or gzip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from policies.requests.logged_requests import LoggedRequests
from policies.requests.percentiles import summary
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray, Requests
from policies.requests.trace_formats import read_text


class LoggedTimes(NamedTuple):
    """Requests in the order in which they queued. Times: float64 (n,), seconds since the first;
    tokens: int64 (n,)."""

    queued_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray

    @property
    def requests(self) -> Requests:
        """The stream that the server had."""
        return Requests(self.queued_s, self.prompt_tokens, self.output_tokens)

    def only(self, which: NDArray[np.bool_]) -> LoggedTimes:
        """Those of the mask, bool (n,)."""
        return LoggedTimes(
            self.queued_s[which], self.first_s[which], self.last_s[which],
            self.prompt_tokens[which], self.output_tokens[which],
        )  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Summaries of what requests waited, as `Metrics.figures` has them."""
        several = self.output_tokens > 1
        each = (self.last_s - self.first_s)[several] / (self.output_tokens[several] - 1)
        return {
            "ttft_s": summary(self.first_s - self.queued_s),
            "tpot_s": summary(each),
            "latency_s": summary(self.last_s - self.queued_s),
            "makespan_output_tokens_per_s": float(self.output_tokens.sum() / self.last_s.max()),
        }


def read_request_log(path: Path) -> LoggedTimes:
    """Read a log. Raises DescriptionError with file and line for whatever is wrong with it."""
    log = LoggedRequests(read_text(path), MAX_TOKENS)
    try:
        rows = log.read()
    except ValueError as error:
        raise DescriptionError(str(error), path, log.line) from None
    prompts, outputs, queued, first, last = np.array(rows).T
    start = queued[0]
    times = (each - start for each in (queued, first, last))
    return LoggedTimes(*times, *(each.astype(np.int64) for each in (prompts, outputs)))
