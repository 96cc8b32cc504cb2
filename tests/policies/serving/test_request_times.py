"""Do requests of a scheduler that works ahead wait for the step that is made already?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.requests.percentiles import summary
from policies.requests.requests import Requests
from policies.serving.request_times import RequestTimes


def test_a_step_more_takes_what_a_further_token_does() -> None:
    """Ten further tokens in 5 s: a step takes half a second, of one that has a single token too."""
    requests = Requests(np.array([1.0, 2.0]), np.array([8, 8]), np.array([11, 1]))
    times = RequestTimes(requests, requests.output_tokens, None)
    times.first_s[:], times.end_s[:] = [3.0, 4.0], [8.0, 4.0]
    plain = times.seconds(times.done(0))
    times.steps_late = 1
    late = times.seconds(times.done(0))
    assert late["ttft_s"] - plain["ttft_s"] == pytest.approx([0.5, 0.5])
    assert late["latency_s"] - plain["latency_s"] == pytest.approx([0.5, 0.5])
    assert late["tpot_s"] == pytest.approx(plain["tpot_s"])
    assert times.of_requests()[1] == pytest.approx([3.5, 4.5])


def test_requests_of_one_token_have_no_time_between_tokens() -> None:
    """Zero would be the best there is, and would count as a replication's mean."""
    requests = Requests(np.array([1.0, 2.0]), np.array([8, 8]), np.array([1, 1]))
    times = RequestTimes(requests, requests.output_tokens, None)
    times.first_s[:], times.end_s[:] = [3.0, 4.0], [3.0, 4.0]
    seconds = times.seconds(times.done(0))
    assert summary(seconds["ttft_s"])["mean"] == 2.0
    assert set(summary(seconds["tpot_s"]).values()) == {None}
