"""HCache: does a lone load end when the closed form says, and is what is lost computed?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import load_model
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.hidden_states import PROFILED, HiddenStates, Projections
from policies.transfers.kv_link import IN, KvLink, Transfer
from policies.transfers.tier_options import HcacheSpec
from policies.transfers.tier_store import TierLoad
from policies.transfers.transfer import TransferEnd
from tests.policies.transfers.test_tiers import AGAIN, served, slow, tiers

DEVICE = load_device("a100-80gb", ["compute.prefill_efficiency=0.65"])
FAR, NEAR = (
    TransferEnd(LAYOUTS["layer_kv_token"], block, np.arange(PROFILED // block) * 2)
    for block in (64, 16)
)


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


def test_what_does_not_come_is_computed_and_not_projected(tmp_path: Any) -> None:
    way = kept({"layers": 2}, **slow(tmp_path))
    found = served(AGAIN, tiers=way, faults=[{"of": "host", "at_s": 2.05}]).metrics
    assert found["cached_tokens"] == 0
    assert found["tiers"]["dropped"] == 1
