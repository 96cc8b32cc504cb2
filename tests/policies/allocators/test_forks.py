"""Who can fork, and is what a fork gave up found no more? What random
forks do to every slot is asked of all policies by `contract`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.capabilities import Forks
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.allocators.registry import POLICIES
from policies.predictors.prediction import Prediction


def sample(prompt: int, **changes: Any) -> Demand:
    return Demand(prompt, 0, Prediction(20.0), output=20, parent=0)._replace(**changes)


def paged(slots: int = 16 * 16, **options: Any) -> PagedAllocator:
    layout = KvLayout(0, slots, 1, 1, 16)
    given = PagedOptions.model_validate({"block": 16, **options})
    return PagedAllocator(layout, 60, Limits(64, 128), given)


def grows(allocator: PagedAllocator) -> None:
    assert allocator.grow(0, 40)


def advances(allocator: PagedAllocator) -> None:
    allocator.advance(np.array([0]), 40)


def comes_back(allocator: PagedAllocator) -> None:
    assert allocator.swaps.swap_in(0)


@pytest.mark.parametrize(
    ("away", "takes", "blocks"), [(False, grows, 2), (False, advances, 2), (True, comes_back, 3)]
)
def test_what_was_in_a_block_is_not_found_once_it_is_handed_out(
    away: bool, takes: Callable[[PagedAllocator], None], blocks: int
) -> None:
    """A request takes blocks when all that are free have a prefix that is known."""
    allocator, alone = paged(slots=24 * 16, watermark=0), sample(16, parent=-1)
    assert allocator.reserve(0, alone, 16)
    allocator.advance(np.array([0]), 20)
    if away:
        allocator.swaps.swap_out(0)
    known = alone._replace(prompt=96, prefix_id=0, prefix_tokens=96)
    assert allocator.reserve(1, known, 96) and allocator.release(1)
    assert allocator.reserve(2, alone, allocator.free_slots - 96)
    later = known._replace(prompt=100)
    assert allocator.caching.cached(3, 99, later) == 96
    before = allocator.free_slots
    takes(allocator)
    assert allocator.free_slots == before - blocks * 16
    assert allocator.caching.cached(3, 99, later) == 96 - blocks * 16


def test_who_can_fork() -> None:
    def forks(kind: type[Allocator]) -> bool:
        layout = KvLayout(0, 4096, 2, 2, 64)
        options = kind.Options()
        if hasattr(options, "frame"):
            options = options.model_copy(update={"frame": 4096})
        return kind(layout, 4, Limits(64, 256), options).able(Forks) is not None

    assert {name for name, kind in POLICIES.items() if not forks(kind)} == {
        "ideal", "radix", "vattention",
    }  # fmt: skip
