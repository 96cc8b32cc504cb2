"""With prefill and decode apart, are both sides laid out, counted and freed as they should be?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.kv_order import LAYOUTS
from policies.requests.requests import Requests
from tests.policies.small import Audited, mixed, run
from tests.policies.small import spec as serving

LINK = "pcie5-h100-batched"
ENGINE = {"name": "v1", "max_model_len": 1024}


def pools(**changes: Any) -> dict[str, Any]:
    given = {name: changes.pop(name, {}) for name in ("prefill", "decode")}
    return {**given, "link": LINK, **changes}


def slow(folder: Path, latency: str = "100ms") -> str:
    link = folder / "slow.yaml"
    link.write_text(f"kind: link\nname: slow\nbased_on: nvme-pcie4\nlatency: {latency}\n")
    return str(link)


def described(changes: dict[str, Any]) -> dict[str, Any]:
    policy, faults = changes.pop("policy", {"name": "paged"}), changes.pop("faults", [])
    engine = {**ENGINE, **changes.pop("ahead", {})}
    return {"engine": engine, "policy": policy, "faults": faults, "pools": pools(**changes)}


def watched(stream: Requests, slots: int = 1024, **changes: Any) -> Audited:
    return Audited(slots, stream, **described(changes))


def test_unlike_pools_keep_heads_together_unless_a_layout_is_given() -> None:
    heads, token = LAYOUTS["layer_kv_block_head"], LAYOUTS["layer_kv_token"]
    for decode, around, expected in (
        ({}, {}, (None, None)),
        ({"tensor_parallel": 2}, {}, (heads, heads)),
        ({"tensor_parallel": 2, "kv_layout": "layer_kv_token"}, {}, (heads, token)),
        ({"tensor_parallel": 2}, {"kv_layout": "layer_kv_token"}, (token, token)),
    ):
        pools = {"prefill": {}, "decode": decode, "link": LINK}
        spec = serving(pools=pools, **around)
        assert spec.pools is not None
        sides = spec.pools.prefill, spec.pools.decode
        assert tuple(spec.pooled(side).kv_layout for side in sides) == expected


@pytest.mark.parametrize("seed", [47, 52, 73, 88])
def test_sides_that_wait_for_each_other_s_blocks_after_failures_come_free(
    tmp_path: Path, seed: int
) -> None:
    rng, count = np.random.default_rng(seed), 24  # seeds with which they do, or KV comes in vain
    at_s, prompt = np.sort(rng.random(count) * 0.05), rng.integers(100, 300, count)
    output, shared = rng.integers(1, 60, count), np.where(rng.random(count) < 0.5, 0, -1)
    tree = np.array([[-1, 0]])
    stream = Requests(at_s, prompt, output, shared, np.where(shared == 0, 96, 0), tree=tree)
    sides = ("prefill", "decode")
    fails = [
        {
            "side": sides[rng.integers(2)],
            "replica": 0,
            "at_s": rng.random() * 0.1 + 1e-4,
            "down_s": 0.01,
        }
        for _ in range(rng.integers(0, 8))
    ]
    side = {"replicas": 2, "policy": {"name": "paged", "block": 32 if seed % 2 else 16}}
    found = watched(
        stream, slots=512 if seed % 2 else 448, prefill={"replicas": 1 + seed % 2}, decode=side,
        mode="push", transfer="layers" if seed % 3 == 2 else "whole", faults=fails,
        link=slow(tmp_path, "5ms"),
    )  # fmt: skip
    assert found.metrics["finished"] == count


def test_cells_of_pools_serve_what_each_serves_alone() -> None:
    """Two cells of one replica a side: requests in turn, transfers and tokens of both together."""
    stream = mixed(40)
    sides = {"prefill": {"replicas": 2}, "decode": {"replicas": 2}}
    whole = run(1024, stream, pools=pools(**sides), cluster={"cards": 4, "cells": 2}).metrics
    assert whole["finished"] == 40
    found = whole["pools"]
    assert [found[side]["replicas"] for side in ("prefill", "decode")] == [2, 2]
    moving = int((stream.output_tokens > 1).sum())
    assert found["transfers"]["count"] == moving
    computed = found["prefill"]["prefill_tokens"] + found["prefill"]["cached_tokens"]
    assert computed == stream.prompt_tokens.sum()
