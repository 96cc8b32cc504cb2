"""Does a model with windows find prefixes whose KV every layer that looks at them still has?"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.kv_managers import longest, managers_of
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import build
from policies.predictors.prediction import Prediction

BLOCK, WINDOW = 4, 10
LIMITS = Limits(400, 500, step=64)


def groups_of(*kept: int | None) -> KvGroups:
    places = tuple((at, 0) for at in range(len(kept)))
    return KvGroups("blocks", kept, 1, kept, places)


def allocator_of(slots: int, *kept: int | None, **options: Any) -> Any:
    layout = KvLayout(0, slots, 1, 1, 16, groups=groups_of(*kept))
    return build(layout, 400, LIMITS, PagedOptions(block=BLOCK, null_block=True, **options))


def demand(prompt: int, prefix: int = -1, tokens: int = 0, session: int = -1) -> Demand:
    return Demand(prompt, 0, Prediction(9.0), prefix, tokens, output=9, session=session)


def content(allocator: Allocator, request: int, group: int) -> tuple[np.ndarray, int]:
    """Slots of the tokens of a request in a group, and the first that is still looked at."""
    units = allocator.layer_units(request, group)
    slots = (units.start[:, None] + np.arange(BLOCK)).reshape(-1)
    stored, groups = int(allocator.stored[request]), allocator.layout.groups
    assert groups is not None
    window = groups.kept[group]
    first = 0 if window is None else max(stored - window + 1, 0)
    return slots[:stored], first


@pytest.mark.parametrize("free_list", ["fifo", "split"])
@pytest.mark.parametrize(
    "kept", [(None, WINDOW), (WINDOW,), (WINDOW, None, WINDOW, None), (22, None, WINDOW)]
)
def test_what_is_found_is_what_was_written(kept: tuple[int | None, ...], free_list: str) -> None:
    rng, slots = np.random.default_rng(5), 90 * BLOCK * len(kept)
    allocator = allocator_of(slots, *kept, free_list=free_list, window_rules="0.23")
    empty, written, running, found = allocator.free_slots, {}, {}, 0  # type: ignore[var-annotated]

    def write(request: int, before: int) -> None:
        text, prefix = running[request]
        for group in range(len(kept)):
            places, _ = content(allocator, request, group)
            for token in range(before, len(places)):
                owner = ("prefix", text) if token < prefix else ("own", request)
                written[int(places[token])] = (group, owner, token)

    for request in range(150):
        text, prompt = int(rng.integers(0, 3)), int(rng.integers(3, 90))
        prefix = min((24, 50, 61)[text], prompt)
        asks = demand(prompt, text, prefix)
        cached = allocator.caching.cached(request, prompt - 1, asks)
        if not allocator.reserve(request, asks, prompt):
            gone = list(running)[int(rng.integers(0, len(running)))]
            allocator.release(gone)
            del running[gone]
            continue
        running[request] = text, prefix
        write(request, cached)
        found += cached
        many = np.array(list(running))
        if allocator.headroom(many, 1):
            before = allocator.stored[many]
            allocator.advance(many, 1)
            for each, stored in zip(many.tolist(), before.tolist(), strict=True):
                write(each, stored)
        held = set()
        for each, (own, shared) in running.items():
            for group in range(len(kept)):
                places, first = content(allocator, each, group)
                for token in range(first, len(places)):
                    owner = ("prefix", own) if token < shared else ("own", each)
                    assert written[int(places[token])] == (group, owner, token)
                held |= set((places[first:] // BLOCK).tolist())
        assert allocator.free_slots + allocator.reserved_total == empty
        assert len(held) * BLOCK <= allocator.reserved_total
    assert found > 200
    for each in list(running):
        allocator.release(each)
    assert allocator.free_slots == empty and allocator.reserved_total == 0


@pytest.mark.parametrize("less", [0, 2])
@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("window", [2, 5, 6, 9])
def test_the_longest_prefix_has_every_token_that_the_next_one_attends_to(
    window: int, block: int, less: int
) -> None:
    """Of a group with the window, alone and beside one with all, wherever a block of each is lost,
    or none."""
    places, kept = 8, (window, None)

    def serves(alive: Any, blocks: int) -> bool:
        """Whether all are there that tokens from `less` blocks before the end on attend to."""
        firsts = (max((blocks - less) * block - window + 1, 0), 0)
        return all(
            row[token // block]
            for row, first in zip(alive, firsts, strict=False)
            for token in range(first, blocks * block)
        )

    for groups in (1, 2):
        layout = KvLayout(0, 400, 1, 1, 16, groups=groups_of(*kept[:groups]))
        managers = managers_of(layout, 1, LIMITS, block, "0.33")
        for lost in product(range(places + 1), repeat=groups):
            alive = np.array([np.arange(places) != one for one in lost])
            most = max(blocks for blocks in range(places + 1) if serves(alive, blocks))
            assert longest(managers, alive, less) == max(most - less, 0)


def test_rows_of_drafts_look_at_a_window_each() -> None:
    groups = groups_of(None, WINDOW)
    lengths, rows = np.array([0, 3, 8, 9, 30]), np.array([4, 1, 5, 3, 6])
    pairs = 0.0
    for length, count in zip(lengths.tolist(), rows.tolist(), strict=True):
        seen = [length + row for row in range(2, count + 1)]
        pairs += (sum(seen) + sum(min(each, WINDOW) for each in seen)) / 2
    assert groups.verified(lengths, rows) == pytest.approx(pairs)
