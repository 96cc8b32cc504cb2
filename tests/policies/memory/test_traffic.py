"""Are the bytes in the access streams those the model must move, at addresses the requests hold?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.allocator import Demand
from policies.allocators.kv_layout import KvLayout
from policies.memory import dealing, traffic
from policies.predictors.predictor import Prediction
from tests.policies.allocators.settings import build, cases
from tests.rotation import spread

CASES = {name: options for name, options in cases() if not name.startswith("vattention")}
"""Its tensors have an order of their own: `test_vattention`."""
ORDERS = tuple(LAYOUTS)
SPREADS = ("slice", "sequence", "split")
STORED = [33, 1, 16, 90, 17]


def half_start(layout: KvLayout, layer: int, half: int) -> int:
    return layout.base + (2 * layer + half) * layout.slots * layout.half_bytes


def layout(order: str, head_bytes: int = 16) -> KvLayout:
    return KvLayout(4096, 8192, 2, 2, head_bytes, LAYOUTS[order])


def filled(options: Any, order: str = "layer_kv_token", head_bytes: int = 16) -> Any:
    """Five requests; the third came later into what two released ones left."""
    allocator = build(options, layout(order, head_bytes))
    for request, tokens in enumerate([40, 20, *STORED]):
        assert allocator.reserve(request, Demand(tokens, 0, Prediction(20.0), output=20), tokens)
        if request == 3:
            allocator.release(0)
            allocator.release(1)
    return allocator


def slots_of(allocator: Any, request: int) -> set[int]:
    units = allocator.units(request)
    return {
        start + i
        for start, tokens in zip(units.start, units.tokens, strict=True)
        for i in range(tokens)
    }


def covered(part: Any, which: np.ndarray) -> list[int]:
    return [
        byte
        for start, size in zip(part.start[which], part.size[which], strict=True)
        for byte in range(start, start + size)
    ]


@pytest.mark.parametrize(("name", "order"), spread(CASES, ORDERS, every=4))
def test_attention_reads_every_older_token_and_writes_the_new_one(name: str, order: str) -> None:
    allocator = filled(CASES[name], order)
    requests = np.arange(2, 7)
    extents = traffic.attention(allocator, requests, 1)
    half = allocator.layout.half_bytes
    assert extents.size[~extents.write].sum() == 2 * half * (sum(STORED) - 5)
    assert extents.size[extents.write].sum() == 2 * half * 5
    bytes_moved = covered(extents, np.ones(len(extents.start), bool))
    assert len(bytes_moved) == len(set(bytes_moved))
    if order == "layer_kv_token":
        held = {slot for request in requests for slot in slots_of(allocator, int(request))}
        k, v = (half_start(allocator.layout, 1, h) for h in (0, 1))
        assert {(b - k) // half for b in bytes_moved if b < v} == held
        assert {(b - v) // half for b in bytes_moved if b >= v} == held


@pytest.mark.parametrize("spread", SPREADS)
@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=30), engines=st.integers(1, 9),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_dealing_keeps_every_byte(spread: Any, sizes: list[int], engines: int, seed: int) -> None:
    size = np.array(sizes)
    owner = np.sort(np.random.default_rng(seed).integers(0, 5, len(size)))
    extents = traffic.Extents(
        np.cumsum(size + 7) - size, size, np.arange(len(size)) % 3 == 0, owner
    )
    dealt = dealing.deal(extents, engines, spread, 64)
    assert (np.diff(dealt.engine) >= 0).all() and dealt.engine.max() < engines
    assert dealt.size.min() > 0
    every = np.ones(len(size), bool)
    assert sorted(covered(dealt, np.ones(len(dealt.size), bool))) == covered(extents, every)
    assert sorted(covered(dealt, dealt.write)) == covered(extents, extents.write)
    drifting = dealing.deal(extents, engines, spread, 64, drift=1.0)
    for engine in range(engines):  # each walks in the same order, begun elsewhere
        if spread == "head_turn":  # of each head
            break
        walks = []
        for each in (dealt, drifting):
            own = each.engine == engine
            pairs = zip(each.start[own].tolist(), each.size[own].tolist(), strict=True)
            walks.append([at for start, many in pairs for at in range(start, start + many)])
        begin = walks[0].index(walks[1][0]) if walks[0] else 0
        assert walks[1] == walks[0][begin:] + walks[0][:begin]
        firsts = dealt.start[dealt.engine == engine]
        assert not walks[0] or min((walks[1][0] - at) % 64 for at in firsts) == 0
    loads = np.bincount(dealt.engine, dealt.size, engines)
    if spread == "slice":
        assert np.abs(loads - size.sum() / engines).max() <= 64
    if spread == "sequence":
        places = {
            o: set(dealt.engine[np.isin(dealt.start, extents.start[owner == o])]) for o in owner
        }
        assert all(len(place) == 1 for place in places.values())
