"""Do beams hold together what they have in common, and write into nobody else's blocks?

The oracle is the slots themselves: names of tokens, written and copied as an engine would, and a
count of who names each block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Forks
from policies.allocators.kv_layout import KvLayout
from policies.allocators.orca import OrcaAllocator, OrcaOptions
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.allocators.registry import POLICIES
from policies.allocators.static import StaticAllocator, StaticOptions
from policies.predictors.prediction import Prediction
from tests.rotation import LONG

SLOTS = 384
ACTIONS = ["admit", "fork", "fork", "grow", "grow", "release", "out", "in"]


def beams(prompt: int, many: int = 2, **changes: Any) -> Demand:
    return Demand(prompt, 0, Prediction(20.0), samples=many, output=20, beams=many > 1, **changes)


def paged(block: int = 16, slots: int = 16 * 16, **options: Any) -> PagedAllocator:
    layout = KvLayout(0, slots, 1, 1, 16)
    given = PagedOptions.model_validate({"block": block, **options})
    return PagedAllocator(layout, 60, Limits(64, 128), given)


def on(*parents: int) -> np.ndarray:
    return np.array(parents)


def test_a_fork_names_the_blocks_of_another_beam_and_copies_the_last_one_when_it_writes() -> None:
    allocator, everyone = paged(), np.array([0])
    assert allocator.reserve(0, beams(16), 16)
    allocator.fork(0, on(0, 0))  # of a prompt there is nothing to fork
    allocator.advance(everyone, 20)  # each beam has two blocks of its own
    assert allocator.reserved_total == 5 * 16
    allocator.fork(0, on(1, 1))
    assert allocator.reserved_total == 3 * 16 and allocator.reserved[0] == 5 * 16
    assert allocator.copies() == []
    assert allocator.headroom(everyone, 200) == 12 + (13 - 1) // 2 * 16
    allocator.advance(everyone, 1)
    (copy,) = allocator.copies()
    assert copy.tokens == 4 and allocator.reserved_total == 4 * 16
    assert allocator.stored[0] == 16 + 2 * 21
    assert allocator.report()["beam_blocks_saved_share"] == pytest.approx(1 / 6)
    assert allocator.release(0) == 5 * 16
    assert allocator.free_slots == allocator.reach and allocator.reserved_total == 0


def test_a_full_block_is_shared_and_never_copied() -> None:
    allocator, everyone = paged(), np.array([0])
    assert allocator.reserve(0, beams(16, 4), 16)
    allocator.advance(everyone, 16)
    allocator.fork(0, on(2, 2, 2, 2))
    assert allocator.reserved_total == 2 * 16
    allocator.advance(everyone, 1)
    assert allocator.copies() == [] and allocator.reserved_total == (2 + 4) * 16


def test_beams_that_were_swapped_out_come_back_as_they_were() -> None:
    allocator, everyone = paged(), np.array([0])
    assert allocator.reserve(0, beams(16, 4), 16)
    allocator.advance(everyone, 20)
    allocator.fork(0, on(1, 1, 2, 2))
    assert allocator.tokens_to_copy(0) == 16 + 2 * 20
    assert allocator.swap_out(0) == 16 + 4 * 20
    assert allocator.free_slots == allocator.reach
    assert allocator.reserve(1, beams(1, 1), 120)
    assert not allocator.fits(16 + 84, 0)  # 9 blocks: five that it had, and a copy for each beam
    assert allocator.reserve(2, beams(1, 1), 60)
    assert not allocator.swap_in(0)
    allocator.release(1)
    assert allocator.fits(16 + 84, 0)
    assert allocator.swap_in(0)
    assert allocator.reserved_total == (5 + 4) * 16 and allocator.reserved[0] == 9 * 16
    allocator.advance(everyone, 1)
    assert [copy.tokens for copy in allocator.copies()] == [4, 4]


def grows(allocator: PagedAllocator) -> None:
    assert allocator.grow(0, 40)


def advances(allocator: PagedAllocator) -> None:
    allocator.advance(np.array([0]), 40)


def comes_back(allocator: PagedAllocator) -> None:
    assert allocator.swap_in(0)


@pytest.mark.parametrize(
    ("many", "forked", "away", "takes", "blocks"),
    [
        (1, False, False, grows, 2),
        (1, False, False, advances, 2),
        (1, False, True, comes_back, 3),
        (2, False, False, advances, 4),
        (2, False, True, comes_back, 5),
        (2, True, False, advances, 1 + 4),
        (2, True, True, comes_back, 3),
    ],
)
def test_what_was_in_a_block_is_not_found_once_it_is_handed_out(
    many: int, forked: bool, away: bool, takes: Callable[[PagedAllocator], None], blocks: int
) -> None:
    """A request, or beams of it, take blocks when all that are free have a prefix that is known."""
    allocator = paged(slots=24 * 16, watermark=0)
    assert allocator.reserve(0, beams(16, many), 16)
    allocator.advance(np.array([0]), 20)  # two blocks, or two of each beam
    if forked:
        allocator.fork(0, on(1, 1))
    if away:
        allocator.swap_out(0)
    known = beams(96, 1, prefix_id=0, prefix_tokens=96)
    assert allocator.reserve(1, known, 96) and allocator.release(1)
    assert allocator.reserve(2, beams(16, 1), allocator.free_slots - 96)
    later = known._replace(prompt=100)
    assert allocator.cached(3, 99, later) == 96
    before = allocator.free_slots
    takes(allocator)
    assert allocator.free_slots == before - blocks * 16
    assert allocator.cached(3, 99, later) == 96 - blocks * 16


@pytest.mark.parametrize(
    ("allocator", "slots"),
    [
        (StaticAllocator(KvLayout(0, 4096, 1, 1, 16), 4, Limits(64, 256), StaticOptions()), 656),
        (OrcaAllocator(KvLayout(0, 4096, 1, 1, 16), 4, Limits(64, 256), OrcaOptions(
            variant="oracle")), 512),
    ],
)  # fmt: skip
def test_a_reservation_has_a_row_for_each_beam_and_copies_whole_rows(
    allocator: Any, slots: int
) -> None:
    needed = allocator.needs_of_beams(np.array([100]), np.array([20]), np.array([4]))
    assert needed.tolist() == [slots]  # 4 x (100 + 64), and the next power of two of 4 x 120
    assert allocator.reserve(0, beams(100, 4), 100) and allocator.reserved[0] == slots
    allocator.fork(0, on(0, 0, 0, 0))
    made = [(copy.source, copy.target, copy.tokens) for copy in allocator.copies()]
    room = slots // 4
    assert made == [(0, room, 100), (0, 2 * room, 100), (0, 3 * room, 100)]
    allocator.advance(np.array([0]), 5)
    assert allocator.units(0).tokens.tolist() == [105] * 4
    allocator.fork(0, on(0, 1, 0, 3))
    (copy,) = allocator.copies()
    assert (copy.source, copy.target, copy.tokens) == (0, 2 * room, 105)


def test_who_has_rows_of_beams() -> None:
    able = {name for name, kind in POLICIES.items() if issubclass(kind, Forks)}
    assert able == {"paged", "static", "orca", "oracle"}


class Life:
    """A request as its user sees it: the names of the tokens of each beam."""

    def __init__(self, request: int, demand: Demand) -> None:
        self.request, self.demand = request, demand
        shared = demand.prefix_tokens
        prompt = [("prefix" if at < shared else request, at) for at in range(demand.prompt)]
        self.rows: list[list[Any]] = [prompt]

    @property
    def stored(self) -> int:
        prompt = self.demand.prompt
        return prompt + sum(len(row) - prompt for row in self.rows)


class Slots:
    """What lies in each slot."""

    def __init__(self, allocator: PagedAllocator) -> None:
        self.allocator, self.names = allocator, dict[int, Any]()
        self.lives: dict[int, Life] = {}

    def rows(self, life: Life) -> list[list[tuple[int, Any]]]:
        """(slot, name) of the tokens of each beam; the prompt's full blocks with the first one."""
        units = self.allocator.units(life.request)
        pairs = zip(units.start.tolist(), units.tokens.tolist(), strict=True)
        places = [slot for start, tokens in pairs for slot in range(start, start + tokens)]
        common = life.demand.prompt // self.allocator.block * self.allocator.block
        found, at = [], 0
        for nth, row in enumerate(life.rows):
            names = row[common if nth else 0 :]
            found.append(list(zip(places[at : at + len(names)], names, strict=True)))
            at += len(names)
        assert at == len(places)
        return found

    def move(self) -> None:
        for copy in self.allocator.copies():
            for token in range(copy.tokens):
                self.names[copy.target + token] = self.names[copy.source + token]

    def grown(self, life: Life, rounds: int) -> None:
        """Each beam has made so many tokens more."""
        if len(life.rows) < life.demand.samples:
            life.rows = [[*life.rows[0]] for _ in range(life.demand.samples)]
        for beam, row in enumerate(life.rows):
            row += [(life.request, len(row) + at, beam) for at in range(rounds)]
        for row in self.rows(life):
            self.names |= row[len(row) - rounds :]

    def write(self, life: Life) -> None:
        for row in self.rows(life):
            for slot, name in row:
                assert self.names.get(slot, name) == name or slot not in self.held(life.request)
                self.names[slot] = name

    def held(self, but: int) -> set[int]:
        others = (life for life in self.lives.values() if life.request != but)
        return {slot for life in others for row in self.rows(life) for slot, _ in row}

    def check(self) -> None:
        block, users = self.allocator.block, Counter[int]()
        for life in self.lives.values():
            assert self.allocator.stored[life.request] == life.stored
            for row in self.rows(life):
                assert all(self.names[slot] == name for slot, name in row)
            units = self.allocator.units(life.request)
            assert units.size.sum() == self.allocator.reserved[life.request]
            users.update((units.start // block).tolist())
        assert self.allocator.reserved_total == len(users) * block
        assert self.allocator.free_slots + len(users) * block == self.allocator.reach


@pytest.mark.parametrize("recompute", [False, True])
@settings(max_examples=1000 if LONG else 60, deadline=None)
@given(data=st.data(), block=st.sampled_from([1, 4, 16]))
def test_nobody_writes_into_the_blocks_of_another_beam(
    recompute: bool, data: st.DataObject, block: int
) -> None:
    allocator = paged(block, SLOTS, cached_recompute=recompute)
    memory, number, away = Slots(allocator), 0, dict[int, Life]()
    for _ in range(data.draw(st.integers(5, 40))):
        lives = memory.lives
        action = data.draw(st.sampled_from(ACTIONS))
        one = data.draw(st.sampled_from(sorted(lives))) if lives else -1
        if action == "admit" and number < 60:
            shared = data.draw(st.sampled_from([0, 20]))
            prompt = data.draw(st.integers(max(shared, 1), 40))
            prefix = {"prefix_id": 0 if shared else -1, "prefix_tokens": shared}
            life = Life(number, beams(prompt, data.draw(st.sampled_from([1, 2, 3, 6])), **prefix))
            if allocator.reserve(number, life.demand, prompt):
                lives[number] = life
                memory.write(life)
            number += 1
        elif action == "fork" and lives:
            life, many = lives[one], lives[one].demand.samples
            goes_on = sorted(data.draw(st.sets(st.integers(0, many - 1), min_size=1)))
            followed = st.sampled_from(goes_on)
            parents = [b if b in goes_on else data.draw(followed) for b in range(many)]
            allocator.fork(one, np.array(parents))
            if len(life.rows) == many:
                life.rows = [[*life.rows[parent]] for parent in parents]
        elif action == "grow" and lives:
            grow(memory, lives[one], data.draw(st.integers(1, 20)), data.draw(st.booleans()))
        elif action == "release" and lives:
            allocator.release(one)
            allocator.finished(one, 1, 1)
            del lives[one]
        elif action == "out" and lives:
            life = away[one] = lives.pop(one)
            copied = (life.demand.samples - 1) * (life.demand.prompt % block)
            assert allocator.tokens_to_copy(one) <= life.stored + copied
            assert allocator.swap_out(one) == life.stored
        elif action == "in" and away:
            back = min(away)
            if allocator.swap_in(back):
                lives[back] = away.pop(back)
                memory.write(lives[back])
        memory.check()
    for life in memory.lives.values():
        allocator.release(life.request)
    assert allocator.free_slots == allocator.reach and allocator.reserved_total == 0


def grow(memory: Slots, life: Life, most: int, alone: bool) -> None:
    """As many tokens of each beam as there is room for, or one at most."""
    allocator, one = memory.allocator, np.array([life.request])
    rounds = allocator.headroom(one, most)
    before = allocator.free_slots, allocator.reserved_total
    taken = allocator.taken(one, rounds)
    if alone:
        assert allocator.grow(life.request, life.demand.samples) == (rounds > 0)
        rounds = min(rounds, 1)
    else:
        allocator.advance(one, rounds)
        assert allocator.free_slots <= before[0] - taken
    if not rounds:
        assert (allocator.free_slots, allocator.reserved_total) == before
        return
    memory.move()
    memory.grown(life, rounds)
