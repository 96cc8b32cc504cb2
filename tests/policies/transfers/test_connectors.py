"""Do connectors go with every engine, allocator, model and option, and with each other: is every
request served once, does KV move, and is memory empty in the end?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from tests.policies.serving.test_sessions import talks
from tests.policies.small import Audited, run
from tests.rotation import rotated

LINK = "pcie5-h100-batched"
LONGEST = {"max_model_len": 1024}
ENGINES: dict[str, dict[str, Any]] = {
    "v1": {"name": "v1", **LONGEST}, "late": {"name": "v1", "async_scheduling": True, **LONGEST},
    "turns": {"name": "v1", "long_prefill_token_threshold": 64, **LONGEST},
    "rare": {"name": "v1", "prefill_schedule_interval": 3, **LONGEST},
    "packed": {"name": "v1", "packing": "first_fit", **LONGEST},
    "v0": {"name": "v0", **LONGEST}, "chunks": {"name": "v0", "chunked_prefill": True, **LONGEST},
    "swaps": {"name": "v0", "preemption": "swap", **LONGEST},
    "sglang": {"name": "sglang", "chunked_prefill_size": 512, **LONGEST},
}  # fmt: skip
TIERS: dict[str, dict[str, Any]] = {
    "whole": {}, "layers": {"layerwise": True}, "drive": {"ssd": {"bytes": "4MiB"}},
    "swap": {"pauses": {"policy": "swap"}}, "keep": {"pauses": {"policy": "keep"}},
    "fails": {"ssd": {"bytes": "4MiB"}}, "card": {},
    "outputs": {"host": {"offload_prompt_only": False}},
}  # fmt: skip
FAULTS: dict[str, list[dict[str, Any]]] = {
    "fails": [{"of": "host", "at_s": at_s} for at_s in (0.004, 0.03)],
    "card": [{"at_s": at_s, "down_s": 0} for at_s in (0.006, 0.03)],
}


def tiers(name: str = "whole", room: str = "4MiB") -> dict[str, Any]:
    given = TIERS[name]
    host = {"link": LINK, "cpu_bytes_to_use": room, **given.get("host", {})}
    return {**given, "host": host}


def pools(**changes: Any) -> dict[str, Any]:
    return {"prefill": {}, "decode": {}, "link": LINK, **changes}


def policy_of(engine: str) -> dict[str, Any]:
    if engine == "sglang":
        return {"name": "radix", "page": 8}
    caches = {"prefix_caching": True, "cached_recompute": True}
    return {"name": "paged", **caches}


@pytest.mark.parametrize(("engine", "way"), rotated(list(ENGINES), list(TIERS)))
def test_tiers_go_with_every_scheduler(engine: str, way: str) -> None:
    changes: dict[str, Any] = {"engine": ENGINES[engine], "policy": policy_of(engine)}
    seen = Audited(1024, talks(40, 10), tiers=tiers(way), faults=FAULTS.get(way, []), **changes)
    if way != "keep":
        assert seen.metrics["tiers"]["load"]["bytes"] > 0
    without = run(1024, talks(40, 10), **changes)
    assert (seen.result.finish_s != without.finish_s).any()


@pytest.mark.parametrize(("engine", "mode"), rotated(list(ENGINES), ["pull", "push", "layers"]))
def test_pools_go_with_every_scheduler(engine: str, mode: str) -> None:
    way = {"mode": "push", "transfer": "layers"} if mode == "layers" else {"mode": mode}
    seen = Audited(
        1024, talks(40, 10), pools=pools(**way), engine=ENGINES[engine], policy=policy_of(engine)
    )
    assert seen.metrics["pools"]["transfers"]["count"] >= 40


@pytest.mark.parametrize("engine", ["v1", "v0"])
@pytest.mark.parametrize("policy", ["paged", "odma"])
def test_of_several_samples_the_prompt_is_stored(engine: str, policy: str) -> None:
    rng, count = np.random.default_rng(3), 30
    stream = Requests(
        np.linspace(0.0, 0.06, count), np.full(count, 200), rng.integers(5, 60, count),
        np.arange(count) % 5, np.full(count, 160), samples=rng.integers(1, 4, count),
        tree=np.array([[-1, at] for at in range(5)]),
    )  # fmt: skip
    options: dict[str, Any] = {"engine": ENGINES[engine], "policy": {"name": policy}}
    seen = Audited(768 if policy == "paged" else 2048, stream, tiers=tiers("outputs"), **options)
    assert seen.metrics["tiers"]["load"]["bytes"] > 0
    both = Audited(2048, stream, pools=pools(), **options)
    assert both.metrics["pools"]["transfers"]["count"] == stream.samples.sum()
