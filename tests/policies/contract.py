"""What every allocator must keep, checked against a plain list of who holds what."""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args, get_origin

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.kv_layout import KvLayout
from policies.predictor import Prediction
from policies.registry import POLICIES

LAYOUT = KvLayout(base=4096, slots=1024, layers=2, kv_heads=2, head_bytes=16)
LIMITS = Limits(max_tokens=128, max_model_len=256)
REQUESTS = 400


def cases() -> list[tuple[str, PolicyOptions]]:
    """Every registered policy with its defaults, and with each choice of each of its options."""
    found: list[tuple[str, PolicyOptions]] = []
    for name, allocator in POLICIES.items():
        found.append((name, allocator.Options.model_validate({"name": name})))
        for field, info in allocator.Options.model_fields.items():
            if get_origin(info.annotation) is Literal:
                for choice in get_args(info.annotation):
                    if choice != info.default:
                        options = allocator.Options.model_validate({"name": name, field: choice})
                        found.append((f"{name}-{field}-{choice}", options))
            elif info.annotation is bool:
                options = allocator.Options.model_validate({"name": name, field: not info.default})
                found.append((f"{name}-{field}-{not info.default}", options))
    return found


def build(options: PolicyOptions, layout: KvLayout = LAYOUT, requests: int = REQUESTS) -> Any:
    return POLICIES[options.name](layout, requests, LIMITS, options)


def state(allocator: Allocator) -> tuple[Any, ...]:
    """Everything visible of an allocator."""
    residents = np.flatnonzero(allocator.resident).tolist()
    places = {
        r: tuple(map(tuple, (column.tolist() for column in allocator.units(r)))) for r in residents
    }
    counts = (allocator.free_slots, allocator.largest_hole, allocator.reserved_total)
    return places, counts, allocator.stored.tolist(), allocator.reserved.tolist()


def _round(allocator: Allocator, order: list[int]) -> bool:
    """Grow each by a token, in order; whether all could."""
    grown = [allocator.grow(request, 1) for request in order]
    return all(grown)


class Contract(RuleBasedStateMachine):
    """Random lives of requests; a subclass sets `options`."""

    options: PolicyOptions

    def __init__(self) -> None:
        super().__init__()
        self.allocator: Allocator = build(self.options)
        self.empty = (self.allocator.free_slots, self.allocator.largest_hole)
        self.held: dict[int, int] = {}
        self.lengths: dict[int, tuple[int, int]] = {}
        self.gone: dict[int, int] = {}
        self.content = np.full(LAYOUT.slots, -1)
        """What lies in each slot: request x 1000 + token."""
        self.next = 0

    def slots(self, request: int) -> np.ndarray:
        """Slots of the stored tokens, in token order."""
        units = self.allocator.units(request)
        runs = zip(units.start, units.tokens, strict=True)
        return np.concatenate([np.arange(start, start + tokens) for start, tokens in runs])

    def compute(self, request: int, first: int = 0) -> None:
        """The tokens from `first` on are written into their slots."""
        slots = self.slots(request)
        self.content[slots[first:]] = request * 1000 + np.arange(first, len(slots))

    @precondition(lambda self: self.next < REQUESTS)
    @rule(
        prompt=st.integers(1, 120), output=st.integers(1, 128), guess=st.floats(0.2, 3),
        sigma=st.sampled_from([0.0, 0.3, 2.0]), chunk=st.floats(0.01, 1),
    )  # fmt: skip
    def reserve(self, prompt: int, output: int, guess: float, sigma: float, chunk: float) -> None:
        before = state(self.allocator)
        tokens = max(1, int(prompt * chunk))
        demand = Demand(prompt, 0, Prediction(max(output * guess, 1.0), sigma))
        if self.allocator.reserve(self.next, demand, tokens):
            self.held[self.next] = tokens
            self.lengths[self.next] = (prompt, output)
            self.compute(self.next)
        else:
            assert state(self.allocator) == before
        self.next += 1

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), chunk=st.floats(0.01, 1), sigma=st.sampled_from([0.0, 2.0]))
    def come_back(self, data: st.DataObject, chunk: float, sigma: float) -> None:
        """A preempted request is admitted again; what is said to be in memory must be there."""
        before = state(self.allocator)
        request = data.draw(st.sampled_from(sorted(self.gone)))
        prompt, output = self.lengths[request]
        total = self.gone[request]
        cached = self.allocator.cached(request, total - 1)
        assert 0 <= cached < total
        tokens = cached + max(1, int((total - cached) * chunk))
        assert self.allocator.cached(request, tokens - 1) == cached
        demand = Demand(prompt, max(total - prompt, 0), Prediction(float(output), sigma))
        if self.allocator.reserve(request, demand, tokens):
            del self.gone[request]
            self.held[request] = tokens
            self.compute(request, cached)
        else:
            assert state(self.allocator) == before

    @precondition(lambda self: self.held)
    @rule(data=st.data(), tokens=st.integers(1, 40))
    def grow(self, data: st.DataObject, tokens: int) -> None:
        request = data.draw(st.sampled_from(sorted(self.held)))
        tokens = min(tokens, sum(self.lengths[request]) - self.held[request])
        if tokens < 1:
            return
        before = state(self.allocator)
        if self.allocator.grow(request, tokens):
            self.held[request] += tokens
            self.compute(request, self.held[request] - tokens)
            return
        assert state(self.allocator) == before
        moved = self.allocator.migrate(request)
        if moved is None:
            assert state(self.allocator) == before
            return
        assert (moved.request, moved.tokens) == (request, self.held[request])
        self.disjoint(extra=(moved.source, moved.left))
        self.allocator.settle()
        assert self.allocator.grow(request, tokens)
        self.held[request] += tokens
        self.compute(request)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), rounds=st.integers(1, 40))
    def advance(self, data: st.DataObject, rounds: int) -> None:
        order = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))
        requests = np.array(order, np.int64)
        room = self.allocator.headroom(requests, rounds)
        assert 0 <= room <= rounds
        slow = copy.deepcopy(self.allocator)
        for _ in range(room):
            assert _round(slow, order)
        self.allocator.advance(requests, room)
        assert state(self.allocator) == state(slow)
        if room < rounds:
            assert not _round(slow, order)
        for request in order:
            self.held[request] += room
            self.compute(request, self.held[request] - room)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ended=st.booleans())
    def release(self, data: st.DataObject, ended: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.held)))
        reserved = int(self.allocator.reserved[request])
        assert self.allocator.release(request) == reserved
        stored = self.held.pop(request)
        if ended:
            self.allocator.finished(request, *self.lengths[request])
        elif stored < sum(self.lengths[request]):
            self.gone[request] = stored + 1  # the token that was to be computed next

    @invariant()
    def disjoint(self, extra: tuple[int, int] | None = None) -> None:
        """No slot has two owners, and every token has its slot."""
        used = np.zeros(LAYOUT.slots, np.int64)
        if extra is not None:
            used[extra[0] : extra[0] + extra[1]] += 1
        for request, tokens in self.held.items():
            units = self.allocator.units(request)
            assert units.tokens.sum() == tokens == self.allocator.stored[request]
            assert (units.tokens <= units.size).all() and units.start.min() >= 0
            assert (units.start + units.size).max() <= LAYOUT.slots
            assert units.size.sum() == self.allocator.reserved[request]
            for start, size in zip(units.start, units.size, strict=True):
                used[start : start + size] += 1
        assert used.max(initial=0) <= 1
        assert used.sum() == self.allocator.reserved_total
        assert used.sum() + self.allocator.free_slots == self.empty[0]

    @invariant()
    def every_token_is_in_its_slot(self) -> None:
        for request, tokens in self.held.items():
            assert (self.content[self.slots(request)] == request * 1000 + np.arange(tokens)).all()

    @invariant()
    def resident_are_held(self) -> None:
        assert np.flatnonzero(self.allocator.resident).tolist() == sorted(self.held)
        assert 0 <= self.allocator.fragmentation <= 1

    @invariant()
    def runs_are_counted(self) -> None:
        for request in self.held:
            units = self.allocator.units(request)
            breaks = (units.start[1:] != (units.start + units.size)[:-1]).sum()
            assert self.allocator.extent_count(np.array([request])) == 1 + breaks

    def teardown(self) -> None:
        for request in list(self.held):
            self.allocator.release(request)
        assert (self.allocator.free_slots, self.allocator.largest_hole) == self.empty
        assert self.allocator.reserved_total == 0
