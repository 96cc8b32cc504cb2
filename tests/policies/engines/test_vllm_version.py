"""Does `like` set what that version of vLLM does, and do explicit keys beat it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.paged import PagedOptions
from policies.engines.engine_v1_options import EngineV1Spec
from policies.requests.requests import Requests
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.defaults import with_defaults
from tests.policies.small import run, spec

GIB = 1 << 30


def test_like_sets_engine_and_policy_and_explicit_keys_beat_it() -> None:
    old = spec(engine={"like": "0.11"})
    assert isinstance(old.engine, EngineV1Spec) and isinstance(old.policy, PagedOptions)
    assert (old.engine.admit_on, old.engine.async_scheduling) == ("chunk", False)
    assert (old.policy.free_list, old.policy.null_block) == ("fifo", True)
    assert old.policy.window_rules == "0.11"
    new = spec(engine={"like": "0.33", "async_scheduling": False}, policy={"name": "paged"})
    assert isinstance(new.engine, EngineV1Spec) and isinstance(new.policy, PagedOptions)
    assert (new.engine.admit_on, new.engine.async_scheduling) == ("input", False)
    assert (new.policy.free_list, new.policy.idle_watermark) == ("split", False)
    kept = spec(engine={"like": "0.33"}, policy={"name": "paged", "free_list": "fifo"})
    assert isinstance(kept.policy, PagedOptions) and kept.policy.free_list == "fifo"
    assert spec(engine={"like": "0.33"}, policy={"name": "static"}).policy.name == "static"
    assert spec(engine={"name": "v1"}).policy == PagedOptions()


@pytest.mark.parametrize(
    ("like", "gib", "device", "usage", "seqs", "tokens"),
    [
        ("0.11", 24, "mlu370-x4", "server", 256, 2048),
        ("0.23", 80, "h100", "server", 1024, 8192), ("0.23", 80, "h100", "offline", 1024, 16384),
        ("0.23", 80, "a100-80gb", "offline", 256, 8192),
        ("0.33", 128, "dgx-spark-gb10", "server", 256, 2048),
        ("0.33", 128, "dgx-spark-gb10", "offline", 256, 8192),
        ("0.23", 128, "dgx-spark-gb10", "server", 1024, 8192),
        ("0.23", 192, "b200", "server", 1024, 8192), ("0.33", 192, "b200", "server", 1024, 16384),
    ],
)  # fmt: skip
def test_defaults_hang_on_the_device(
    like: str, gib: int, device: str, usage: str, seqs: int, tokens: int
) -> None:
    options = EngineV1Spec.model_validate({"like": like, "usage": usage})
    found = options.on_device(gib * GIB, device, 4096)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (seqs, tokens)
    given = EngineV1Spec.model_validate({"like": like, "max_num_seqs": 2})
    assert given.on_device(gib * GIB, device, 512).max_num_batched_tokens == 1024
    given = EngineV1Spec.model_validate({"like": like, "max_num_batched_tokens": 64})
    assert given.on_device(gib * GIB, device, 4096).max_num_seqs == 64


@pytest.mark.parametrize(
    "engine", [{"name": "v1", "like": "0.11"}, {"name": "v1", "like": "0.33", "max_num_seqs": 9}]
)
def test_a_description_with_its_defaults_written_out_is_the_same(engine: dict[str, Any]) -> None:
    data = {"model": "small", "engine": engine}
    assert ServingSpec.model_validate(with_defaults(ServingSpec, data)) == (
        ServingSpec.model_validate(data)
    )


def test_a_request_alone_may_take_what_the_watermark_spares() -> None:
    stream = Requests(np.zeros(2), np.array([960, 10]), np.array([3, 3]))
    policy = {"name": "paged", "watermark": 0.2, "idle_watermark": False}
    result = run(1024, stream, policy=policy)
    assert result.metrics["finished"] == 2 and result.finish_s[0] < result.first_token_s[1]


def test_samples_are_requests_that_find_their_prompt_where_it_is_cached() -> None:
    stream = Requests(
        np.array([0.0, 0.1]), np.array([64, 40]), np.array([8, 8]), samples=np.array([3, 1])
    )
    plain = {"name": "paged", "prefix_caching": False, "cached_recompute": False}
    default, apart, found = (
        run(1024, stream, **changes).metrics
        for changes in ({}, {"policy": plain}, {"engine": {"like": "0.33", "max_num_seqs": 16}})
    )
    assert apart["prefill_tokens"] == 3 * 64 + 40
    # three of four blocks of the prompt are found: its last token is always computed
    for figures in (default, found):
        assert (figures["prefill_tokens"], figures["cached_tokens"]) == (64 + 2 * 16 + 40, 2 * 48)
    for figures in (default, apart, found):
        assert (figures["requests"], figures["finished"], figures["dropped"]) == (2, 2, 0)
        tokens = figures["makespan_output_tokens_per_s"] * figures["makespan_s"]
        assert tokens == pytest.approx(4 * 8)


@pytest.mark.parametrize("like, share", [(None, 0.9), ("0.23", 0.9), ("0.33", 0.92)])
def test_the_share_of_the_memory_is_the_version_s(like: str | None, share: float) -> None:
    engine = {"name": "v1"} if like is None else {"name": "v1", "like": like}
    assert ServingSpec(model="m", engine=engine).gpu_memory_utilization == share  # type: ignore[arg-type]
    given = ServingSpec(model="m", engine=engine, gpu_memory_utilization=0.5)  # type: ignore[arg-type]
    assert given.gpu_memory_utilization == 0.5
