"""What every allocator must keep, checked against a plain list of what lies in each slot; all that
it answers comes to a checksum (`Contract.told`)."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Contiguous,
    CopiesKv,
    KeepsStates,
    Learns,
    Maps,
    Migrates,
    MovesBlocks,
    OnDemand,
    report_of,
)
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import Units
from policies.allocators.registry import POLICIES
from tests.policies.allocators.settings import LIMITS, REQUESTS, Setting
from tests.policies.checksum import checksum

One = TypeVar("One")


class Hands:
    """An allocator with all that its parts can do, as one object."""

    def __init__(self, allocator: Allocator) -> None:
        self.whole = (allocator, *allocator.has)

    def __getattr__(self, name: str) -> Any:
        found = next((each for each in self.__dict__.get("whole", ()) if hasattr(each, name)), None)
        if found is None:
            raise AttributeError(name)
        return getattr(found, name)


def state(allocator: Allocator) -> tuple[Any, ...]:
    """Everything visible of an allocator."""
    residents = np.flatnonzero(allocator.resident).tolist()
    places = {
        r: tuple(map(tuple, (column.tolist() for column in allocator.units(r)))) for r in residents
    }
    counts = (allocator.free_slots, allocator.largest_hole, allocator.reserved_total)
    return places, counts, allocator.stored.tolist(), allocator.reserved.tolist()


def cached(allocator: Any, request: int, limit: int, demand: Demand) -> int:
    """Tokens that are in memory already; none without the capability."""
    return allocator.able(Caches).cached(request, limit, demand) if allocator.able(Caches) else 0


@dataclass
class Life:
    """A request as its user sees it."""

    demand: Demand
    held: int = 0
    """Tokens stored, or when swapped out or gone, the tokens to store again."""
    dropped: int = 0
    """Those of them that lie elsewhere, the first ones."""
    places: list[np.ndarray] = field(default_factory=list)
    """Of each group of layers the slots of the tokens that lie here."""
    forked: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Names of the tokens that it has of another one, from the first on."""
    drafted: bool = False
    """Whether drafts may have left slots behind it."""
    seen: int = 0
    """Tokens that the window has seen, with drafts that were rejected."""

    @property
    def left(self) -> int:
        """Tokens that it may still store, whatever its answer is."""
        return max(self.demand.prompt + LIMITS.max_tokens - 1 - self.held, 0)

    @property
    def most(self) -> int:
        """Tokens stored at its end: the last one never is."""
        return self.demand.prompt + self.demand.output - 1

    def tokens(self, request: int) -> np.ndarray:
        """Names of the tokens that lie here: shared ones below -1, own ones by the request."""
        own = request if self.demand.session < 0 else self.demand.session
        names, prompt = own * 10_000 + np.arange(self.held), min(self.demand.prompt, self.held)
        if self.demand.parent >= 0:
            names[:prompt] = -9_000_000 - self.demand.parent * 1000 - np.arange(prompt)
        texts = (*self.demand.above, (self.demand.prefix_id, self.demand.prefix_tokens))
        for prefix, end in texts[::-1] if self.demand.prefix_id >= 0 else ():
            names[: min(end, prompt)] = -2 - prefix * 1000 - np.arange(min(end, prompt))
        forked = self.forked[: self.held]
        names[: len(forked)] = forked
        return names[self.dropped :]


class Contract:
    """An allocator, and beside it what lies in each slot."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.options, self.limits, self.layout = setting.options, setting.limits, setting.layout
        self.allocator: Any = POLICIES[self.options.name](
            self.layout, REQUESTS, self.limits, self.options
        )
        groups = self.layout.groups
        self.windows: tuple[int | None, ...] = (None,) if groups is None else groups.kept
        self.empty = (self.allocator.free_slots, self.allocator.largest_hole)
        self.told = 0
        self.count = Counter[str]()
        """How often each thing happened."""
        self.held: dict[int, Life] = {}
        self.gone: dict[int, Life] = {}
        self.away: dict[int, Life] = {}
        self.guests: dict[int, int] = {}
        """Tokens of requests that run on another card."""
        self.between: list[Life] = []
        """Last turns of sessions, which have ended."""
        self.leaving: list[tuple[int, int]] = []
        """(start, slots) of places that requests moved out of in this step."""
        self.barred: np.ndarray = np.zeros(0, np.int64)
        self.content = np.full(self.layout.slots, -1)
        """The name of the token that lies in each slot, and its group."""
        self.now_s = 0.0
        self.next = 0
        if self.maybe() and (learns := self.allocator.able(Learns)):
            learns.profile(self.rng.integers(1, 100, 20), self.rng.integers(1, 128, 20))

    # chance

    def some(self, low: int, high: int) -> int:
        """A number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def maybe(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, choices: Sequence[One]) -> One:
        return choices[self.some(0, len(choices) - 1)]

    def any_of(self, requests: Sequence[int]) -> np.ndarray:
        """Some of them, in any order; one at least."""
        return self.rng.permutation(requests)[: self.some(1, len(requests))]

    def tell(self, *said: Any) -> None:
        """This was answered."""
        text = json.dumps(said, default=lambda each: each.tolist())
        self.told = zlib.crc32(text.encode(), self.told)

    # what lies where

    @property
    def decoding(self) -> list[int]:
        return [r for r, life in sorted(self.held.items()) if life.held >= life.demand.prompt]

    @property
    def unpinned(self) -> list[int]:
        whole = (r for r, life in sorted(self.held.items()) if not life.dropped)
        return [request for request in whole if request not in self.allocator.pinned]

    def places(self, request: int) -> list[np.ndarray]:
        """Slot of each token in each group; of those that are gone, wherever."""
        groups = range(len(self.windows))
        return [token_slots(self.allocator.layer_units(request, group)) for group in groups]

    def attended(self, group: int, life: Life) -> int:
        """Of the tokens that lie here, the first that the next one attends to."""
        window, seen = self.windows[group], max(life.seen, life.held) - life.dropped
        return 0 if window is None else max(seen - window + 1, 0)

    def write(self, request: int, first: int) -> None:
        """The tokens from `first` on of those that lie here are computed into their slots."""
        life, groups = self.held[request], len(self.windows)
        names = life.tokens(request)
        for group, slots in enumerate(life.places):
            assert len(slots) == len(names)
            start = max(first, self.allocator.first_kept(request, group))
            self.content[slots[start:]] = names[start:] * groups + group

    def store(self, request: int, more: int, found: int = 0) -> None:
        """`more` tokens were stored, the first `found` of which lay there already: those are left
        alone, and the rest is computed into its slots."""
        life = self.held[request]
        before, old = life.held - life.dropped, life.places
        life.held += more
        life.places = self.places(request)
        # of two pages with the same text, of which one may be half full, a tree keeps one
        if before and not (isinstance(self.allocator, IdealAllocator) or self.moves_pages):
            for group, slots in enumerate(life.places):
                first = self.attended(group, life)
                assert (slots[first:before] == old[group][first:before]).all(), "stored stays"
        self.copied()
        self.write(request, max(before, found))

    @property
    def moves_pages(self) -> bool:
        return self.allocator.able(Batches) is not None

    def copied(self) -> list[Any]:
        """What was copied within the memory since the last time."""
        copies = able.copies() if (able := self.allocator.able(CopiesKv)) else []
        before = self.content.copy()
        for made in copies:
            source = before[made.source : made.source + made.tokens]
            self.content[made.target : made.target + made.tokens] = source
        self.tell(copies)
        return copies

    def compact(self, admitted: int, cached: int = 0) -> None:
        """Runs may have moved to admit a request: their tokens move with them, by the copies that
        are to be charged where they are. What the request begins with may be copied from a run."""
        allocator = self.allocator
        if (runs := allocator.able(Contiguous)) is None:
            return
        found = {move.request: move for move in runs.moves()}
        self.tell(list(found.values()))
        content = self.content.copy()
        if move := found.pop(admitted, None):
            assert self.options.copies_prefixes and move.tokens == cached
            assert move.target == allocator.units(admitted).start[0]
            source = content[move.source : move.source + move.tokens]
            self.content[move.target : move.target + move.tokens] = source
        for request, life in self.held.items():
            places = self.places(request)
            if all((new == old).all() for new, old in zip(places, life.places, strict=True)):
                assert request not in found
                continue
            assert self.options.compaction != "none" and request not in allocator.pinned
            if self.options.compaction == "copied":
                move = found[request]
                assert (move.source, move.target) == (life.places[0][0], places[0][0])
                assert (move.tokens, move.left) == (life.held, allocator.reserved[request])
                if self.limits.states:
                    self.tell(runs.moved_states(move, 0, self.limits.state_bytes))
            self.moved(life, places, content)

    def moved(self, life: Life, places: list[np.ndarray], content: np.ndarray) -> None:
        """The tokens of a request were copied to other places."""
        for group, (old, new) in enumerate(zip(life.places, places, strict=True)):
            first = self.attended(group, life)
            self.content[new[first:]] = content[old[first:]]
        life.places = places

    # what is asked

    def ask(self) -> None:
        """Questions that change nothing, of anybody."""
        allocator, tell = self.allocator, self.tell
        prompt, output = self.some(1, 120), self.some(1, 128)
        needs = allocator.needs(np.array([prompt]), np.array([output]))
        if on_demand := allocator.able(OnDemand):
            tell(on_demand.fits(prompt))
        tell(needs, allocator.reach)
        if moves := allocator.able(MovesBlocks):
            tell(moves.free_blocks())
        if not self.held:
            return
        requests = self.any_of(sorted(self.held))
        tell(allocator.growing(requests), allocator.headroom(requests, 30))
        tell(allocator.extent_count(requests))
        request, group = self.pick(sorted(self.held)), self.some(0, len(self.windows) - 1)
        slots, first = self.places(request)[group], allocator.first_kept(request, group)
        assert first <= self.attended(group, self.held[request])
        begin, end = sorted((self.some(first, len(slots)), self.some(first, len(slots))))
        pieces = allocator.pieces(request, begin, end, group)
        assert (token_slots(pieces) == slots[begin:end]).all() and (
            pieces.tokens == pieces.size
        ).all()
        starts = begin + np.cumsum(pieces.tokens) - pieces.tokens
        cuts = np.cumsum(allocator.layer_units(request, group).tokens)
        whole = (starts % allocator.transfer_block == 0) | np.isin(starts, cuts)
        assert whole[1:].all() and (pieces.tokens <= allocator.transfer_block).all()
        tell(first, pieces)
        if self.windows == (None,):
            half = self.pick([0, 1, None])
            runs = allocator.extents(request, self.some(0, self.layout.layers - 1), half)
            halves = 2 if half is None else 1
            assert runs.size.sum() == halves * len(slots) * self.layout.half_bytes
            tell(runs)
        if self.limits.state_bytes and (states := allocator.able(KeepsStates)):
            copies, size = self.limits.kept_states, self.limits.state_bytes
            runs = states.state_runs(request, self.some(0, copies - 1), self.some(0, 1), size)
            assert runs.size.sum() == size
            tell(runs, states.state_block, states.commits_states)
        if maps := allocator.able(Maps):
            decoding = np.array(self.decoding, np.int64)
            steps_s = self.rng.uniform(0, 1e-3, allocator.headroom(decoding, 20) + 1)
            tell([f"{each:.6g}" for each in maps.stalls(decoding, steps_s)], maps.frames().virtual)
            if self.maybe():
                maps.charged()

    @property
    def fixed(self) -> int:
        """Slots of a reservation that no unit has: frames of states."""
        frames = self.allocator.able(Maps) is not None
        return self.allocator.fixed * self.allocator.block if frames else 0

    def beside(self) -> np.ndarray:
        """Slots of states and of a drafter's KV that have blocks or frames of their own."""
        allocator = self.allocator
        kinds = (getattr(allocator, name, None) for name in ("state_blocks", "drafter_blocks"))
        held = [each.ravel() for kind in kinds if kind for each in kind.held.values()]
        if self.fixed:
            ids = allocator.ids[list(self.held)].tolist()
            held = [np.array(allocator.groups.used(one)[: allocator.fixed], int) for one in ids]
        blocks = np.unique(np.concatenate(held)) if held else np.zeros(0, np.int64)
        block = getattr(allocator, "block", 1)
        return run_slots(blocks * block, np.full(len(blocks), block))

    def check(self) -> list[Units]:
        """Every token is in its slot, and slots are conserved: one has one owner, or holds a token
        of all of them; runs that touch are one. The units of all."""
        allocator, ideal = self.allocator, isinstance(self.allocator, IdealAllocator)
        runs = allocator.able(Contiguous) is not None
        assert np.flatnonzero(allocator.resident).tolist() == sorted(self.held | self.guests)
        assert 0 <= allocator.fragmentation <= 1
        owners, stored = np.zeros((2, self.layout.slots), np.int64)
        said = [allocator.units(request) for request in (*self.held, *self.guests)]
        for request, units in zip((*self.held, *self.guests), said, strict=True):
            ends = units.start + units.size
            assert units.start.min(initial=0) >= 0 and ends.max(initial=0) <= self.layout.slots
            assert units.size.sum() + self.fixed == allocator.reserved[request]
            held = np.bincount(run_slots(units.start, units.size), minlength=self.layout.slots)
            assert held.max() <= 1, "a request holds a slot twice"
            owners += held
            if request in self.guests:
                assert allocator.stored[request] == self.guests[request]
                continue
            life = self.held[request]
            assert life.held - life.dropped == allocator.stored[request]
            assert self.layout.slots_of(life.held - life.dropped) <= units.size.sum()
            if not (runs or ideal) or len(self.windows) == 1:
                joined = 1 + (units.start[1:] != ends[:-1]).sum()
                assert allocator.extent_count(np.array([request])) == joined
            names = life.tokens(request)
            if ideal and len(self.windows) > 1:
                continue
            alone = len(self.windows) == 1
            for group, slots in enumerate([token_slots(units)] if alone else self.places(request)):
                assert len(slots) == len(names)
                first = self.attended(group, life)
                if not ideal:  # it moves tokens at will
                    name = names[first:] * len(self.windows) + group
                    assert (self.content[slots[first:]] == name).all()
                stored[slots[allocator.first_kept(request, group) :]] += 1
        both = owners > 1
        assert (stored[both] == owners[both]).all(), "a slot of two owners holds no token of both"
        for start, size in self.leaving:
            assert not owners[start : start + size].any(), "a place is lost before it is copied"
            owners[start : start + size] = 1
        assert not owners[self.barred].any()
        beside = self.beside()
        assert not owners[beside].any() and not np.isin(beside, self.barred).any()
        owners[beside] = 1
        if not ideal or not self.limits.states:
            assert (owners > 0).sum() == allocator.reserved_total
        total = allocator.reserved_total + allocator.free_slots
        assert total == self.empty[0] - len(self.barred)
        return said

    def end(self) -> str:
        """All leave, and it is as it was; what was told."""
        allocator = self.allocator
        caches = allocator.able(Caches)
        self.tell(allocator.preempts, allocator.transfer_block, caches and caches.discards)
        self.tell(caches and caches.loses_ends_first, checksum(report_of(allocator)))
        if moves := allocator.able(Migrates):
            moves.settle()
        for request in list(self.held | self.guests):
            allocator.release(request)
        if moves := allocator.able(MovesBlocks):
            assert moves.bar(self.barred[:0]) == 0
        assert allocator.free_slots == self.empty[0]
        assert allocator.largest_hole == self.empty[1] or allocator.able(Learns)
        assert allocator.reserved_total == 0
        return f"{self.told:08x}"


def run_slots(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """All slots of these runs."""
    before = np.cumsum(size) - size
    spread: np.ndarray = np.repeat(start - before, size) + np.arange(size.sum())
    return spread


def token_slots(units: Units) -> np.ndarray:
    """Of each token its slot, in token order."""
    return run_slots(units.start, units.tokens)
