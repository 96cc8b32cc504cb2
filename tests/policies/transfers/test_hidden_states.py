"""HCache served: do hidden states move, and come back as K and V, as the closed forms say?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import load_model, shard
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.requests.requests import Requests
from policies.transfers.hidden_states import PROFILED, HiddenStates, Projections, Work
from policies.transfers.kv_link import IN, KvLink, Transfer
from policies.transfers.restoring import hidden_bytes
from policies.transfers.tier_options import HcacheSpec
from policies.transfers.tier_store import TierLoad
from policies.transfers.transfer import TransferEnd
from tests.policies.serving.test_sessions import talks
from tests.policies.small import EXPERTS, MODEL, WINDOWS, Audited
from tests.policies.transfers.test_tiers import AGAIN, ENGINE, served, slow, tiers
from tests.rotation import long

DEVICE = load_device("a100-80gb", ["compute.prefill_efficiency=0.65"])
FAR, NEAR = (
    TransferEnd(LAYOUTS["layer_kv_token"], block, np.arange(PROFILED // block) * 2)
    for block in (64, 16)
)
OUTPUTS = {"offload_prompt_only": False, "block_size": 16}


def kept(hcache: dict[str, Any], **host: Any) -> dict[str, Any]:
    return tiers({"hcache": hcache, **host})


def load(size: int, seconds: float, request: int = 0) -> Transfer:
    """Of a request, to the device."""
    return Transfer(
        ends=(IN,), bytes=size, descriptors=1, alone_s=seconds, what=TierLoad(request, ())
    )


def states(model: str, link: str, layers: int | None = None) -> HiddenStates:
    spec, shape = HcacheSpec(layers=layers), load_model(model)
    steps = StepModel(DEVICE, shape)
    return HiddenStates(spec, load_link(link), DEVICE, shape, steps, (FAR, NEAR))


@pytest.mark.parametrize("layers", [1, 2])
def test_what_moves_is_tokens_times_layers_times_a_hidden_state(layers: int) -> None:
    found = served(AGAIN, tiers=kept({"layers": layers}, block_size=16)).metrics["tiers"]
    token = layers * hidden_bytes(MODEL)
    assert found["load"]["bytes"] == 160 * token
    assert found["load"]["descriptors"] == 10 * layers
    stored = found["store"]["bytes"] * found["store"]["transfers"]
    assert stored == pytest.approx((160 + 496 + 32) * token)


def test_cards_of_a_stage_make_their_heads_of_the_same_hidden_states() -> None:
    """Over each card's link come whole hidden states; the host has them once. Each of two stages
    has half of them."""
    alone, split, stages = (
        served(
            AGAIN, slots, tiers=kept({"layers": many}, block_size=16), **changes
        ).metrics["tiers"]
        for many, slots, changes in (
            (2, 512, {}), (2, 256, {"tensor_parallel": 2}), (1, 256, {"cluster": {"stages": 2}})
        )
    )  # fmt: skip
    assert split["load"]["bytes"] == alone["load"]["bytes"] == 2 * stages["load"]["bytes"]
    assert split["hcache"]["compute_s"] == pytest.approx(alone["hcache"]["compute_s"] / 2)
    spec, shape = HcacheSpec(layers=20), shard(load_model("llama-2-7b"), 4)
    link, steps = load_link("pcie5-h100-batched"), StepModel(DEVICE, shape, 4)
    made = HiddenStates(spec, link, DEVICE, shape, steps, (FAR, NEAR), 1, 4, ("kv",))
    assert made.token_bytes == 20 * hidden_bytes(shape) + 4 * 12 * shape.kv_layer_bytes
    own, every = (
        made.transfer(link, shape, 640, FAR, NEAR, every=way).pieces.bytes for way in (False, True)
    )
    assert own == 640 * (20 * hidden_bytes(shape) + 12 * shape.kv_layer_bytes)
    assert every == 640 * made.token_bytes


@pytest.mark.parametrize(
    ("shape", "slots", "rest"), [(WINDOWS, 1536, "kv"), (EXPERTS, 768, "recompute")]
)
def test_layers_with_a_window_keep_what_is_in_it(shape: Any, slots: int, rest: str) -> None:
    """Of 2 layers that keep all one by hidden states, of 4 with windows of 40 the last 3 blocks."""
    way = kept({"layers": 1}, block_size=16)
    found = served(AGAIN, slots, tiers=way, shape=shape).metrics["tiers"]
    moved = 160 * hidden_bytes(shape)
    if shape is WINDOWS:
        moved += (160 + 4 * 48) * shape.kv_layer_bytes
    assert (found["load"]["bytes"], found["hcache"]["rest"]) == (moved, rest)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_lone_request_waits_for_link_or_cores_whichever_takes_longer(layers: int) -> None:
    """With one layer the other is recomputed, which takes longer than the link; with two not."""
    result = served(AGAIN, tiers=kept({"layers": layers}, block_size=16))
    there = served(AGAIN, slots=1 << 14)
    found = result.metrics["tiers"]
    link_s, compute_s = found["load"]["ms"]["mean"] / 1e3, found["hcache"]["compute_s"]
    assert found["hcache"]["rest"] == ("recompute" if layers == 1 else None)
    assert (compute_s > link_s) == (layers == 1)
    waited_s = result.first_token_s[2] - there.first_token_s[2]
    assert waited_s == pytest.approx(max(link_s, compute_s), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "link", "rest"),
    [
        ("llama-2-7b", "pcie5-h100-batched", "kv"),
        ("llama-2-7b", "pcie4-a30-batched", None),
        ("llama-2-7b", "nvme-pcie4", "recompute"),
    ],
)
def test_a_lone_load_ends_as_soon_as_the_closed_form_says(model: str, link: str, rest: Any) -> None:
    hidden = states(model, link)
    assert hidden.split.rest == rest
    moved = hidden.transfer(load_link(link), load_model(model), PROFILED, FAR, NEAR)
    assert moved.pieces.bytes == hidden.split.bytes == PROFILED * hidden.token_bytes
    queue = KvLink()
    work = hidden.work(0, PROFILED, Efficiency())
    projections = Projections(queue)
    projections.put(0, work)
    queue.put(load(moved.pieces.bytes, moved.cost.total_ns / 1e9))
    link_s = queue.due_s
    queue.until(link_s)
    projections.came(0, ())
    projections.idle(link_s)
    assert projections.due_s == pytest.approx(hidden.split.total_s, rel=1e-3)
    assert sum(work) == pytest.approx(hidden.split.compute_s)


def test_layers_end_together_and_grouped_heads_fall_back_to_kv() -> None:
    split = states("llama-2-7b", "pcie4-a30-batched").split
    assert split.link_s == pytest.approx(split.compute_s, rel=1 / 32)
    grouped = states("llama-3.1-8b", "pcie4-a30-batched")
    assert (grouped.split.hidden_layers, grouped.split.rest) == (0, "kv")
    assert grouped.token_bytes == load_model("llama-3.1-8b").kv_token_bytes
    assert sum(grouped.work(0, 1000, Efficiency())) == 0


@given(
    steps=st.lists(st.floats(0.01, 3), max_size=30),
    works=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=4),
    idle=st.sets(st.integers(0, 30)),
)
@settings(max_examples=40)
def test_all_work_is_done_once_and_steps_are_longer_by_it(
    steps: list[float], works: list[tuple[float, float]], idle: set[int]
) -> None:
    """Links of a second each; steps of any length, and times without one between them."""
    queue = KvLink()
    projections = Projections(queue)
    for request, work in enumerate(works):
        projections.put(request, Work(*work))
        queue.put(load(8, 1.0, request))
    ready: list[int] = []
    added = rested = 0.0
    for at, step_s in enumerate([*steps, *[1.0] * 20]):
        before = projections.done_s
        if at not in idle:
            step_s += projections.step(step_s)
        end_s = queue.now_s + step_s
        while queue.now_s < end_s:
            last = queue.now_s
            for job in queue.until(end_s):
                projections.came(job.what.request, ())
            if at in idle:
                projections.idle(queue.now_s - last)
        if at not in idle:
            projections.stepped()
        done = projections.done_s - before
        added, rested = added + done * (at not in idle), rested + done * (at in idle)
        ready += [request for request, _ in projections.projected()]
    assert ready == list(range(len(works)))
    assert added + rested == pytest.approx(sum(map(sum, works)))


def test_a_step_shares_the_cores_with_the_layers_that_come_in_it() -> None:
    """A link of 10 s whose layers take 5: a step of 1 s takes 2, and half of its time projects."""
    queue = KvLink()
    projections = Projections(queue)
    projections.put(0, Work(0, 5))
    queue.put(load(8, 10.0, 0))
    assert projections.step(1.0) == pytest.approx(1.0)
    queue.until(2.0)
    projections.stepped()
    assert (projections.done_s, projections.wait_s) == pytest.approx((1.0, 0.0))
    assert projections.step(100.0) == pytest.approx(4.0)


def test_cores_have_done_what_is_lost_with_a_load() -> None:
    """As above, of which a second is projected when the host fails; then another such load."""
    queue = KvLink()
    projections = Projections(queue)
    for request in range(2):
        projections.put(request, Work(0, 5))
        queue.put(load(8, 10.0, request))
        projections.step(1.0)
        queue.until(queue.now_s + 2.0)
        projections.stepped()
        queue.clear("")
        projections.drop(request)
        assert (projections.done_s, projections.wait_s) == pytest.approx((request + 1.0, 0.0))


@pytest.mark.parametrize("block", [16, 48, 128])
def test_a_block_of_the_host_is_64_tokens_or_the_next_multiple_of_the_devices(block: int) -> None:
    one = Requests(np.zeros(1), np.array([384]), np.array([80]))
    policy = {"name": "paged", "block": block}
    found = served(one, tiers=kept({"layers": 2}), policy=policy, slots=768).metrics["tiers"]
    whole = 384 // (size := -(-64 // block) * block) * size
    assert found["store"]["bytes"] == whole * 2 * hidden_bytes(MODEL)


@pytest.mark.parametrize(("idle_s", "longer_s"), [(0.5, 0.0), (0.25, 0.5), (0.0, 1.0)])
def test_where_cores_idle_a_step_is_longer_only_by_the_rest(idle_s: float, longer_s: float) -> None:
    """As above: in 1 s come 0.5 s of work; steps that are longer bring half as much again."""
    queue = KvLink()
    projections = Projections(queue)
    projections.put(0, Work(0, 5))
    queue.put(load(8, 10.0, 0))
    assert projections.step(1.0, idle_s) == pytest.approx(longer_s)


def test_hidden_states_of_outputs_leave_while_a_request_decodes() -> None:
    """160 tokens of a prompt, then a block of 16 for each 16 outputs, the last of 15 not whole."""
    one = Requests(np.zeros(1), np.array([160]), np.array([80]))
    found = served(one, tiers=kept({}, **OUTPUTS)).metrics["tiers"]["store"]
    assert found["transfers"] == 1 + 4
    assert found["bytes"] * 5 == (160 + 64) * 2 * hidden_bytes(MODEL)
    late = served(one, tiers=tiers(OUTPUTS)).metrics["tiers"]["store"]
    assert late["transfers"] == 1  # KV of outputs leaves when it has ended


@pytest.mark.parametrize("hcache", [{"overlap": True}, *long({}, {"layers": 1})])
def test_every_request_ends_and_steps_advanced_together_are_as_one_by_one(
    hcache: dict[str, Any],
) -> None:
    stream, way = talks(40, 10), kept(hcache, **OUTPUTS)
    options = {"policy": {"name": "paged"}, "slots": 1024, "tiers": way}
    found, single = served(stream, **options), served(stream, **options, advance_together=False)
    assert found.metrics["finished"] == len(stream)
    assert (single.finish_s == found.finish_s).all()
    assert found.metrics["tiers"]["load"]["transfers"] > 0


@given(fails=st.lists(st.floats(1e-4, 0.1), max_size=4), layers=st.sampled_from((1, 2)))
@settings(max_examples=6)
def test_every_byte_that_leaves_arrives_once_or_is_dropped(fails: list[float], layers: int) -> None:
    way = kept({"layers": layers}, cpu_bytes_to_use="64KiB", **OUTPUTS)
    faults = [{"of": "host", "at_s": at_s} for at_s in fails]
    Audited(832, talks(30, 10), policy={"name": "paged"}, tiers=way, faults=faults, engine=ENGINE)


def test_what_does_not_come_is_computed_and_not_projected(tmp_path: Any) -> None:
    way = kept({"layers": 2}, **slow(tmp_path))
    found = served(AGAIN, tiers=way, faults=[{"of": "host", "at_s": 2.05}]).metrics
    assert found["cached_tokens"] == 0
    assert found["tiers"]["dropped"] == 1


def test_what_the_host_gave_up_comes_from_the_drive_first_and_is_projected_then() -> None:
    """31 blocks fit the host, those of the second prompt."""
    way = kept({"layers": 2}, block_size=16, cpu_bytes_to_use="124KiB")
    lost = served(AGAIN, tiers=way).metrics
    assert lost["cached_tokens"] == 0
    result, there = (
        served(AGAIN, slots, tiers={**way, "ssd": {"bytes": "1MiB"}}) for slots in (512, 1 << 14)
    )
    found = result.metrics["tiers"]
    assert found["ssd_share"] * found["looked_up_tokens"] == pytest.approx(160)
    assert found["read"]["bytes"] == found["load"]["bytes"] == 160 * 2 * hidden_bytes(MODEL)
    read_s, link_s = (found[kind]["ms"]["mean"] / 1e3 for kind in ("read", "load"))
    waited_s = result.first_token_s[2] - there.first_token_s[2]
    assert waited_s == pytest.approx(read_s + max(link_s, found["hcache"]["compute_s"]), rel=1e-4)


def test_a_preempted_request_finds_what_left_while_it_decoded() -> None:
    """Two requests outgrow 512 slots; whichever gives way has computed outputs that the host has,
    as KV alone of its prompt."""
    two = Requests(np.zeros(2), np.array([160, 160]), np.array([150, 150]))
    hidden, prompts = (
        served(two, tiers=way, policy={"name": "paged", "prefix_caching": True}).metrics
        for way in (kept({}, **OUTPUTS), tiers(OUTPUTS))
    )
    assert hidden["preemptions"] > 0 < prompts["preemptions"]
    assert hidden["prefill_tokens"] < prompts["prefill_tokens"]
