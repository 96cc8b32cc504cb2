"""Does each client of a closed loop send its next request when it should, and never two at once?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.allocators.registry import POLICIES
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import WorkloadSpec
from policies.serving.recorder import RequestLog
from policies.serving.serving import serve
from tests.policies.small import MODEL, device, mixed, run, spec
from tests.rotation import rotated


def closed(count: int, clients: int, think_s: Any = 0.0) -> Requests:
    think = np.broadcast_to(np.array(think_s, np.float64), count).copy()
    think[:clients] = np.nan
    return replace(mixed(count), arrival_s=np.zeros(count), think_s=think)


def in_flight(sent_s: Any, done_s: Any) -> int:
    """Most requests that were sent and not answered at once; an answer at the instant of another
    request comes first."""
    events = sorted([(at, 1) for at in sent_s] + [(at, -1) for at in done_s])
    return int(np.cumsum([change for _, change in events]).max())


def test_a_scene_by_hand() -> None:
    # two clients, equal requests: both end together, and the next two start half a second later
    stream = Requests(
        np.zeros(4), np.full(4, 16), np.full(4, 8), think_s=np.array([np.nan, np.nan, 0.5, 0.5])
    )
    found = run(4096, stream)
    once = found.finish_s[0]
    assert found.finish_s[1] == once
    assert found.arrival_s.tolist() == [0.0, 0.0, once + 0.5, once + 0.5]
    assert found.finish_s[2:] == pytest.approx([2 * once + 0.5] * 2)
    assert found.metrics["limit_share"]["idle"] == pytest.approx(0.5 / (2 * once + 0.5))
    assert stream.arrival_s.tolist() == [0.0] * 4  # what was given stays
    # a client that thinks long is overtaken by the answers of the other
    think = np.array([np.nan, np.nan, 5.0, 0.0, 0.0, 0.0])
    several = Requests(np.zeros(6), np.full(6, 16), np.full(6, 8), think_s=think)
    found = run(4096, several)
    assert np.argsort(found.arrival_s, kind="stable").tolist() == [0, 1, 3, 4, 5, 2]


@pytest.mark.parametrize(("policy", "engine"), rotated(list(POLICIES), ["v0", "v1"]))
def test_every_policy_serves_all_and_steps_together_are_single_steps(
    policy: str, engine: str
) -> None:
    stream = closed(80, 12, 0.001 * (np.arange(80) % 5))
    changes = {
        "policy": {"name": policy}, "engine": {"name": engine, "max_model_len": 1024},
        "predictor": {"kind": "lognormal", "sigma": 0.5}, "warmup_requests": 10,
    }  # fmt: skip
    fast = run(4096, stream, **changes)
    slow = run(4096, stream, **changes, advance_together=False)
    assert (fast.finish_s == slow.finish_s).all() and (fast.arrival_s == slow.arrival_s).all()
    assert fast.metrics["finished"] == 80
    assert in_flight(fast.arrival_s, fast.finish_s) == 12
    answers = np.sort(fast.finish_s)  # request 12 + k is sent after the k-th answer
    assert fast.arrival_s[12:] == pytest.approx(answers[:68] + stream.think_s[12:])


def test_logs_have_the_times_of_sending(tmp_path: Path) -> None:
    stream, file = closed(20, 3, 0.25), tmp_path / "requests.csv"
    logs = RequestLog(file, stream)
    found = serve(device(4096), MODEL, spec(), stream, seed=1, recorder=logs)
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    assert {int(row[0]): float(row[1]) for row in rows} == dict(enumerate(found.arrival_s.tolist()))


def test_a_workload_says_so() -> None:
    def drawn(**arrivals: Any) -> Requests:
        lengths = {"uniform": {"prompt_tokens": 100, "output_tokens": 50, "range": 0.2}}
        data = {"name": "x", "summary": "x", "lengths": lengths, "arrivals": arrivals}
        return generate(WorkloadSpec.model_validate(data), 400, None, 3)

    stream = drawn(process="closed", clients=4, think_s={"mean_s": 2.0})
    assert np.isnan(stream.think_s).tolist() == [True] * 4 + [False] * 396
    assert stream.think_s[4:].mean() == pytest.approx(2.0, rel=0.15)
    assert (stream.prompt_tokens.min(), stream.prompt_tokens.max()) == (80, 120)
    assert (stream.output_tokens.min(), stream.output_tokens.max()) == (40, 60)
    assert not drawn(process="all_at_once").closed
    for arrivals, why in (
        ({"process": "closed"}, "clients"),
        ({"process": "poisson", "clients": 3}, "clients"),
        ({"process": "fixed", "think_s": 1.0}, "think_s belongs to closed"),
    ):
        with pytest.raises(ValueError, match=why):
            drawn(**arrivals)


def test_what_does_not_go_with_it_is_refused() -> None:
    with pytest.raises(ValueError, match="first requests"):
        closed(10, 2)[5:]
