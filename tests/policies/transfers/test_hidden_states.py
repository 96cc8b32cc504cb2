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
from hwmodel.specs.transformer import load_model
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.hidden_states import PROFILED, HiddenStates, Projections, Work
from policies.transfers.kv_link import IN, KvLink, Transfer
from policies.transfers.restoring import hidden_bytes
from policies.transfers.tier_options import HcacheSpec
from policies.transfers.tier_store import TierLoad
from policies.transfers.transfer import TransferEnd
from tests.policies.serving.test_sessions import talks
from tests.policies.small import MODEL, Audited
from tests.policies.transfers.test_tiers import AGAIN, ENGINE, served, slow, tiers

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


@pytest.mark.parametrize(("idle_s", "longer_s"), [(0.5, 0.0), (0.25, 0.5), (0.0, 1.0)])
def test_where_cores_idle_a_step_is_longer_only_by_the_rest(idle_s: float, longer_s: float) -> None:
    """As above: in 1 s come 0.5 s of work; steps that are longer bring half as much again."""
    queue = KvLink()
    projections = Projections(queue)
    projections.put(0, Work(0, 5))
    queue.put(load(8, 10.0, 0))
    assert projections.step(1.0, idle_s) == pytest.approx(longer_s)


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
