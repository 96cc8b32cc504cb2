"""Where do a token's dense numbers, sparse entries and scales lie, and is each byte moved once?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.allocator import Limits
from policies.allocators.capabilities import Migration
from policies.allocators.kv_apart import Apart, apart, lengths
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


def test_with_heads_read_apart_the_parts_add_up() -> None:
    layout = layout_of(GROUPED, "oaken", "layer_kv_block_head")
    allocator, batch = batch_of(layout, "paged")
    whole = traffic.attention(allocator, batch, 0).size.sum()
    apart = traffic.attention(allocator, batch, 0, traffic.Reading("head", 1)).size.sum()
    assert apart == whole
    mixed = layout_of(GROUPED, "oaken", "layer_kv_token")
    allocator, batch = batch_of(mixed, "paged")
    with pytest.raises(DescriptionError, match="head after token"):
        traffic.attention(allocator, batch, 0, traffic.Reading("head", 1))


def test_lengths_are_binomial() -> None:
    drawn = np.diff(lengths(128, 0.1))
    assert drawn.mean() == pytest.approx(12.8, abs=0.06)
    assert drawn.std() == pytest.approx(np.sqrt(128 * 0.1 * 0.9), rel=0.01)


def test_a_shard_has_scales_of_its_own() -> None:
    half = shard(load_model("llama-2-70b").stored_as(None, "oaken"), 2)
    assert half.kv_layer_bytes == round(2 * (4 * (64 + 12.8) + 12))
    # a bias of 16 bits for each of 4 x 128 channels and 256 tokens
    assert apart(GROUPED.stored_as(None, "tender")) == Apart(0.0, 0, 128, 0, 4, False)
    # and of one head of 64: four bits, which take a byte
    narrow = GROUPED.model_copy(update={"kv_heads": 1, "head_dim": 64})
    assert apart(narrow.stored_as(None, "tender")) == Apart(0.0, 0, 64, 0, 1, False)


@pytest.mark.parametrize("kv", ["oaken", "oaken_behind", "atom"])
def test_a_migration_moves_what_the_tokens_have(kv: str) -> None:
    layout = layout_of(GROUPED, kv, "layer_kv_block_head")
    move = Migration(request=0, source=64, target=1000, tokens=200, left=256)
    allocator: Any = SimpleNamespace(layout=layout, reserved=np.array([320]))
    moved = [traffic.migration(allocator, [move], layer, 4096) for layer in range(2)]
    read, written = (
        sum(int(found.size[found.write == write].sum()) for found in moved) for write in (0, 1)
    )
    assert read == written
    assert read == pytest.approx(200 * GROUPED.stored_as(None, kv).kv_token_bytes, rel=0.03)
