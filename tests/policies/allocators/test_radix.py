"""Are pages taken, shared and evicted as SGLang does it?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Drafts
from policies.allocators.free_lists.staged import Staged
from policies.allocators.kv_layout import KvLayout
from policies.allocators.radix import RadixAllocator, RadixOptions
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import state
from tests.rotation import LONG

SOME = Demand(4, 0, Prediction(20.0))


def radix(slots: int = 32, **options: object) -> RadixAllocator:
    layout = KvLayout(0, slots, 1, 1, 16)
    return RadixAllocator(layout, 9, Limits(64, 128), RadixOptions.model_validate(options))


def turn(prompt: int, session: int = 0, prefix: int = 0) -> Demand:
    return Demand(prompt, 0, Prediction(20.0), 7, prefix, session=session)


def places(allocator: RadixAllocator, request: int) -> list[int]:
    return (allocator.units(request).start // allocator.block).tolist()


def ended(allocator: RadixAllocator, request: int) -> None:
    allocator.release(request)
    allocator.caching.finished(request, 0, 0)


def test_a_decode_step_deals_neighbouring_pages_to_different_requests() -> None:
    allocator = radix(12)
    assert allocator.reserve(0, SOME, 4) and allocator.reserve(1, SOME, 4)
    allocator.advance(np.array([0, 1]), 2)
    assert (places(allocator, 0), places(allocator, 1)) == (
        [0, 1, 2, 3, 8, 10],
        [4, 5, 6, 7, 9, 11],
    )
    ended(allocator, 0)
    ended(allocator, 1)
    assert allocator.reserve(2, SOME._replace(prompt=8), 8)  # the prompt keeps its run, no output
    assert places(allocator, 2) == [8, 10, 0, 1, 2, 3, 9, 11]
    assert allocator.extent_count(np.array([2])) == 5
    ended(allocator, 2)
    told = allocator.caching.report()  # of 16 pages of prompts seven runs, four of one page
    assert told["prompt_extent_tokens"] == 16 / 7 and told["prompt_single_page_share"] == 4 / 16


def test_what_is_held_is_not_evicted_and_the_oldest_leaf_is() -> None:
    allocator = radix(20)
    for session in (0, 1, 2):
        assert allocator.reserve(session, turn(6, session), 6)
        if session:
            ended(allocator, session)
    assert allocator.free_slots == 14
    assert allocator.reserve(3, turn(8, 1), 8)  # finds 6, so session 2 is now the oldest
    ended(allocator, 3)
    assert allocator.reserve(4, turn(3, 4), 3)
    allocator.steps.settle_step()
    assert [allocator.caching.cached(8, 6, turn(9, s)) for s in (0, 1, 2)] == [6, 6, 0]
    assert not allocator.reserve(5, turn(15, 5), 15)
    assert allocator.reserve(5, turn(11, 5), 11)
    allocator.steps.settle_step()
    assert [allocator.caching.cached(8, 6, turn(9, s)) for s in (0, 1, 2)] == [6, 0, 0]


def test_a_preempted_request_loses_its_outputs_first() -> None:
    allocator = radix(20)
    assert allocator.reserve(0, turn(6, 0), 6)
    ended(allocator, 0)
    assert allocator.reserve(1, turn(6, 1), 6) and allocator.grow(1, 6)
    allocator.release(1)
    assert allocator.caching.cached(1, 99) == 12
    assert allocator.reserve(2, turn(3, 2), 3)
    allocator.steps.settle_step()
    assert (allocator.caching.cached(1, 99), allocator.caching.cached(0, 99, turn(9, 0))) == (6, 6)


def test_all_that_is_free_is_sorted_when_a_step_needs_more_than_is_at_hand() -> None:
    allocator = radix(12, prefix_caching=False, free_list="staged")
    assert allocator.reserve(0, SOME, 4) and allocator.reserve(1, SOME, 4)
    allocator.release(0)
    assert allocator.reserve(2, SOME._replace(prompt=6), 6)  # 8 to 11 are at hand
    assert places(allocator, 2) == [0, 1, 2, 3, 8, 9]
    # of larger pages one more for each request, and another one: 8 for six whole pages, of 7
    allocator = radix(36, page=4, prefix_caching=False, free_list="staged")
    assert allocator.reserve(0, SOME, 4) and allocator.reserve(1, SOME, 4)
    allocator.release(0)
    assert allocator.reserve(2, SOME._replace(prompt=24), 24)
    assert places(allocator, 2) == [0, 2, 3, 4, 5, 6]


class Unsettled:
    """Random lives of requests, of which nothing asks where their pages are."""

    def __init__(self, data: st.DataObject, page: int) -> None:
        self.data, self.allocator = data, radix(64, page=page)
        self.lives: dict[int, Demand] = {}
        self.chunks: set[int] = set()
        """Requests that this step has prefilled: each once."""
        self.number = 0

    def some(self) -> np.ndarray:
        """Requests that decode."""
        decode = [r for r, d in self.lives.items() if self.allocator.stored[r] >= d.prompt]
        return np.array(self.data.draw(st.permutations(decode)), np.int64)

    def act(self) -> None:
        allocator, draw = self.allocator, self.data.draw
        action = draw(st.sampled_from(["admit"] * 2 + ["grow", "later", "later", "end", "settle"]))
        one = draw(st.sampled_from(sorted(self.lives))) if self.lives else -1
        if action == "admit" and self.number < 8:
            prompt = draw(st.integers(6, 12))
            demand = turn(prompt, -1, 6)
            tokens = draw(st.integers(6, prompt))
            if allocator.reserve(self.number, demand, tokens):
                self.lives[self.number] = demand
                self.chunks.add(self.number)
            self.number += 1
        elif action == "grow" and self.lives and one not in self.chunks:
            allocator.grow(one, draw(st.integers(1, 3)))
            self.chunks.add(one)
        elif action == "later" and allocator.headroom(some := self.some(), 1):
            allocator.steps.advance_later(some)
            self.chunks.clear()
        elif action == "end" and self.lives:
            ended(allocator, one)
            del self.lives[one]
        elif action == "settle":
            allocator.steps.settle_step()
            self.chunks.clear()

    def check(self) -> None:
        """Whatever is asked next has the answer, and the effect, that it has once the pages which
        were promised are chosen; and what decodes later takes what it takes at once."""
        some, rounds = self.some(), self.data.draw(st.integers(1, 5))
        none = np.zeros(len(some), np.int64)
        told: list[Callable[[RadixAllocator], Any]] = [
            lambda each: each.headroom(some, 20),
            lambda each: each.growing(some),
            lambda each: each.taken(some, each.headroom(some, rounds)),
            lambda each: each.extent_count(np.array(list(self.lives), np.int64)),
            lambda each: [places(each, request) for request in self.lives],
            lambda each: each.advance(some, each.headroom(some, rounds)),
            lambda each: each.able(Drafts).store_ahead(some, none + 1, none + 2, none),
            lambda each: [each.caching.release_known(request, 0) for request in self.lives],
            lambda each: together(each, list(self.lives)),
        ]
        for tell in told:
            lazy, settled = copy.deepcopy(self.allocator), copy.deepcopy(self.allocator)
            settled.steps.settle_step()
            assert tell(lazy) == tell(settled)
            assert state(lazy) == state(settled)
            counts(settled)
            assert rest(lazy) == rest(settled)
        later, now = copy.deepcopy(self.allocator), copy.deepcopy(self.allocator)
        if now.headroom(some, 1):
            later.steps.advance_later(some)
            now.advance(some, 1)
            assert later.free_slots == now.free_slots and state(later) == state(now)
            assert rest(later) == rest(now)


def together(allocator: RadixAllocator, requests: list[int]) -> None:
    allocator.steps.release_together(True)
    for request in requests:
        ended(allocator, request)
    allocator.steps.release_together(False)


def rest(allocator: RadixAllocator) -> list[int]:
    """All pages that are left, in the order in which they are handed out."""
    free = allocator.free_slots
    assert not free or allocator.reserve(8, turn(free, 8), free)
    return places(allocator, 8) if free else []


def counts(allocator: RadixAllocator) -> None:
    """Pages are counted once, however many name them."""
    residents = np.flatnonzero(allocator.resident).tolist()
    named = {page for request in residents for page in places(allocator, request)}
    assert allocator.reserved_total == len(named) * allocator.block
    assert allocator.free_slots == allocator.reach - allocator.reserved_total


@pytest.mark.parametrize("page", [1, 4])
@settings(max_examples=400 if LONG else 12, deadline=None)
@given(data=st.data())
def test_pages_that_are_promised_count_as_those_that_are_chosen(
    page: int, data: st.DataObject
) -> None:
    lives = Unsettled(data, page)
    for _ in range(data.draw(st.integers(1, 12))):
        lives.act()
    lives.check()


@settings(max_examples=100 if LONG else 40)
@given(data=st.data(), blocks=st.sampled_from([1, 5, 40]))
def test_all_free_pages_are_sorted_when_those_at_hand_are_too_few(
    data: st.DataObject, blocks: int
) -> None:
    free = Staged(blocks)
    ready, staged, held = list(range(blocks)), list[int](), list[int]()
    for _ in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["pop", "push", "take"]))
        if action == "push" and held:
            some = data.draw(st.lists(st.sampled_from(held), unique=True))
            free.push(np.array(some, np.int64))
            staged, held = staged + some, [b for b in held if b not in some]
        elif action == "take" and ready + staged:
            some = data.draw(st.lists(st.sampled_from(ready + staged), unique=True))
            free.take(np.array(some, np.int64))
            ready, staged = ([b for b in part if b not in some] for part in (ready, staged))
            held += some
        elif action == "pop":
            count = data.draw(st.integers(0, len(ready + staged)))
            if count > len(ready):
                ready, staged = sorted(ready + staged), []
            assert free.pop(count).tolist() == ready[:count]
            held, ready = held + ready[:count], ready[count:]
        assert free.free == len(ready + staged)
