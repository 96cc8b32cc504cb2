"""Does every byte lie in one memory, and as much of it there as the placement says?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from policies.placements.placement import (
    CardSpace,
    Heads,
    MemorySupply,
    PlacedBatch,
    PlacedExperts,
    Placement,
)
from policies.placements.placements import PLACEMENTS
from tests.rotation import LONG

SUPPLIES = {"main": MemorySupply(64 << 30, 3.0e12), "far": MemorySupply(256 << 30, 1.0e12)}
EXPERTS, EACH, LAYER = 16, (3 << 10, 1 << 10, 0), 1 << 18
"""Experts of a layer, what one has in its tensors, and the bytes of a layer's weights."""


class Falling:
    """Routed experts of which each is half as popular as the one before."""

    def chances(self, tokens: int) -> Any:
        return 1 - (1 - 0.5 ** np.arange(EXPERTS)) ** tokens

    def ranked(self, layer: int) -> Any:
        return (np.arange(EXPERTS) * 5 + layer) % EXPERTS


def tensors(layer: int) -> tuple[int, tuple[int, ...]]:
    """The first layer has no experts; those of the others end it."""
    each = (0, 0, 0) if layer == 0 else EACH
    return (layer + 1) * LAYER - EXPERTS * sum(each), each


SPACE = CardSpace(
    8 * LAYER, 1024, 8 * 256, 8, layers_first=True, run_bytes=128, heads=Heads(4, 32),
    experts=PlacedExperts(EXPERTS, 7 * sum(EACH), 8 * LAYER - EXPERTS * 7 * sum(EACH), tensors),
    heat=Falling(),
)  # fmt: skip
"""Weights of 2 MiB, KV of 2 MiB in eight layers, K and V each of four heads of 32 B."""
PLANE = SPACE.slots * SPACE.slot_bytes // SPACE.layers


def placed(options: dict[str, Any], supplies: dict[str, MemorySupply] = SUPPLIES) -> Placement:
    kind = PLACEMENTS[options["name"]]
    return kind(kind.Options.model_validate(options), supplies)


def batch(tokens: list[int], start: list[int] | None = None, routed: int = 0) -> PlacedBatch:
    many, first = np.array(tokens), np.array(start or [0] * len(tokens))
    return PlacedBatch(many, lambda: (first, many), routed)


ONCE = [
    {"name": "apart", "kv": "far"},
    {"name": "apart", "weights": "far"},
    {"name": "interleaved"},
    {"name": "interleaved", "what": ["kv"], "by": "capacity", "page": "1KiB"},
    {"name": "interleaved", "by": {"main": 2, "far": 5}},
    {"name": "by_layer", "kv": "far", "share": 0.25},
    {"name": "by_layer", "kv": "far", "share": 0.3},
    {"name": "by_request", "kv": "far"},
    {"name": "by_request", "kv": "far", "share": 0.3},
    {"name": "by_head", "kv": "far", "share": 0.25},
    {"name": "by_head", "kv": "far", "share": 0.6},
]
"""Placements in which every byte lies once."""


@pytest.mark.parametrize("options", ONCE, ids=str)
@settings(max_examples=1000 if LONG else 25)
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
        parts = [
            own.part(
                "kv", name, layer * PLANE + 256 * np.arange(pages), np.full(pages, 256), layer,
                SPACE,
            )
            for layer in range(SPACE.layers)
        ]  # fmt: skip
        start, size = (np.concatenate(each) for each in list(zip(*parts, strict=True))[:2])
        order = np.argsort(start)
        ends = (start + size)[order]
        assert (start[order][1:] >= ends[:-1]).all()
        page = 4096 * 32  # of the longest turn
        whole = own.held("kv", SPACE).get(name, 0.0) * SPACE.slots * SPACE.slot_bytes
        assert abs(size.sum() - whole) <= page
        if len(start):
            assert start.min() == 0 and ends[-1] < size.sum() + page


def test_pages_in_proportion_to_bandwidths() -> None:
    assert placed({"name": "interleaved"}).held("kv", SPACE) == {"main": 0.75, "far": 0.25}
    by_size = placed({"name": "interleaved", "by": "capacity"}).held("kv", SPACE)
    assert by_size == {"main": 0.2, "far": 0.8}
    only = placed({"name": "interleaved", "what": ["kv"]})
    assert only.held("weights", SPACE) == {"main": 1.0}


def test_the_last_tokens_are_read_in_the_main_memory() -> None:
    own = placed({"name": "recent", "kv": "far", "tokens": 100})
    read = own.read("kv", SPACE, batch([50, 100, 350]))
    assert read == {"main": 0.5, "far": 0.5}
    assert own.held("kv", SPACE) == {"far": 1.0}
    assert own.kept(8, 16) == {"main": 12800}


def test_requests_are_read_where_their_slots_are() -> None:
    own = placed({"name": "by_request", "kv": "far", "share": 0.25})  # 768 slots in main
    assert own.read("kv", SPACE, batch([100, 100], [0, 800])) == {"main": 0.5, "far": 0.5}
    assert own.read("kv", SPACE, batch([100], [718]))["main"] == 0.5  # at the bound
    assert own.read("kv", SPACE, batch([])) == own.held("kv", SPACE)
    beside = {"main": MemorySupply(3 << 20, 3.0), "far": MemorySupply(3 << 20, 1.0)}
    shared = placed({"name": "by_request", "kv": "far"}, beside)
    assert shared.held("kv", SPACE)["main"] == 0.25  # of 1 MiB beside the weights, and 3


@given(start=st.integers(0, LAYER - 1), size=st.integers(1, LAYER), layer=st.integers(0, 7))
def test_every_byte_of_the_weights_lies_in_one_memory(start: int, size: int, layer: int) -> None:
    own = placed({"name": "by_heat", "experts": "far", "share": 0.3})
    low, many = np.array([layer * LAYER + start]), np.array([min(size, LAYER - start)])
    parts = [own.part("weights", name, low, many, layer, SPACE) for name in SUPPLIES]
    assert sum(int(part.size.sum()) for part in parts) == many[0]


def test_experts_lie_by_heat_without_holes_or_overlaps() -> None:
    own = placed({"name": "by_heat", "experts": "far", "share": 0.3})
    whole = 0
    for name in SUPPLIES:
        end = 0
        for layer in range(SPACE.layers):
            at = np.array([layer * LAYER])
            part = own.part("weights", name, at, np.array([LAYER]), layer, SPACE)
            assert (part.start == np.concatenate(([end], end + np.cumsum(part.size)[:-1]))).all()
            end += int(part.size.sum())
        assert end == pytest.approx(own.held("weights", SPACE)[name] * SPACE.weight_bytes)
        whole += end
    assert whole == SPACE.weight_bytes
    first, each = tensors(3)
    coldest, hottest = (first + int(Falling().ranked(3)[rank]) * each[0] for rank in (-1, 0))
    where = np.array([coldest, hottest])
    found = own.part("weights", "far", where, np.array([each[0]] * 2), 3, SPACE)
    assert found.source.tolist() == [0] * len(found.source)


def test_few_tokens_read_few_cold_experts() -> None:
    own = placed({"name": "by_heat", "experts": "far", "share": 0.5})
    read = [own.read("weights", SPACE, batch([], routed=many))["far"] for many in (1, 64, 10**6)]
    cold = sum(0.5**rank for rank in range(8, 16)) * 7 * sum(EACH)
    assert SPACE.experts is not None
    all_read = SPACE.experts.beside_bytes + sum(0.5**n for n in range(16)) * 7 * sum(EACH)
    assert read[0] == pytest.approx(cold / all_read)
    assert read[0] < read[1] < read[2]
    assert read[2] == pytest.approx(own.held("weights", SPACE)["far"])


@pytest.mark.parametrize(
    ("options", "lacking", "said"),
    [
        ({"name": "by_head", "kv": "far"}, {"heads": None}, "several KV heads"),
        ({"name": "by_heat", "experts": "far"}, {"experts": None}, "a model with experts"),
    ],
)
def test_what_a_model_lacks_is_said(
    options: dict[str, Any], lacking: dict[str, Any], said: str
) -> None:
    what = "weights" if "experts" in options else "kv"
    with pytest.raises(DescriptionError, match=said):
        placed(options).held(what, SPACE._replace(**lacking))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "apart", "kv": "fra"}, "memories.kv: the device has no memory 'fra'; did you"),
        ({"name": "recent", "kv": "main", "tokens": 8}, "the last tokens lie in main"),
        ({"name": "by_layer", "kv": "main"}, "the first layers lie in main"),
        ({"name": "by_head", "kv": "main"}, "the first heads lie in main"),
        ({"name": "by_request", "kv": "main"}, "the first slots lie in main"),
        ({"name": "by_heat", "experts": "main"}, "the popular ones lie in main"),
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


@given(
    last=st.integers(1, 300), grown=st.lists(st.integers(1, 200), min_size=1, max_size=40)
)  # fmt: skip
def test_every_token_is_among_the_last_or_was_moved_or_never_among_them(
    last: int, grown: list[int]
) -> None:
    """However a request grows: what lies in the other memory came there once."""
    recent = placed({"name": "recent", "kv": "far", "tokens": last, "moves": True})
    stored = np.cumsum([0, *grown])
    moved = recent.moved(stored[:-1], stored[1:])
    at_once = np.maximum(stored[1:] - last - stored[:-1], 0)
    assert (moved >= 0).all() and (moved <= last).all()
    assert moved.sum() + at_once.sum() == max(stored[-1] - last, 0)
    assert not placed({"name": "recent", "kv": "far", "tokens": last}).moves
