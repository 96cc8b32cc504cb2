"""What does the order of KV cost where it is read, and what does a pad give back?"""

from __future__ import annotations

import math

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from policies.memory.layout_read import (
    GEOMETRIES,
    Geometry,
    LayoutRead,
    channels_engaged,
    layout_gbps,
)

HEADS = LAYOUTS["layer_kv_head_block"]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_channels_are_those_of_the_published_predictor(geometry: tuple[int, int]) -> None:
    card = load_device("strix-halo")
    heads, dim = geometry
    engaged = channels_engaged(card, LayoutRead(kv_heads=heads, head_dim=dim))
    spacing = Geometry(heads, dim).spacing_bytes
    assert spacing == heads * dim * 2
    pieces = -(-dim * 2 // 256)  # neighbours that a row has itself
    assert engaged == min(16 // math.gcd(spacing // 256, 16) * pieces, 16)
    assert channels_engaged(card, LayoutRead(kv_heads=heads, head_dim=dim, order=HEADS)) == 16
    padded = LayoutRead(kv_heads=heads, head_dim=dim, pad="16B")
    assert channels_engaged(card, padded) == 16
    hashed = load_device("strix-halo", ["channel_hash=rotate"])
    spread = channels_engaged(hashed, LayoutRead(kv_heads=heads, head_dim=dim))
    assert spread == (8 if spacing == 8192 else 16)  # it turns once in 4 KiB


def test_a_given_memory_has_no_layout() -> None:
    with pytest.raises(DescriptionError, match="given"):
        layout_gbps(load_device("rtx-4090"), LayoutRead(kv_heads=4))


def test_every_lpddr_device_says_whether_its_map_is_known() -> None:
    unsaid, known = [], []
    for name in names("accelerators"):
        card = load_device(name)
        if card.accelerator is not None:
            unsaid += [
                f"{name}, {which}"
                for which, other in card.accelerator.memories.items()
                if other.memory.startswith("lpddr") and other.channel_map is None
            ]
        if card.described is None or not card.described.name.startswith("lpddr"):
            continue
        assert card.accelerator is not None
        how = card.accelerator.channel_map
        unsaid += [name] * (how is None)
        if how == "known":
            known.append(name)
            assert not {"interleave", "channel_hash"} & card.assumed.keys()
    assert (unsaid, known) == ([], ["strix-halo"])
