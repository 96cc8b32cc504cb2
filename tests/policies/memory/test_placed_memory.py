"""Do several memories take as long as arithmetic says, simulated and given?"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult, serve
from tests.policies.serving.test_moving import SHAPE
from tests.policies.small import FakeMemory, spec

FAR = "memory: given, given: {bandwidth: 100GB/s, efficiency: 1.0}, capacity: 1GiB"


@functools.cache
def device(
    overlap: str = "phase", far: str = FAR, main: str = "300GB/s", port: str = "null"
) -> Device:
    """Two memories whose rates are given."""
    return load_device(
        "rtx-pro-6000",
        [f"given={{bandwidth: {main}, efficiency: 1.0}}", "capacity=1GiB", "compute.overlap=max",
         f"memories.far={{{far}}}", f"memories_overlap={overlap}", f"memories_port={port}",
         "kernels={class: nvidia-gddr, weights: 1, kv: 1}"],
    )  # fmt: skip


def simulated() -> Device:
    """Two memories that are simulated."""
    far = "memory: lpddr5-6400-x16, channels: 4, interleave: 512B, capacity: 4GiB"
    return load_device("mlu370-x4", ["derate=1", f"memories.far={{{far}}}"])


def served(card: Device, memories: Any, **changes: Any) -> ServingResult:
    """Eight requests of 512 tokens that decode 64 together."""
    many = 8
    stream = Requests(np.zeros(many), np.full(many, 512), np.full(many, 64))
    own = spec(memories=memories, **changes)
    return serve(card, SHAPE, own, stream, seed=1, simulate=FakeMemory())


def rate(card: Device, memories: Any, phase: str = "attention") -> float:
    """Efficiency of a phase, as a share of the main memory's peak."""
    return float(served(card, memories).metrics["memory"]["efficiency"][phase])


def test_interleaved_in_proportion_memories_reach_their_sum() -> None:
    assert rate(device(), {"name": "interleaved"}) == pytest.approx(4 / 3)
    halves = {"name": "interleaved", "by": {"main": 1, "far": 1}}
    assert rate(device(), halves) == pytest.approx(2 / 3)  # the far one's half takes the longest
    in_turn = rate(device("none"), halves)
    assert in_turn == pytest.approx(1 / (0.5 + 0.5 * 3))


def test_what_cannot_be_placed_is_said() -> None:
    with pytest.raises(DescriptionError, match="no memory 'lpddr'; known: far, main"):
        served(device(), {"kv": "lpddr"})
    with pytest.raises(DescriptionError, match="has one memory"):
        served(load_device("mlu370-x4"), {"kv": "far"})


def test_what_a_card_costs_draws_and_measures_with_all_its_memories() -> None:
    settings = [
        "price={card: 1000, gb: 10}", "memories.lpddr.price_gb=5", "draw={card: 100, gbps: 0.1}",
        "memories.lpddr.draw_gbps=0.2", "area={card: 600, channel: 1.5}",
        "memories.lpddr.area_channel=2",
    ]  # fmt: skip
    card = load_device("hbm4-lpddr6", settings)
    far = card.memories["lpddr"]
    usd = 1000 + 10 * card.capacity_bytes / 1e9 + 5 * far.capacity_bytes / 1e9
    watts = 100 + 0.1 * card.peak_gbps + 0.2 * far.peak_gbps
    mm2 = 600 + 1.5 * card.channels + 2 * far.channels
    assert (card.price_usd, card.draw_watts, card.area_mm2) == pytest.approx((usd, watts, mm2))
    unknown = [f"memories.lpddr.{each}=null" for each in ("price_gb", "draw_gbps", "area_channel")]
    bare = load_device("hbm4-lpddr6", [*settings, *unknown])
    assert (bare.price_usd, bare.draw_watts, bare.area_mm2) == (None, None, None)
    assert load_device("hbm4-lpddr6", ["memories=null"]).memories == {}
    assert load_device("mlu370-x4").price_usd is None
    found = served(card, {"kv": "lpddr"}).metrics
    rate, per = found["output_tokens_per_s"], ("kusd", "watt", "mm2")
    each = [rate / found[f"tokens_per_s_per_{name}"] for name in per]
    assert each == pytest.approx([usd / 1000, watts, mm2]) and found["card_mm2"] == card.area_mm2
