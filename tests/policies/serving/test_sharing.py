"""Do samples of one prompt, shared system prompts and tags reach memory, traffic and time?"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from tests.policies.small import mixed, requests, run


def sampled(stream: Requests, samples: int) -> Requests:
    return dataclasses.replace(stream, samples=np.full(len(stream), samples, np.int64))


def behind(stream: Requests, tokens: int, prompts: int = 1) -> Requests:
    """The same requests, each behind one of so many system prompts."""
    return dataclasses.replace(
        stream,
        prompt_tokens=stream.prompt_tokens + tokens,
        prefix_id=np.arange(len(stream)) % prompts,
        prefix_tokens=np.full(len(stream), tokens),
    )


def test_two_samples_by_hand() -> None:
    # a prompt of 20 in 2 blocks of 16: the second sample finds the first block, computes the rest
    metrics = run(1024, sampled(requests([0.0], 20, 3), 2)).metrics
    assert (metrics["requests"], metrics["finished"], metrics["steps"]) == (1, 1, 3)
    assert (metrics["prefill_tokens"], metrics["cached_tokens"]) == (20 + 4, 16)
    assert metrics["makespan_output_tokens_per_s"] * metrics["makespan_s"] == pytest.approx(6)


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


def test_a_system_prompt_is_stored_once_and_computed_once() -> None:
    plain = mixed(200)
    stream = behind(plain, 256)
    found: dict[bool, ServingResult] = {}
    for caching in (True, False):
        policy = {"name": "paged", "prefix_caching": caching, "cached_recompute": False}
        found[caching] = run(2048, stream, policy=policy)
    shared, apart = found[True].metrics, found[False].metrics
    # all but who comes before it is stored find it
    assert shared["cached_tokens"] > 0.9 * 256 * len(stream) > apart["cached_tokens"] == 0
    assert shared["output_tokens_per_s"] > 1.1 * apart["output_tokens_per_s"]
    assert shared["batch"] > apart["batch"]
    for metrics in (shared, apart):
        assert 0 < metrics["kv_stored_share"] <= 1


def test_what_two_share_is_counted_once() -> None:
    # 64 of 80 prompt tokens are shared, 4 blocks: 96 tokens lie in memory in the first step, and
    # two more in the second
    stream = behind(requests([0.0, 0.0], 16, 2), 64)
    result = run(1024, stream)
    first_s = result.first_token_s[0]
    second_s = result.finish_s[0] - first_s
    share = (96 * first_s + 98 * second_s) / (first_s + second_s) / 1024
    assert result.metrics["kv_stored_share"] == pytest.approx(share)
    # the first 4 blocks of both are the same; beside them each has 1, then 2
    held = (96 * first_s + 98 * second_s) / (96 * first_s + 128 * second_s)
    assert result.metrics["time_weighted_utilization"] == pytest.approx(held)
    assert result.metrics["prefill_tokens"] == 96 and result.metrics["cached_tokens"] == 64
    # each has reserved 6 blocks, whoever else holds them, for 80 + 2 tokens
    assert result.metrics["utilization"] == 82 / 96


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
