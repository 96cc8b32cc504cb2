"""Do the policies that reserve one run of a known size reserve that size?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Hands

LAYOUT = KvLayout(base=0, slots=4096, layers=2, kv_heads=2, head_bytes=16)
LIMITS = Limits(max_tokens=200, max_model_len=500)
SOME = Demand(100, 0, Prediction(50.0), output=50)


def build(name: str, **options: Any) -> Any:
    policy = POLICIES[name]
    given = policy.Options.model_validate({"name": name, **options})
    return Hands(policy(LAYOUT, 50, LIMITS, given))


@pytest.mark.parametrize(
    ("name", "options", "slots"),
    [
        ("static", {}, 300),
        ("static", {"reserve": "max_model_len"}, 500),
        ("oracle", {}, 149),
        ("s3", {}, 160),  # ten classes of 20: 50 is in the third
    ],
)
def test_reserves_its_size(name: str, options: dict[str, Any], slots: int) -> None:
    allocator = build(name, **options)
    assert allocator.reserve(0, SOME, 100) and allocator.reserved[0] == slots
    assert allocator.headroom(np.array([0]), 1000) == slots - 100


@pytest.mark.parametrize("name", ["static", "s3", "oracle", "odma"])
def test_staggered_runs_begin_that_much_later_and_leave_the_slots_between_empty(name: str) -> None:
    plain, moved = build(name), build(name, stagger=5)
    for request in range(3):
        assert plain.reserve(request, SOME, 100) and moved.reserve(request, SOME, 100)
        before, after = plain.units(request), moved.units(request)
        assert after.start[0] == before.start[0] + 5 * request
        assert after.size[0] == before.size[0] + 5
    requests = np.arange(3)
    # as many tokens as before fit: the slack takes none, and is charged
    assert plain.headroom(requests, 1000) == moved.headroom(requests, 1000)
    room = int(moved.reserved[0] - 100) - 5
    assert not moved.grow(0, room + 1) and moved.grow(0, room)
    assert moved.reserved_total == plain.reserved_total + 15
    assert moved.free_slots == plain.free_slots - 15
    lengths = np.array([100]), np.array([50])
    assert moved.needs(*lengths) == plain.needs(*lengths) + 5


@pytest.mark.parametrize("name", ["static", "orca", "s3", "oracle"])
def test_nothing_is_needed_beyond_what_can_be_asked_for(name: str) -> None:
    allocator = build(name)
    lengths = np.array([1, 100, 300, 499]), np.array([200, 50, 200, 1])
    needs = allocator.needs(*lengths)
    for request, (prompt, output) in enumerate(zip(*map(np.ndarray.tolist, lengths))):  # noqa: B905
        demand = Demand(prompt, 0, Prediction(1e6), output=output)
        assert allocator.reserve(request, demand, prompt)
        assert allocator.reserved[request] <= needs[request]
        allocator.release(request)


def test_worst_case_ends_at_the_longest_sequence() -> None:
    allocator = build("static")
    assert allocator.reserve(0, SOME._replace(prompt=450), 450) and allocator.reserved[0] == 500


@pytest.mark.parametrize("name", ["static", "orca", "s3", "oracle", "ideal"])
def test_swapping_out_frees_all_and_in_again_restores_the_tokens(name: str) -> None:
    allocator = build(name)
    assert allocator.reserve(0, SOME, 100) and allocator.grow(0, 20)
    held = int(allocator.reserved[0])
    assert allocator.swap_out(0) == 120
    assert allocator.free_slots == LAYOUT.slots and not allocator.resident[0]
    assert allocator.swap_in(0)
    assert (allocator.stored[0], allocator.reserved[0]) == (120, held)
    with pytest.raises(KeyError):
        allocator.swap_in(0)
    with pytest.raises(KeyError):
        allocator.swap_out(1)


def test_a_full_device_refuses_to_swap_in() -> None:
    allocator = build("static", reserve="max_model_len")
    assert allocator.reserve(0, SOME, 100)
    allocator.swap_out(0)
    assert all(allocator.reserve(request, SOME, 100) for request in range(1, 9))
    assert not allocator.swap_in(0)
    allocator.release(1)
    assert allocator.swap_in(0)


def test_how_much_of_a_prefix_is_copied_and_from_where() -> None:
    allocator = build("static", prefixes="copy", fit="next")
    behind = SOME._replace(prefix_id=1, prefix_tokens=100)
    for request, tokens in enumerate((60, 100, 100)):  # two hold all of it: the first one serves
        assert allocator.reserve(request, behind, tokens)
        assert len(allocator.moves()) == (request > 0)
    # the last token of a prompt is always computed
    assert allocator.cached(3, 99, behind) == 99
    assert allocator.reserve(3, behind, 100)
    (copy,) = allocator.moves()
    assert (copy.request, copy.tokens, copy.source) == (3, 99, int(allocator.start[1]))
    assert copy.target == int(allocator.start[3])
    for request in (0, 2, 3):
        allocator.release(request)
    allocator.release(1)
    assert allocator.cached(4, 99, behind) == 99  # what lies there is found until it is taken
    allocator.overwrite(0, LAYOUT.slots)
    assert allocator.cached(4, 99, behind) == 0
