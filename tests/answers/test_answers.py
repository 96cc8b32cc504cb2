"""Do relations hold that have to, whatever the model of the hardware is?

Two draws of each here, 2,000 in the long suite; `python -m tests.answers` draws more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.answers.asked import asked
from tests.answers.draws import Draw, draw
from tests.answers.relation import equal, same
from tests.answers.relations import RELATIONS
from tests.rotation import long

QUICK, LONG, PART = 2, 2000, 100
SIMULATES = "energy and its parts"
"""The relation that simulates DRAM; one draw of it."""


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_holds(name: str) -> None:
    """Over the first draws of it with which it can be asked."""
    held, number = 0, [*RELATIONS].index(name)
    while held < (1 if name == SIMULATES else QUICK):
        found = asked(1, number)
        assert found.relation == name
        assert not found.breaches, f"{number}: {found.draw}"
        held += found.refused is None
        number += len(RELATIONS)
        assert number < 20 * len(RELATIONS), f"never asked: {found.refused}"


@pytest.mark.parametrize("first", long(*range(0, LONG, PART)))
def test_relations_hold_over_many_draws(first: int) -> None:
    found = [asked(2, number) for number in range(first, first + PART)]
    broken = [(each.relation, each.breaches[0], each.draw) for each in found if each.breaches]
    assert not broken


def test_there_are_relations_of_each_kind() -> None:
    kinds = Counter(each.kind for each in RELATIONS.values())
    assert kinds.total() >= 40 and set(kinds) == {"monotone", "invariant", "paths", "bound"}
    assert min(kinds.values()) >= 4


def test_a_draw_is_told_by_its_seed_and_number() -> None:
    assert str(draw(4, 7)) == str(draw(4, 7)) != str(draw(4, 8))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("more bandwidth", {"efficiency": 0.01}), ("a wider link", {"efficiency": 0.01})],
)
def test_what_is_worse_with_more_is_noticed(
    name: str, wrong: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two runs, which has more, is given a memory that is hardly there."""
    real, calls = Draw.served, iter(range(2))

    def served(self: Draw, **more: object) -> object:
        return real(self.but(memory=wrong) if not next(calls) else self, **more)

    monkeypatch.setattr(Draw, "served", served)
    number = next(n for n in range(99) if draw(1, n).card.accelerator.compute)  # type: ignore[union-attr]
    assert list(RELATIONS[name].holds(draw(1, number)))


def test_numbers_that_differ_are_noticed() -> None:
    assert list(equal("x", 1.0, 1.0 + 1e-9)) and not list(equal("x", 1, 1))
    one = draw(1, 0).served()
    other = replace(one, finish_s=one.finish_s * (1 + 1e-9))
    assert list(same(one, other)) and not list(same(one, one))
