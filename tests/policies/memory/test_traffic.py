"""Are the bytes in the access streams those the model must move, at addresses the requests hold?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Demand
from policies.allocators.capabilities import Migrates
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES
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


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tokens", [20, 52])
def test_a_migration_copies_each_byte_to_its_own_place(order: str, tokens: int) -> None:
    options = POLICIES["odma"].Options.model_validate({"name": "odma", "align": 1})
    allocator = build(options, layout(order))
    assert allocator.reserve(0, Demand(20, 0, Prediction(5.0)), tokens)
    moves = allocator.able(Migrates)
    assert moves is not None
    move = moves.migrate(0)
    assert move is not None and move.left == 20 + 32
    extents = traffic.migration(allocator, [move], 1, 100)
    assert extents.write.tolist() == [False, True] * (len(extents.write) // 2)
    assert (extents.size[::2] == extents.size[1::2]).all()
    assert extents.size.max() <= 100
    assert extents.size[::2].sum() == tokens * 2 * allocator.layout.half_bytes
    new = covered(extents, extents.write)
    moves.settle()
    expected = [
        byte
        for half in allocator.layout.passes
        for start, size in zip(*allocator.extents(0, 1, half), strict=True)
        for byte in range(start, start + size)
    ]
    assert new == expected


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["int8_token_head", "int4_token_head"])
def test_scales_lie_with_their_vectors_in_every_layout(kind: str, order: str) -> None:
    head_bytes = load_model("llama-2-7b", [f"kv={kind}", "head_dim=32"]).kv_head_bytes
    assert head_bytes == {"int8_token_head": 32 + 4, "int4_token_head": 16 + 4}[kind]
    allocator = filled(POLICIES["paged"].Options(name="paged"), order, head_bytes)
    requests = np.arange(2, 7)
    whole = traffic.attention(allocator, requests, 1)
    heads = traffic.attention(allocator, requests, 1, traffic.Reading("head"))
    assert whole.size[~whole.write].sum() == 4 * head_bytes * (sum(STORED) - 5)
    assert whole.size[whole.write].sum() == 4 * head_bytes * 5
    moved = covered(whole, np.ones(len(whole.start), bool))
    assert len(moved) == len(set(moved))
    assert sorted(moved) == sorted(covered(heads, np.ones(len(heads.start), bool)))
    # an engine that reads one head reads whole vectors, the scales of no other
    assert (heads.size % head_bytes == 0).all()
    assert ((heads.start - allocator.layout.base) % head_bytes == 0).all()


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


class TestWindow:
    D = Descriptors(
        np.array([0, 0, 1]), np.array([0, 1000, 5000]), np.array([600, 400, 2000]),
        np.array([False, True, False]),
    )  # fmt: skip

    def test_begins_inside_each_engines_own_bytes(self) -> None:
        part = dealing.window(self.D, 3, 0.5, 300, 100)
        assert part.engine.tolist() == [0, 0, 1]
        assert part.start.tolist() == [500, 1000, 6000]
        assert part.size.tolist() == [100, 200, 300]
        assert part.write.tolist() == [False, True, False]

    def test_joined_layers_follow_on_each_engine(self) -> None:
        both = dealing.joined([self.D, self.D])
        assert both.engine.tolist() == [0, 0, 0, 0, 1, 1]
        assert both.start.tolist() == [0, 1000, 0, 1000, 5000, 5000]


@settings(max_examples=25)
@given(st.integers(0, 999), st.integers(1, 5))
def test_streams_at_once_progress_alike_on_each_engine_whatever_others_have(
    seed: int, engines: int
) -> None:
    """No piece begins before one whose middle comes sooner in its stream."""
    rng, parts = np.random.default_rng(seed), []
    for base in range(3):
        many = int(rng.integers(engines, 30))
        engine = np.sort(np.append(np.arange(engines), rng.integers(0, engines, many - engines)))
        size = rng.integers(1, 900, many)
        start = (base << 40) + np.cumsum(size) - size
        parts.append(Descriptors(engine, start, size, np.full(many, base == 1)))
    found = dealing.at_once(parts, engines, 256)
    assert found.size.max() <= 256 and (np.diff(found.engine) >= 0).all()
    for own in range(engines):
        alone = [Descriptors(*(each[part.engine == own] for each in part)) for part in parts]
        begun = [int(part.start[0]) for part in alone]
        mine = Descriptors(*(each[found.engine == own] for each in found))
        which = mine.start >> 40
        assert (mine.write == (which == 1)).all()
        assert sorted(covered(mine, mine.size > 0)) == sorted(
            byte for part in alone for byte in covered(part, part.size > 0)
        )
        passed = [
            (start - begun[n] + size / 2) / alone[n].size.sum()
            for n, start, size in zip(which, mine.start, mine.size, strict=True)
        ]
        assert (np.diff(passed) >= -1e-12).all()


def test_engines_that_have_more_than_others_hold_a_stream_up() -> None:
    assert dealing.balance(np.full(8, 100), 800.0, 1000.0) == 1
    assert dealing.balance(np.zeros(8, int), 800.0, 1000.0) == 1
    assert dealing.balance(np.array([100, 0, 0]), 800.0, 200.0) == 0.25  # by its port
    # 100 B/s for all, 30 for one: 2 x 60 B at 100 B/s, then 40 B at 30 B/s
    seconds = 120 / (2 * 30) + 40 / 30
    assert dealing.balance(np.array([60, 100]), 100.0, 30.0) == pytest.approx(160 / seconds / 100)
