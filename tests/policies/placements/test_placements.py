"""Does every byte lie in one memory, and as much of it there as the placement says?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from policies.placements.placement import Placement, Space, Supply
from policies.placements.placements import PLACEMENTS

SUPPLIES = {"main": Supply(64 << 30, 3.0e12), "far": Supply(256 << 30, 1.0e12)}
SPACE = Space(1 << 24, 1024, 8 * 256, 8, layers_first=True)
"""Weights of 16 MiB, KV of 2 MiB in eight layers."""
PLANE = SPACE.slots * SPACE.slot_bytes // SPACE.layers


def placed(options: dict[str, Any], supplies: dict[str, Supply] = SUPPLIES) -> Placement:
    kind = PLACEMENTS[options["name"]]
    return kind(kind.Options.model_validate(options), supplies)


ONCE = [
    {"name": "apart", "kv": "far"},
    {"name": "apart", "weights": "far"},
    {"name": "interleaved"},
    {"name": "interleaved", "what": ["kv"], "by": "capacity", "page": "1KiB"},
    {"name": "interleaved", "by": {"main": 2, "far": 5}},
    {"name": "by_layer", "kv": "far", "share": 0.25},
]
"""Placements in which every byte lies once."""


@pytest.mark.parametrize("options", ONCE, ids=str)
@given(
    extents=st.lists(
        st.tuples(st.integers(0, PLANE - 1), st.integers(1, 9000)), min_size=1, max_size=20
    ),
    layer=st.integers(0, 7),
)
def test_every_byte_lies_in_one_memory(
    options: dict[str, Any], extents: list[tuple[int, int]], layer: int
) -> None:
    own = placed(options)
    start = np.array([low for low, _ in extents], np.int64) + layer * PLANE
    size = np.minimum(np.array([many for _, many in extents]), (layer + 1) * PLANE - start)
    parts = {name: own.part("kv", name, start, size, layer, SPACE) for name in SUPPLIES}
    moved = np.zeros(len(start), np.int64)
    for part in parts.values():
        assert (part.size > 0).all()
        assert (np.diff(part.source) >= 0).all()
        np.add.at(moved, part.source, part.size)
    assert moved.tolist() == size.tolist()


@pytest.mark.parametrize("options", ONCE, ids=str)
def test_a_memory_holds_what_it_says_without_holes_or_overlaps(options: dict[str, Any]) -> None:
    own, pages = placed(options), PLANE // 256
    for name in SUPPLIES:
        taken = []
        for layer in range(SPACE.layers):
            start = layer * PLANE + 256 * np.arange(pages)
            part = own.part("kv", name, start, np.full(pages, 256), layer, SPACE)
            taken += [np.arange(low, low + many) for low, many in zip(*part[:2], strict=True)]
        held = np.concatenate(taken) if taken else np.zeros(0, np.int64)
        assert len(np.unique(held)) == len(held)
        whole = SPACE.slots * SPACE.slot_bytes
        page = 4096 * 32  # of the longest turn
        assert abs(len(held) - own.held("kv").get(name, 0.0) * whole) <= page
        if len(held):
            assert held.min() == 0 and held.max() < len(held) + page


def test_pages_in_proportion_to_bandwidths() -> None:
    assert placed({"name": "interleaved"}).held("kv") == {"main": 0.75, "far": 0.25}
    by_size = placed({"name": "interleaved", "by": "capacity"}).held("kv")
    assert by_size == {"main": 0.2, "far": 0.8}
    only = placed({"name": "interleaved", "what": ["kv"]})
    assert only.held("weights") == {"main": 1.0}


def test_the_last_tokens_are_read_in_the_main_memory() -> None:
    own = placed({"name": "recent", "kv": "far", "tokens": 100})
    read = own.read("kv", np.array([50, 100, 350]))
    assert read == {"main": 0.5, "far": 0.5}
    assert own.held("kv") == {"far": 1.0}
    assert own.kept(8, 16) == {"main": 12800}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "apart", "kv": "fra"}, "memories.kv: the device has no memory 'fra'; did you"),
        ({"name": "recent", "kv": "main", "tokens": 8}, "main has the last tokens"),
        ({"name": "by_layer", "kv": "main"}, "the first layers lie in main"),
        ({"name": "interleaved", "by": {"main": 0}}, "no memory has a page"),
        ({"name": "interleaved", "by": {"man": 1}}, "did you mean 'main'"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        placed(options)


def test_layers_have_to_lie_together() -> None:
    own = placed({"name": "by_layer", "kv": "far"})
    mixed = SPACE._replace(layers_first=False)
    with pytest.raises(DescriptionError, match="begins with layer"):
        own.layers("far", mixed)
