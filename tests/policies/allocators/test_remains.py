"""How much of what was freed are the first tokens of another request?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.allocators.allocator import Demand
from policies.allocators.remains import Remains, TokenRun, in_common
from policies.predictors.predictor import Prediction

GUESS = Prediction(50.0)


def run(
    request: int = 0, start: int = 0, size: int = 40, tokens: int = 30, **known: Any
) -> TokenRun:
    return TokenRun(request, Demand(20, 0, GUESS, **known), start, size, tokens)


@pytest.mark.parametrize(
    ("known", "asked", "held"),
    [
        ({}, Demand(60, 0, GUESS), 0),
        # an earlier turn, and one of another session
        ({"session": 3}, Demand(60, 0, GUESS, session=3), 30),
        ({"session": 3}, Demand(60, 0, GUESS, session=4), 0),
        # a prefix of 12 tokens: as much as both have, and as much as is stored
        ({"prefix_id": 1, "prefix_tokens": 12}, Demand(60, 0, GUESS, 1, 15), 12),
        ({"prefix_id": 1, "prefix_tokens": 20}, Demand(60, 0, GUESS, 1, 11), 11),
        ({"prefix_id": 1, "prefix_tokens": 12}, Demand(60, 0, GUESS, 2, 12), 0),
    ],
)
def test_how_many_tokens_of_a_run_does_another_begin_with(
    known: dict[str, Any], asked: Demand, held: int
) -> None:
    assert run(**known).holds(9, asked) == held
    assert run(tokens=5, **known).holds(9, asked) == min(held, 5)


def test_does_a_request_find_its_own() -> None:
    assert run().holds(0, Demand(20, 9, GUESS)) == 30


def test_how_much_of_a_tree_of_prefixes_is_in_common() -> None:
    def demand(own: int, end: int, *above: tuple[int, int]) -> Demand:
        return Demand(100, 0, GUESS, own, end, above=above)

    leaf = demand(7, 50, (1, 10), (2, 30))
    assert in_common(leaf, leaf) == 50
    assert in_common(leaf, demand(8, 50, (1, 10), (2, 30))) == 30
    assert in_common(leaf, demand(7, 50, (1, 10), (3, 30))) == 10
    # it leaves the second text earlier, so that nothing behind it is the same
    assert in_common(leaf, demand(7, 50, (1, 10), (2, 25))) == 25
    assert in_common(leaf, demand(2, 30, (1, 10))) == 30
    assert in_common(leaf, Demand(100, 0, GUESS)) == 0
    assert in_common(demand(7, 500), demand(7, 900)) == 100  # of prompts of 100


@pytest.mark.parametrize(
    ("flat", "start", "size", "left"),
    [
        (True, 40, 60, [(0, 40, 30), (100, 40, 30)]),
        (True, 39, 1, [(0, 39, 30), (100, 40, 30)]),
        (True, 25, 80, [(0, 25, 25)]),
        (True, 0, 1, [(100, 40, 30)]),
        (True, 140, 9, [(0, 40, 30), (100, 40, 30)]),
        (False, 39, 1, [(100, 40, 30)]),
        (False, 139, 1, [(0, 40, 30)]),
    ],
)
def test_what_is_left_where_slots_are_reserved_again(
    flat: bool, start: int, size: int, left: list[tuple[int, int, int]]
) -> None:
    remains = Remains(flat)
    remains.leave(run())
    remains.leave(run(1, start=100))
    remains.leave(run(2, start=200, tokens=0))  # holds nothing
    remains.overwrite(start, size)
    assert [(each.start, each.size, each.tokens) for each in remains.runs] == left


def test_does_the_last_turn_of_a_session_replace_the_one_before() -> None:
    remains = Remains(True)
    for request, session in enumerate((5, -1, 5, 6, -1)):
        remains.leave(run(request, session=session))
    assert [each.request for each in remains.runs] == [1, 2, 3, 4]
