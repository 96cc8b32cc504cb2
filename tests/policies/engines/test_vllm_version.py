"""Does `like` set what that version of vLLM does, and do explicit keys beat it?"""

from __future__ import annotations

import pytest

from policies.allocators.paged import PagedOptions
from policies.engines.engine_v1_options import EngineV1Spec
from tests.policies.small import spec

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
