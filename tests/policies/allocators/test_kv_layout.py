"""Does every token slot have the address the module's formula says?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import load_model
from policies.allocators.kv_layout import KvLayout, Units, kv_layout

TOKEN = KvLayout(base=1000, slots=100, layers=3, kv_heads=2, head_bytes=8)
HEAD = KvLayout(
    base=1000, slots=100, layers=3, kv_heads=2, head_bytes=8, dims=LAYOUTS["layer_kv_block_head"]
)


def half_start(layout: KvLayout, layer: int, half: int) -> int:
    """Slot 0 of a layer's K or V, where those are outermost."""
    return layout.base + (2 * layer + half) * layout.slots * layout.half_bytes


def units(start: list[int], tokens: list[int], size: int = 16) -> Units:
    return Units(np.array(start), np.array(tokens), np.full(len(start), size))


def pairs(extents: object) -> list[tuple[int, int]]:
    return list(zip(*(column.tolist() for column in extents), strict=True))  # type: ignore[attr-defined]


def test_halves_tile_the_region_layer_by_layer() -> None:
    starts = [half_start(TOKEN, layer, half) for layer in range(3) for half in (0, 1)]
    assert starts == [1000 + i * 1600 for i in range(6)]
    assert TOKEN.bytes == 9600 == TOKEN.slots * TOKEN.token_bytes


def test_blocks_that_touch_are_one_extent() -> None:
    held = units([32, 48, 0, 16], [16, 16, 16, 5])
    assert pairs(TOKEN.extents(held, 1, 1)) == [
        (half_start(TOKEN, 1, 1) + 32 * 16, 32 * 16),
        (half_start(TOKEN, 1, 1) + 0, 21 * 16),
    ]


def test_a_token_range_is_cut_out() -> None:
    held = units([32, 64], [16, 10])
    assert pairs(TOKEN.extents(held, 0, 0, 14, 18)) == [
        (1000 + 46 * 16, 2 * 16),
        (1000 + 64 * 16, 2 * 16),
    ]
    assert pairs(TOKEN.extents(held, 0, 0, 26, 26)) == []


def test_heads_outermost_part_a_unit_that_is_not_full() -> None:
    held = units([32, 64], [7, 5])
    at = half_start(HEAD, 0, 1)
    assert pairs(HEAD.extents(held, 0, 1)) == [
        (at + 32 * 16, 7 * 8), (at + 32 * 16 + 16 * 8, 7 * 8),
        (at + 64 * 16, 5 * 8), (at + 64 * 16 + 16 * 8, 5 * 8),
    ]  # fmt: skip


def test_heads_of_a_full_unit_touch_each_other_and_the_next_unit() -> None:
    held = units([32, 48], [16, 5])
    at = half_start(HEAD, 0, 1)
    assert pairs(HEAD.extents(held, 0, 1)) == [
        (at + 32 * 16, 2 * 16 * 8 + 5 * 8),
        (at + 48 * 16 + 16 * 8, 5 * 8),
    ]


def test_one_head_has_an_extent_in_each_unit() -> None:
    held = units([32, 48], [16, 5])
    at = half_start(HEAD, 0, 1)
    assert pairs(HEAD.extents(held, 0, 1, head=1)) == [
        (at + 32 * 16 + 16 * 8, 16 * 8),
        (at + 48 * 16 + 16 * 8, 5 * 8),
    ]


def test_the_regions_of_the_shipped_pairs() -> None:
    layout = kv_layout(load_device("mlu370-x4"), load_model("deepseek-r1-distill-qwen-7b"))
    assert layout.base % (2 << 20) == 0 and layout.base >= 15_231_233_024
    assert layout.base + layout.bytes <= 0.9 * (24 << 30)
    assert layout.slots == 138_816
    assert layout.half_bytes == 1024


@pytest.mark.parametrize("share", [0.1, 0.55])
def test_weights_that_do_not_fit_are_the_users_error(share: float) -> None:
    with pytest.raises(DescriptionError, match=r"too small for llama-2-7b: the weights take"):
        kv_layout(load_device("mlu370-x4", ["capacity=20GiB"]), load_model("llama-2-7b"), share)
