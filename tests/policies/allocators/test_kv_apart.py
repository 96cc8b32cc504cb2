"""Where do a token's dense numbers, sparse entries and scales lie, and is each byte moved once?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.allocator import Limits
from policies.allocators.kv_apart import Apart, apart
from policies.allocators.kv_layout import KvLayout, kv_layout
from policies.allocators.registry import POLICIES
from policies.memory import traffic
from policies.memory.batch import BatchSpec, place
from tests.rotation import spread

DEVICE = load_device("mlu370-x4")
WIDE = load_model("llama-2-7b").model_copy(update={"layers": 2})
GROUPED = WIDE.model_copy(update={"heads": 8, "kv_heads": 4})
FORMATS = ["oaken", "oaken_two_groups", "oaken_behind", "oaken_16", "kvquant", "atom", "tender"]


def layout_of(model: TransformerSpec, kv: str, dims: str, slots: int = 4096) -> KvLayout:
    return kv_layout(DEVICE, model.stored_as(None, kv), dims=LAYOUTS[dims], tokens=slots)


def batch_of(layout: KvLayout, policy: Any, context: int = 300) -> tuple[Any, Any]:
    spec = BatchSpec.model_validate(
        {
            "policy": policy if isinstance(policy, dict) else {"name": policy},
            "sequences": 3,
            "context": context,
            "age": 20,
        }
    )
    limits = Limits(spec.context, 4096)
    allocator = POLICIES[spec.policy.name](layout, spec.requests(), limits, spec.policy)
    return allocator, place(allocator, spec, np.random.default_rng(1))


def overlap(found: Any) -> bool:
    order = np.argsort(found.start, kind="stable")
    ends = (found.start + found.size)[order]
    return bool((found.start[order][1:] < ends[:-1]).any())


@pytest.mark.parametrize(("kv", "dims"), spread(FORMATS, LAYOUTS, every=3))
def test_every_byte_of_a_batch_is_moved_once_and_inside_the_region(kv: str, dims: str) -> None:
    layout = layout_of(GROUPED, kv, dims)
    moved = 0
    for layer in range(2):
        allocator, batch = batch_of(layout, "paged")
        found = traffic.attention(allocator, batch, layer)
        assert not overlap(found)
        assert found.start.min() >= layout.base
        assert (found.start + found.size).max() <= layout.base + layout.bytes
        moved += found.size.sum()
    mean = 3 * 301 * GROUPED.stored_as(None, kv).kv_token_bytes
    assert moved == pytest.approx(mean, rel=0.02)  # sparse entries: lengths of 19 places, repeated


def test_a_shard_has_scales_of_its_own() -> None:
    half = shard(load_model("llama-2-70b").stored_as(None, "oaken"), 2)
    assert half.kv_layer_bytes == round(2 * (4 * (64 + 12.8) + 12))
    # a bias of 16 bits for each of 4 x 128 channels and 256 tokens
    assert apart(GROUPED.stored_as(None, "tender")) == Apart(0.0, 0, 128, 0, 4, False)
    # and of one head of 64: four bits, which take a byte
    narrow = GROUPED.model_copy(update={"kv_heads": 1, "head_dim": 64})
    assert apart(narrow.stored_as(None, "tender")) == Apart(0.0, 0, 64, 0, 1, False)
