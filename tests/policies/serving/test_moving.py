"""Does dropping merge the groups that it should, and cost what links and memory say?"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step_times import StepTimes
from policies.serving.building import kv_region
from policies.serving.drop_groups import (
    drop_plan,
    exchanged,
    lacking_bytes,
)
from tests.policies.small import spec

SHAPE = TransformerSpec(
    kind="model", name="heavy", layers=8, hidden=256, heads=4, kv_heads=4, head_dim=64,
    intermediate=1024, vocabulary=1000, max_position=4096, qkv_bias=False, tied_embeddings=False,
)  # fmt: skip
"""8 KiB of KV a token, 17.8 MB of weights: those of 2,180 tokens."""
LINK = "mooncake-rdma-400"
DROPPING: dict[str, Any] = {
    "cards": 4,
    "dropping": {"link": LINK, "every_s": 0.005, "frame": "64KiB"},
}


@functools.cache
def card(tokens: int) -> Device:
    """With room for so many tokens beside the weights; nothing is lost to refreshes, which streams
    as short as these meet by chance."""
    capacity = (-(-SHAPE.weight_bytes // (2 << 20)) << 21) + tokens * SHAPE.kv_token_bytes
    return load_device(
        "mlu370-x4", [f"capacity={capacity}B", "derate=1", "controller.refresh=none"]
    )


def test_a_plan_merges_the_two_smallest_until_enough_is_freed() -> None:
    cards = [(0,), (1,), (2,), (3,)]
    assert drop_plan(cards, 10, 1, 8) == [((0,), (1,))]
    assert drop_plan(cards, 10, 11, 8) == [((0,), (1,)), ((2,), (3,))]
    assert drop_plan(cards, 10, 99, 8)[2] == ((0, 1), (2, 3))
    assert len(drop_plan(cards, 10, 99, 2)) == 2 and drop_plan(cards, 10, 0, 8) == []
    assert drop_plan([(0, 1), (2,), (3,)], 10, 20, 8) == [((2,), (3,)), ((0, 1), (2, 3))]


def test_bytes_over_200_gigabits_take_what_they_must() -> None:
    link, tokens, layers = load_link(LINK, ["paths=[{post: 0ns, bandwidth: 25GB/s}]"]), 2560, 4
    expected = tokens * layers * SHAPE.kv_layer_bytes
    seconds, size = exchanged(link, SHAPE, tokens, range(layers), 256)
    assert seconds == pytest.approx(expected / 25e9 + 20e-6) and size == expected
    missing = SHAPE.weight_bytes - min(part.weight_bytes for part in stages_of(SHAPE, 2))
    assert lacking_bytes(SHAPE, 2, 1) == missing
    assert link.seconds(missing) == pytest.approx(missing / 25e9 + 20e-6)


def test_steps_beside_a_copy_take_longer_by_what_it_takes_of_the_memory() -> None:
    one = np.array([0.01])
    times = StepTimes(0.004, np.array([0.005]), 0.0, 0.0, 0.001, one, np.zeros(1))
    assert times.contended(8e9, 2000e9)[0] == pytest.approx(0.009 * 8 / 1992)
    apart = times._replace(weights_apart=True)  # read in another memory
    assert apart.contended(8e9, 2000e9)[0] == pytest.approx(0.005 * 8 / 1992)
    with pytest.raises(DescriptionError, match="takes all that the card"):
        times.contended(8e9, 8e9)


def test_a_device_that_translates_frames_of_another_size_is_refused() -> None:
    device = load_device("mlu370-x4", ["translation={frame: 2MiB}"])
    given = spec(cluster=DROPPING, memory={"fidelity": "analytic"})
    with pytest.raises(DescriptionError, match=r"cluster\.dropping maps frames of"):
        kv_region(device, SHAPE, given)  # before a run, not at its first drop
