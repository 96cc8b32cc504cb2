"""Does a client wait for all samples of its prompt, and do tags part the line?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from policies.requests.requests import Requests
from tests.policies.small import mixed, requests, run


def sampled(stream: Requests, samples: int) -> Requests:
    return dataclasses.replace(stream, samples=np.full(len(stream), samples, np.int64))


def test_a_client_waits_for_all_answers_to_its_prompt() -> None:
    """Two clients, six prompts, two samples: at most four run, and each prompt has one latency."""
    think_s = np.where(np.arange(6) < 2, np.nan, 0.5)
    stream = dataclasses.replace(mixed(6), arrival_s=np.zeros(6), think_s=think_s)
    found = run(4096, sampled(stream, 2))
    assert found.metrics["finished"] == 6 and len(found.finish_s) == 6
    order = np.argsort(found.arrival_s)
    ends = np.sort(found.finish_s)
    for at, request in enumerate(order[2:]):
        assert found.arrival_s[request] == pytest.approx(ends[at] + 0.5)


@pytest.mark.parametrize("engine", ["v1", "v0"])
@pytest.mark.parametrize("policy", ["s3", "odma"])
def test_tags_part_the_line_and_nobody_starves(policy: str, engine: str) -> None:
    changes = {
        "policy": {"name": policy}, "predictor": {"kind": "lognormal", "sigma": 0.5},
    }  # fmt: skip
    stream = mixed(120)
    options = {"name": engine, "max_model_len": 1024, "max_num_seqs": 8}
    anybody = run(4096, stream, engine=options, **changes)
    alike = run(4096, stream, engine={**options, "batching": "same_tag"}, **changes)
    assert alike.metrics["finished"] == len(stream)
    assert alike.metrics["limit_share"]["batching"] > 0 or engine == "v0"
    assert (alike.finish_s != anybody.finish_s).any()
    # overtaken 8 times at most before it is the next: nobody waits for everybody
    order = np.argsort(alike.first_token_s)
    assert (np.argsort(order) - np.arange(len(stream)) < 8 * 8).all()


def test_two_samples_by_hand() -> None:
    # a prompt of 20 in 2 blocks of 16: the second sample finds the first block, computes the rest
    metrics = run(1024, sampled(requests([0.0], 20, 3), 2)).metrics
    assert (metrics["requests"], metrics["finished"], metrics["steps"]) == (1, 1, 3)
    assert (metrics["prefill_tokens"], metrics["cached_tokens"]) == (20 + 4, 16)
    assert metrics["makespan_output_tokens_per_s"] * metrics["makespan_s"] == pytest.approx(6)
