"""With prefill and decode apart, does every request's KV move once, and is nothing lost?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import load_link
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from policies.transfers.transfer import TransferEnd, transfer
from tests.policies.small import MODEL, Audited, mixed, requests, run
from tests.policies.small import spec as serving
from tests.rotation import LONG

LINK = "pcie5-h100-batched"
ENGINE = {"name": "v1", "max_model_len": 1024}
LENGTH = {"async_scheduling": True, "ends": "length"}
DIMS = LAYOUTS["layer_kv_token"]


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


def served(stream: Requests, slots: int = 1024, **changes: Any) -> ServingResult:
    return run(slots, stream, **described(changes))


def watched(stream: Requests, slots: int = 1024, **changes: Any) -> Audited:
    return Audited(slots, stream, **described(changes))


@settings(max_examples=200 if LONG else 10)
@given(
    st.integers(0, 1 << 16),
    st.sampled_from([("pull", "whole"), ("push", "whole"), ("push", "layers")]),
    st.lists(
        st.tuples(st.sampled_from(["prefill", "decode"]), st.integers(0, 1), st.floats(1e-3, 0.2)),
        max_size=6,
    ),
    st.sampled_from([(16, 1024), (32, 1024), (16, 512)]),
    st.booleans(),
    st.sampled_from([{}, {"async_scheduling": True}, LENGTH]),
)
def test_all_that_leaves_arrives_once_or_is_dropped_and_no_block_or_token_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, way: tuple[str, str],
    fails: list[tuple[str, int, float]], room: tuple[int, int], late: bool, ahead: dict[str, Any],
) -> None:  # fmt: skip
    link = slow(tmp_path_factory.getbasetemp(), "5ms") if late else LINK
    rng, count = np.random.default_rng(seed), 24
    stream = requests(
        np.sort(rng.random(count) * 0.1), rng.integers(1, 300, count), rng.integers(1, 40, count)
    )
    shared = np.where(rng.random(count) < 0.5, 0, -1)
    stream = Requests(
        stream.arrival_s, np.maximum(stream.prompt_tokens, 100), stream.output_tokens, shared,
        np.where(shared == 0, 96, 0), tree=np.array([[-1, 0]]),
    )  # fmt: skip
    found = watched(
        stream, slots=room[1], prefill={"replicas": 2}, mode=way[0], transfer=way[1], link=link,
        decode={"replicas": 2, "policy": {"name": "paged", "block": room[0]}},
        faults=[
            {"side": pool, "replica": number, "at_s": at_s, "down_s": 0.02}
            for pool, number, at_s in fails
        ],
        ahead=ahead,
    )  # fmt: skip
    if not fails:
        moving = stream.output_tokens > 1
        last = [sent for sent in found.came if sent.last]  # type: ignore[attr-defined]
        assert sorted(sent.request for sent in last) == np.flatnonzero(moving).tolist()


@pytest.mark.parametrize("ahead", [{}, {"async_scheduling": True}, LENGTH])
def test_the_second_token_waits_for_a_transfer_from_real_blocks_of_both_sides(
    ahead: dict[str, Any],
) -> None:
    stream = requests([0.0], 160, 2)
    near = run(1024, stream, engine=ENGINE | ahead)
    far = served(stream, ahead=ahead)
    ids = np.arange(10)
    moved = transfer(
        load_link(LINK), MODEL, 160, TransferEnd(DIMS, 16, ids), TransferEnd(DIMS, 16, ids)
    )
    # one card that schedules ahead has both tokens a step later, which pools do not count
    step_s = near.finish_s[0] - near.first_token_s[0] if ahead else 0.0
    later = far.finish_s[0] - (near.finish_s[0] - step_s)
    assert far.first_token_s[0] == pytest.approx(near.first_token_s[0] - step_s)
    assert later == pytest.approx(moved.cost.total_ns / 1e9, rel=1e-6)
    assert far.metrics["pools"]["transfers"]["descriptors"] == moved.pieces.descriptors


def test_layer_by_layer_only_the_last_layer_s_part_of_a_short_transfer_shows() -> None:
    stream = requests([0.0], 160, 2)
    near, far = run(1024, stream, engine=ENGINE), served(stream, mode="push", transfer="layers")
    whole = served(stream, mode="push")
    cost_s = whole.finish_s[0] - near.finish_s[0]
    step_s = near.first_token_s[0]
    expected = max(step_s / 2 + cost_s - step_s, cost_s / 2)
    assert far.finish_s[0] - near.finish_s[0] == pytest.approx(expected, rel=1e-6)


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


def test_a_prompt_whose_prefill_side_fails_is_computed_again_with_its_first_token(
    tmp_path: Path,
) -> None:
    stream = requests([0.0], 160, 5)
    fails = [{"side": "prefill", "replica": 0, "at_s": 0.05, "down_s": 0.1}]
    found = watched(stream, link=slow(tmp_path), faults=fails)
    failures = found.metrics["pools"]["failures"]
    assert failures == {"replicas": 1, "again": 1, "dropped_transfers": 1}
    assert found.result.first_token_s[0] < 0.05 < 0.15 < found.result.finish_s[0] - 0.1


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
