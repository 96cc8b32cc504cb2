"""KV that comes from elsewhere and goes there: its pieces, and runs that stay where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import RUN_BLOCK, Demand, PolicyOptions
from policies.allocators.block_allocator import BlockAllocator
from policies.allocators.capabilities import Caches, Contiguous
from policies.allocators.kv_layout import Units
from policies.allocators.registry import POLICIES
from policies.predictors.prediction import Prediction
from tests.policies.allocators.contract import LAYOUT, LIMITS, Hands, build, cases
from tests.policies.allocators.test_windows import POLICY, Lives


def slots(units: Units) -> np.ndarray:
    """Of each token, in token order."""
    runs = zip(units.start.tolist(), units.tokens.tolist(), strict=True)
    return np.concatenate([start + np.arange(count) for start, count in runs])


@pytest.mark.parametrize("options", [pytest.param(each, id=name) for name, each in cases()])
def test_pieces_are_where_the_tokens_lie(options: PolicyOptions) -> None:
    allocator = build(options)
    block = allocator.transfer_block
    assert block == RUN_BLOCK or not isinstance(allocator, Contiguous)
    assert not isinstance(allocator, BlockAllocator) or block == allocator.block
    rng = np.random.default_rng(3)
    for request in range(4):
        demand = Demand(int(rng.integers(30, 90)), 0, Prediction(40.0), output=40)
        if allocator.reserve(request, demand, demand.prompt):
            assert allocator.grow(request, 7)
    residents = np.flatnonzero(allocator.resident).tolist()
    assert residents
    for request in residents:
        held, stored = slots(allocator.units(request)), int(allocator.stored[request])
        for first, end in ((0, stored), (16, stored), (0, 17), (5, 21)):
            pieces = allocator.pieces(request, first, end)
            assert (slots(pieces) == held[first:end]).all()
            assert (pieces.tokens <= block).all() and (pieces.tokens == pieces.size).all()
            begins = first + np.cumsum(pieces.tokens) - pieces.tokens
            units = np.cumsum(allocator.units(request).tokens)
            assert all(at % block == 0 or at == first or at in units for at in begins.tolist())
        assert allocator.first_kept(request) == 0
    for asked in (lambda: allocator.pieces(9, 0, 1), lambda: allocator.first_kept(9)):
        with pytest.raises(KeyError):
            asked()


@pytest.mark.parametrize("name", POLICY)
def test_pieces_of_windows_are_what_is_kept(name: str) -> None:
    lives = Lives(name, {"orca": 2048, "odma": 2560}.get(name, 1536), seed=2)
    for request in range(20):
        lives.admit(request)
        lives.step()
    allocator, groups = lives.allocator, lives.groups
    for request in lives.held:
        stored = int(allocator.stored[request])
        for group, window in enumerate(groups.kept):
            first = allocator.first_kept(request, group)
            assert first <= (0 if window is None else max(stored - window + 1, 0))
            pieces = allocator.pieces(request, first, stored, group)
            assert (slots(pieces) == lives.places(request, group)[first:]).all()


@pytest.mark.parametrize("name", ["static", "s3", "oracle", "odma"])
def test_a_pinned_run_stays_where_it_is(name: str) -> None:
    given = {"name": name, "compaction": "copied"} | ({"space": "arena"} if name == "odma" else {})
    options = POLICIES[name].Options.model_validate(given)

    def filled() -> Any:
        allocator = POLICIES[name](LAYOUT, 40, LIMITS, options)
        for request in range(40):
            if not allocator.reserve(request, Demand(30, 0, Prediction(50.0), output=50), 30):
                break
        allocator.moves()
        return allocator

    asks = Demand(120, 0, Prediction(120.0), output=120)
    free, pinned = filled(), filled()
    last = int(free.resident.sum()) - 1
    for allocator in (free, pinned):
        for request in range(0, last, 2):
            allocator.release(request)
    for request in range(1, last + 1, 2):
        pinned.pin(request)
    places = pinned.start.copy()
    assert free.reserve(39, asks, 120) and free.moves()
    assert not pinned.reserve(39, asks, 120) and (pinned.start == places).all()
    pinned.unpin(1)
    pinned.release(3)
    assert pinned.reserve(39, asks, 120)
    assert {move.request for move in pinned.moves()} <= {1}


def test_nobody_is_given_a_copy_of_what_is_not_there_yet() -> None:
    options = POLICIES["static"].Options.model_validate({"name": "static", "prefixes": "copy"})
    allocator = Hands(POLICIES["static"](LAYOUT, 9, LIMITS, options))
    shares = Demand(40, 0, Prediction(9.0), 0, 32, output=9)
    assert allocator.reserve(0, shares, 40)
    allocator.moves()
    assert allocator.able(Caches).cached(1, 39, shares) == 32
    allocator.pin(0)
    assert allocator.able(Caches).cached(1, 39, shares) == 0
    allocator.unpin(0)
    assert allocator.able(Caches).cached(1, 39, shares) == 32
