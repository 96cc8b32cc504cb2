"""Does KV that the device has lost come back from the host, when its blocks have moved?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.specs.link import load_link
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from policies.transfers.transfer import TransferEnd, transfer
from tests.policies.serving.test_sessions import talks
from tests.policies.small import MODEL, Audited, run
from tests.rotation import LONG

LINK = "pcie5-h100-batched"
ENGINE = {"name": "v1", "max_model_len": 1024}
LENGTH = {"async_scheduling": True, "ends": "length"}


def tiers(host: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {"host": {"link": LINK, "cpu_bytes_to_use": "4MiB", **(host or {})}, **changes}


def served(stream: Requests, slots: int = 512, **changes: Any) -> ServingResult:
    return run(slots, stream, **{"engine": ENGINE, **changes})


AGAIN = Requests(
    np.arange(3) * 1.0, np.array([160, 496, 200]), np.full(3, 2), np.array([0, -1, 0]),
    np.array([160, 0, 160]), tree=np.array([[-1, 0]]),
)  # fmt: skip
"""A prompt of 160 tokens, another that overwrites it, and one that goes on from the first."""


def slow(folder: Path) -> dict[str, Any]:
    """A host behind a link that takes a tenth of a second."""
    link = folder / "slow.yaml"
    link.write_text("kind: link\nname: slow\nbased_on: nvme-pcie4\nlatency: 100ms\n")
    return {"link": str(link)}


def test_what_the_device_lost_is_loaded_over_the_link_from_real_blocks() -> None:
    metrics = served(AGAIN, tiers=tiers()).metrics
    found = metrics["tiers"]
    assert metrics["prefill_tokens"] == 160 + 496 + 40
    assert metrics["cached_tokens"] == 160
    assert found["host_share"] * found["looked_up_tokens"] == pytest.approx(160)
    ids = np.arange(10)
    dims = ("layer", "kv", "unit", "token", "head")
    end = TransferEnd(dims, 16, ids)
    moved = transfer(load_link(LINK), MODEL, 160, end, end)
    assert found["load"]["bytes"] == 160 * MODEL.kv_token_bytes == moved.pieces.bytes
    assert found["load"]["descriptors"] == moved.pieces.descriptors
    assert found["load"]["ms"]["mean"] == pytest.approx(moved.cost.total_ns / 1e6)


def test_a_store_takes_the_link_s_way_back(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    back = "paths_back: [{post: 1ms, bandwidth: 1GB/s, overlap: sum}]\n"
    other.write_text(f"kind: link\nname: other\nbased_on: {LINK}\n{back}")
    alike = served(AGAIN, tiers=tiers()).metrics["tiers"]
    found = served(AGAIN, tiers=tiers({"link": str(other)})).metrics["tiers"]
    assert found["load"]["ms"]["mean"] == pytest.approx(alike["load"]["ms"]["mean"])
    pieces = found["store"]["descriptors"]
    assert found["store"]["ms"]["mean"] > pieces * 1.0 > alike["store"]["ms"]["mean"]


def test_the_first_token_waits_for_the_load_and_no_more() -> None:
    """A prefill of 40 tokens behind 160, with the load before it."""
    result = served(AGAIN, tiers=tiers())
    load_s = result.metrics["tiers"]["load"]["ms"]["mean"] / 1e3
    there = served(AGAIN, slots=1 << 14)  # nothing is lost
    first = [each.first_token_s[2] - each.arrival_s[2] for each in (result, there)]
    assert first[0] - first[1] == pytest.approx(load_s, rel=1e-6)


def test_layer_by_layer_only_the_first_layer_s_load_shows() -> None:
    """Two layers: the load of the first, then whichever takes longer, then the last layer."""
    whole = served(AGAIN, tiers=tiers())
    by_layer = served(AGAIN, tiers=tiers(layerwise=True))
    there = served(AGAIN, slots=1 << 14)
    load_s = whole.metrics["tiers"]["load"]["ms"]["mean"] / 1e3
    step_s = there.first_token_s[2] - there.arrival_s[2]
    expected = max(load_s / 2 + step_s, load_s + step_s / 2)
    assert by_layer.first_token_s[2] - 2.0 == pytest.approx(expected, rel=1e-3)
    assert by_layer.first_token_s[2] < whole.first_token_s[2]


def test_nothing_is_loaded_that_the_device_has() -> None:
    metrics = served(AGAIN, slots=1 << 14, tiers=tiers()).metrics
    assert "load" not in metrics["tiers"]
    assert metrics["tiers"]["store"]["transfers"] == 3


def test_hits_are_whole_blocks_of_the_tier() -> None:
    found = served(AGAIN, tiers=tiers({"block_size": 64})).metrics
    assert found["cached_tokens"] == 128
    assert found["tiers"]["store"]["bytes"] > 0


def test_sooner_recomputes_where_the_link_is_slower_than_the_cores(tmp_path: Path) -> None:
    host = slow(tmp_path)
    found = served(AGAIN, tiers=tiers(host, load="sooner")).metrics
    assert found["tiers"]["recomputed_tokens"] == 160
    assert "load" not in found["tiers"]
    never = served(AGAIN, tiers=tiers(load="never")).metrics["tiers"]
    assert (never["recomputed_tokens"], "load" in never) == (160, False)
    assert served(AGAIN, tiers=tiers(host)).metrics["tiers"]["load"]["transfers"] == 1


def test_blocks_asked_for_once_are_not_stored_below_a_threshold() -> None:
    found = served(AGAIN, tiers=tiers({"store_threshold": 2})).metrics["tiers"]
    assert found["store"]["transfers"] == 1  # the prefix, when it came the second time
    assert found["store"]["bytes"] == 160 * MODEL.kv_token_bytes


def test_a_full_host_gives_up_blocks_and_a_drive_keeps_them() -> None:
    room = {"cpu_bytes_to_use": "124KiB"}  # 31 blocks, those of the second prompt
    lost = served(AGAIN, tiers=tiers(room)).metrics
    assert (lost["cached_tokens"], lost["tiers"]["evicted_blocks"]) == (0, 22)
    kept = served(AGAIN, tiers=tiers(room, ssd={"bytes": "1MiB"})).metrics
    assert kept["cached_tokens"] == 160
    assert kept["tiers"]["ssd_share"] == pytest.approx(160 / 856)
    assert kept["tiers"]["read"]["bytes"] == 160 * MODEL.kv_token_bytes
    pinned = served(AGAIN, tiers=tiers({**room, "eviction_policy": "pinned"})).metrics
    assert pinned["cached_tokens"] == 160


@pytest.mark.parametrize("layout", ["layer_kv_token", "block_layer_kv_token"])
def test_each_card_moves_its_heads_over_a_link_of_its_own_and_all_share_host_and_drive(
    layout: str,
) -> None:
    """The load of each of two cards is half of one card's, in as many descriptors; the host has
    room for as many tokens, and the drive's link carries the shards of both."""
    room = {"cpu_bytes_to_use": "124KiB"}
    one, two = (
        served(
            AGAIN, 512 // cards, tensor_parallel=cards, kv_layout=layout,
            tiers=tiers(room, ssd={"bytes": "1MiB"}),
        ).metrics["tiers"]
        for cards in (1, 2)
    )  # fmt: skip
    for kind in ("load", "store"):
        assert two[kind]["bytes"] * 2 == one[kind]["bytes"]
        assert two[kind]["descriptors"] == one[kind]["descriptors"]
    for kind in ("read", "write"):
        assert two[kind]["bytes"] == one[kind]["bytes"]
        assert two[kind]["descriptors"] == 2 * one[kind]["descriptors"]
    assert two["evicted_blocks"] == one["evicted_blocks"] > 0
    assert two["ssd_share"] == one["ssd_share"] > 0


@given(
    fails=st.lists(st.floats(1e-4, 0.1), max_size=4),
    slots=st.sampled_from((832, 1024)),
    room=st.sampled_from(("64KiB", "4MiB")),
    prompts=st.booleans(),
    policy=st.sampled_from(({"name": "paged"}, {"name": "radix", "page": 8})),
    late=st.sampled_from(({}, {"async_scheduling": True}, LENGTH)),
    card=st.lists(st.floats(1e-4, 0.1), max_size=3),
    way=st.sampled_from((
        {}, {"layerwise": True}, {"pauses": {"policy": "keep"}}, {"pauses": {"policy": "swap"}},
        {"host": {"hcache": {"layers": 2}, "block_size": 16}},
    )),
)  # fmt: skip
@settings(max_examples=200 if LONG else 12)
def test_every_transfer_arrives_once_or_is_dropped_whatever_is_preempted_or_fails(
    fails: list[float], slots: int, room: str, prompts: bool, policy: dict[str, Any],
    late: dict[str, Any], card: list[float], way: dict[str, Any],
) -> None:  # fmt: skip
    """Either end: the host, or the card."""
    stream = talks(30, 10)
    host = {"cpu_bytes_to_use": room, "offload_prompt_only": prompts, **way.get("host", {})}
    drive = {} if way.get("layerwise") else {"ssd": {"bytes": "2MiB"}}
    faults = [{"of": "host", "at_s": at_s} for at_s in (fails if drive else [])]
    faults += [{"at_s": at_s, "down_s": 0.0} for at_s in card]
    found = Audited(
        slots, stream, policy=policy, engine=ENGINE | late, faults=faults,
        tiers=tiers(**{**way, "host": host}, **drive),
    )  # fmt: skip
    assert found.metrics["finished"] == len(stream)
    # what is computed and what is found make up what was asked for
    computed = found.metrics["prefill_tokens"] + found.metrics["cached_tokens"]
    assert computed >= int(stream.prompt_tokens.sum())


def test_what_does_not_come_is_computed(tmp_path: Path) -> None:
    failing = [{"of": "host", "at_s": 2.05}]
    found = served(AGAIN, tiers=tiers(slow(tmp_path)), faults=failing)
    assert found.metrics["cached_tokens"] == 0
    assert found.metrics["prefill_tokens"] == 160 + 496 + 200
    assert found.metrics["tiers"]["dropped"] == 1
    lone = served(AGAIN)
    spent = found.finish_s[2] - lone.finish_s[2]
    assert spent == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("late", [{}, {"async_scheduling": True}])
def test_a_request_whose_card_fails_finds_its_prompt_at_the_host_and_goes_on(
    late: dict[str, Any],
) -> None:
    alone = Requests(np.zeros(1), np.array([160]), np.array([200]))
    whole = served(alone, tiers=tiers(), engine=ENGINE | late)
    fails = [float(whole.finish_s[0]) / 2]
    faults = [{"at_s": fails[0], "down_s": 0.0}]
    found = served(alone, tiers=tiers(), faults=faults, engine=ENGINE | late)
    again = found.metrics["prefill_tokens"] - 160
    assert 90 < again < 110  # the tokens made so far, and none of the prompt
    assert found.metrics["tiers"]["load"]["bytes"] == 160 * MODEL.kv_token_bytes
    assert (found.metrics["preemptions"], found.metrics["finished"]) == (0, 1)
    # a step more, of a scheduler that works ahead, is one of the run's
    assert found.first_token_s[0] == pytest.approx(whole.first_token_s[0], rel=0.01 if late else 0)
    assert whole.first_token_s[0] < fails[0] < found.finish_s[0]
    lone = served(alone, tiers=tiers(load="never"), faults=faults, engine=ENGINE | late)
    assert lone.metrics["prefill_tokens"] == 160 + 160 + again


def test_steps_beside_a_transfer_are_slower_by_its_share_of_the_dram() -> None:
    stream = talks(40, 10)
    options = {"policy": {"name": "paged"}, "slots": 1024}
    shared, apart, twice = (
        served(stream, tiers=way, **options).metrics["tiers"]["stalled_s"]
        for way in (tiers(), tiers(contention=False), tiers({"dram": "card"}))
    )
    assert apart == 0 < shared < twice


def test_the_host_s_dram_limits_the_link() -> None:
    dram = {"memory": "ddr5-4800-x32", "channels": 1}
    with_it, without = (
        served(AGAIN, tiers=tiers(host)).metrics["tiers"]["load"]["gbps"]
        for host in ({"dram": dram, "link": "pcie5-h100-kernel"}, {"link": "pcie5-h100-kernel"})
    )
    assert with_it <= without  # a lone load asks for less than a channel gives


def test_cards_share_the_host_s_dram() -> None:
    dram = {"memory": "ddr5-4800-x32", "channels": 1}
    alone, both = (
        Audited(
            512 // cards, AGAIN, tensor_parallel=cards, tiers=tiers({"dram": dram}), engine=ENGINE
        ).replicas[0].connectors[0].site.links.host().far_bandwidth
        for cards in (1, 2)
    )  # fmt: skip
    assert both == alone / 2
