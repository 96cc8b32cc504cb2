"""Do slabs conserve every slot, serve each size from its list, and go back when they are empty?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.places import Place
from policies.allocators.registry import POLICIES
from policies.allocators.slabs import MOST, SPLIT, Slabs
from policies.predictors.predictor import Prediction
from tests.rotation import LONG


def test_a_freed_block_serves_its_size_again_before_anything_is_cut() -> None:
    slabs = Slabs(100, 50)
    taken = [slabs.place(10) for _ in range(3)]
    assert taken == [Place(100, 10), Place(110, 10), Place(120, 10)]
    slabs.give_back(110, 10)
    assert slabs.place(10) == Place(110, 10)
    assert (slabs.free, slabs.largest_hole) == (20, 20)


def test_slabs_grow_with_the_demand_for_their_size() -> None:
    slabs = Slabs(0, 10_000)
    for _ in range(SPLIT * MOST * 2):
        assert slabs.place(10)
    blocks = [count for _, _, count in slabs.slabs]
    assert blocks == sorted(blocks) and blocks[0] == 1 and blocks[-1] == MOST


def test_an_empty_slab_goes_back_and_joins_its_neighbours() -> None:
    slabs = Slabs(0, 100)
    small = [slabs.place(10) for _ in range(10)]
    assert slabs.place(60) is None
    for place in small:
        assert place
        slabs.give_back(*place)
    assert (slabs.slabs, slabs.holes) == ([], [(0, 100)])
    assert slabs.place(100) == Place(0, 100)


@pytest.mark.parametrize(("borrow", "found"), [(1.0, None), (1.9, None), (2.0, Place(80, 20))])
def test_a_free_larger_block_is_borrowed_up_to_so_many_times_the_size(
    borrow: float, found: Place | None
) -> None:
    slabs = Slabs(0, 120, borrow=borrow)
    taken = [slabs.place(20) for _ in range(5)]  # the last of a slab of two
    assert slabs.slabs[-1] == (80, 20, 2) and slabs.free == 20
    slabs.give_back(80, 20)
    assert slabs.free == 40 and len(taken) == 5
    for _ in range(2):
        slabs.place(20)
    slabs.give_back(80, 20)  # [80, 100) is free, in a slab whose other block is in use
    assert slabs.place(10) == found


def test_what_is_not_in_use_cannot_be_freed() -> None:
    slabs = Slabs(0, 100)
    assert slabs.place(10)
    for start, size in ((0, 20), (10, 10), (5, 5)):
        with pytest.raises(ValueError, match="no block in use"):
            slabs.give_back(start, size)


@settings(max_examples=100 if LONG else 40)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([3, 5, 8, 13, 40]), st.integers(0, 99))),
    st.sampled_from([1.0, 2.0, 10.0]),
)
def test_every_slot_is_in_a_block_or_free_and_in_one_place(
    steps: list[tuple[bool, int, int]], borrow: float
) -> None:
    slabs = Slabs(7, 120, borrow=borrow)
    used: list[Place] = []
    for takes, size, which in steps:
        if takes:
            before = (slabs.free, slabs.slabs, slabs.holes)
            place = slabs.place(size)
            if place is None:
                assert (slabs.free, slabs.slabs, slabs.holes) == before
                assert size > max(slabs.largest_hole, 0) or borrow < slabs.largest_hole / size
                continue
            assert size <= place.size <= borrow * size
            used.append(place)
        elif used:
            slabs.give_back(*used.pop(which % len(used)))
        owned = [slot for place in used for slot in range(place.start, sum(place))]
        assert len(owned) == len(set(owned)) == 120 - slabs.free
        runs = [(start, size * count) for start, size, count in slabs.slabs] + slabs.holes
        every = [slot for start, length in runs for slot in range(start, start + length)]
        assert sorted(every) == list(range(7, 127)) and set(owned) <= set(every)
    for place in used:
        slabs.give_back(*place)
    assert (slabs.free, slabs.holes) == (120, [(7, 120)])


@pytest.mark.parametrize("name", ["static", "s3", "oracle", "odma"])
def test_every_policy_with_one_run_takes_it_from_slabs(name: str) -> None:
    policy = POLICIES[name]
    options = policy.Options.model_validate({"name": name, "space": "slabs"})
    allocator = policy(KvLayout(0, 4096, 1, 1, 16), 50, Limits(200, 500), options)
    demand = Demand(100, 0, Prediction(50.0), output=50)
    count = next(n for n in range(50) if not allocator.reserve(n, demand, 100))
    assert allocator.free_slots == 4096 - allocator.reserved_total
    for request in range(count):
        allocator.release(request)
    assert allocator.largest_hole == allocator.slots
