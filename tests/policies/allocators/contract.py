"""What every allocator must keep, checked against a plain list of what lies in each slot."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Classifies,
    Contiguous,
    CopiesKv,
    Drafts,
    Forks,
    Learns,
    Migrates,
    OnDemand,
    Remembers,
    Swaps,
)
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import Prediction

LAYOUT = KvLayout(base=4096, slots=1024, layers=2, kv_heads=2, head_bytes=256)
LIMITS = Limits(max_tokens=128, max_model_len=256)
REQUESTS = 400
PREFIXES = {-1: 0, 0: 70, 1: 25}
"""Tokens of each system prompt; the odd one fills no block."""
OTHER = {"frame": "4KiB", "page": 16, "stagger": 5}
"""Options that are numbers, with another value than their default."""
CHUNKS = st.one_of(st.just(1.0), st.just(1.0), st.floats(0.01, 1))
"""Shares of a prefill that the first step of a residence takes."""


def cases() -> list[tuple[str, PolicyOptions]]:
    """Every registered policy with its defaults, and with each choice of each of its options."""
    found: list[tuple[str, PolicyOptions]] = []
    for name, allocator in POLICIES.items():
        found.append((name, allocator.Options.model_validate({"name": name})))
        if name == "odma-best":  # other defaults of odma, whose choices are there
            continue
        for key, info in allocator.Options.model_fields.items():
            if get_origin(info.annotation) is Literal:
                for choice in get_args(info.annotation):
                    if choice == "free" and name != "static":
                        continue  # compaction as `copied`, without the copies
                    if choice != info.default:
                        chosen = {"name": name, key: choice}
                        if name == "vattention":
                            chosen["frame"] = "4KiB"  # 128 groups, a tenth of which are some
                        if (name, key) == ("odma", "compaction"):
                            chosen["space"] = "arena"  # blocks of slabs do not move
                        options = allocator.Options.model_validate(chosen)
                        found.append((f"{name}-{key}-{choice}", options))
            elif info.annotation is bool:
                options = allocator.Options.model_validate({"name": name, key: not info.default})
                found.append((f"{name}-{key}-{not info.default}", options))
            elif key in OTHER:
                options = allocator.Options.model_validate({"name": name, key: OTHER[key]})
                found.append((f"{name}-{key}", options))
    return found


def build(options: PolicyOptions, layout: KvLayout = LAYOUT, requests: int = REQUESTS) -> Any:
    return POLICIES[options.name](layout, requests, LIMITS, options)


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
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Slots of the stored tokens."""
    forked: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Names of the tokens that it has of another one, from the first on."""

    @property
    def most(self) -> int:
        """Tokens stored at its end: the last one never is."""
        return self.demand.prompt + self.demand.output - 1

    def tokens(self, request: int, count: int) -> np.ndarray:
        """Names of the first `count` tokens: shared ones below -1, own ones by the request."""
        own = request if self.demand.session < 0 else self.demand.session
        names = own * 10_000 + np.arange(count)
        shared = min(self.demand.prefix_tokens, count)
        names[:shared] = -2 - self.demand.prefix_id * 1000 - np.arange(shared)
        if self.demand.parent >= 0:
            prompt = min(self.demand.prompt, count)
            names[:prompt] = -9_000_000 - self.demand.parent * 1000 - np.arange(prompt)
        forked = self.forked[:count]
        names[: len(forked)] = forked
        return names


def _round(allocator: Any, order: list[int]) -> bool:
    """Grow each by a token, in order; whether all could. Allocators that prepare a
    step as a whole are given it whole."""
    requests = np.array(order, np.int64)
    if allocator.able(Batches) and allocator.headroom(requests, 1):
        allocator.advance(requests, 1)
        return True
    fitting = allocator.growing(requests)
    assert fitting == 0 or allocator.headroom(requests[:fitting], 1)
    assert fitting == len(order) or not allocator.headroom(requests[: fitting + 1], 1)
    grown = [allocator.grow(request, 1) for request in order]
    return all(grown)


class Contract(RuleBasedStateMachine):
    """Random lives of requests; a subclass sets `options`."""

    options: PolicyOptions

    def __init__(self) -> None:
        super().__init__()
        self.allocator: Any = build(self.options)
        self.empty = (self.allocator.free_slots, self.allocator.largest_hole)
        self.held: dict[int, Life] = {}
        self.gone: dict[int, Life] = {}
        self.away: dict[int, Life] = {}
        self.between: list[Life] = []
        """Last turns of sessions, which have ended."""
        self.leaving: list[tuple[int, int]] = []
        """(start, slots) of places that requests moved out of in this step."""
        self.content = np.full(LAYOUT.slots, -1)
        """The name of the token that lies in each slot."""
        self.now_s = 0.0
        self.next = 0

    def slots(self, request: int) -> np.ndarray:
        """Slots of the stored tokens, unit by unit."""
        units = self.allocator.units(request)
        return _spread(units.start, units.tokens)

    def store(self, request: int, more: int, found: int = 0) -> None:
        """`more` tokens were stored, the first `found` of which lay there already: those are left
        alone, what is copied on write is copied, and the rest is computed into its slots."""
        life = self.held[request]
        life.held += more
        kept, life.places = life.places, self.slots(request)
        # of two pages with the same text, of which one may be half full, a tree keeps one
        if not (isinstance(self.allocator, IdealAllocator) or self.allocator.able(Batches)):
            assert np.isin(kept, life.places).all(), "what was stored stays where it is"
        copies = self.allocator.able(CopiesKv).copies() if self.allocator.able(CopiesKv) else []
        for made in copies:
            target = made.target + np.arange(made.tokens)
            self.content[target] = self.content[made.source : made.source + made.tokens]
            kept = np.append(kept, target)
        names = np.full(len(life.places), request * 10_000 + 9999)
        first = life.tokens(request, min(life.held, len(life.places)))
        names[: len(first)] = first
        new = ~np.isin(life.places, kept)
        new[:found] = False
        self.content[life.places[new]] = names[new]

    def admit(self, request: int, life: Life, total: int, chunk: float) -> bool:
        """Ask for a share of the `total` tokens; a refusal changes nothing."""
        allocator, demand = self.allocator, life.demand
        before = state(allocator)
        if allocator.able(Classifies):
            assert (
                0
                <= allocator.able(Classifies).tag(request, demand)
                <= len(allocator.able(Classifies).bounds)
            )
        found = cached(allocator, request, total - 1, demand)
        assert 0 <= found < total
        tokens = found + max(1, int((total - found) * chunk))
        assert cached(allocator, request, tokens - 1, demand) == found
        refuses = allocator.refuses(request, demand, tokens)
        fits = (allocator.able(OnDemand) is None) or allocator.able(OnDemand).fits(
            tokens, request, demand
        )
        if not allocator.reserve(request, demand, tokens):
            assert state(allocator) == before
            return False
        assert fits and not refuses
        self.compact(request)
        life.held, life.places = 0, np.zeros(0, np.int64)
        self.held[request] = life
        self.store(request, tokens, found)
        return True

    def compact(self, admitted: int) -> None:
        """Runs may have moved to admit a request: their tokens move with them, by the copies that
        are to be charged where they are. What the request begins with may be copied from a run."""
        allocator = self.allocator
        if allocator.able(Contiguous) is None:
            return
        found = {move.request: move for move in allocator.able(Contiguous).moves()}
        content = self.content.copy()
        if move := found.pop(admitted, None):
            assert self.options.prefixes == "copy"
            assert move.target == allocator.units(admitted).start[0]
            source = content[move.source : move.source + move.tokens]
            self.content[move.target : move.target + move.tokens] = source
        for request, life in self.held.items():
            places = self.slots(request)
            if (places == life.places).all():
                assert request not in found
                continue
            assert self.options.compaction != "none"
            if self.options.compaction == "copied":
                move = found[request]
                assert (move.source, move.target) == (life.places[0], places[0])
                assert (move.tokens, move.left) == (life.held, allocator.reserved[request])
            self.content[places] = content[life.places]
            life.places = places

    @precondition(lambda self: self.next < REQUESTS)
    @rule(
        prompt=st.integers(1, 120), output=st.integers(1, 128), guess=st.floats(0.1, 2),
        sigma=st.sampled_from([0.0, 0.3, 2.0]), chunk=CHUNKS,
        prefix=st.sampled_from([-1, -1, 0, 0, 1]), talks=st.booleans(),
    )  # fmt: skip
    def reserve(
        self, prompt: int, output: int, guess: float, sigma: float, chunk: float, prefix: int,
        talks: bool,
    ) -> None:  # fmt: skip
        prediction = Prediction(max(output * guess, 1.0), sigma)
        shared = min(PREFIXES[prefix], prompt)
        session = self.next if talks else -1
        demand = Demand(prompt, 0, prediction, prefix, shared, output, session=session)
        self.admit(self.next, Life(demand), prompt, chunk)
        self.next += 1

    @precondition(lambda self: self.between and self.next < REQUESTS)
    @rule(data=st.data(), message=st.integers(1, 60), output=st.integers(1, 128), chunk=CHUNKS)
    def next_turn(self, data: st.DataObject, message: int, output: int, chunk: float) -> None:
        """A turn begins with all that the one before has stored, and more."""
        at = data.draw(st.integers(0, len(self.between) - 1))
        last = self.between[at]
        prompt = last.held + message
        if prompt > LIMITS.max_tokens:
            return
        prediction = Prediction(float(output))
        demand = last.demand._replace(
            prompt=prompt, generated=0, prediction=prediction, output=output
        )
        if self.admit(self.next, Life(demand), prompt, chunk):
            del self.between[at]
        self.next += 1

    @precondition(lambda self: self.next + 12 <= REQUESTS)
    @rule(
        prompt=st.integers(10, 120), output=st.integers(2, 128), prefix=st.sampled_from([-1, 0]),
        guess=st.sampled_from([0.3, 1.0]), count=st.integers(2, 12), samples=st.booleans(),
    )  # fmt: skip
    def crowd(
        self, prompt: int, output: int, prefix: int, guess: float, count: int, samples: bool
    ) -> None:  # fmt: skip
        """Many arrive at once, perhaps as samples of one prompt, until one is refused."""
        prefix = -1 if samples else prefix
        shared, parent = min(PREFIXES[prefix], prompt), self.next if samples else -1
        demand = Demand(prompt, 0, Prediction(output * guess), prefix, shared, output, parent)
        for _ in range(count):
            self.next += 1
            if not self.admit(self.next - 1, Life(demand), prompt, 1.0):
                break

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), chunk=CHUNKS, sigma=st.sampled_from([0.0, 2.0]))
    def come_back(self, data: st.DataObject, chunk: float, sigma: float) -> None:
        """A preempted request is admitted again; what is said to be in memory must be there."""
        request = data.draw(st.sampled_from(sorted(self.gone)))
        life = self.gone[request]
        demand, total = life.demand, life.held
        generated = max(total - demand.prompt, 0)
        prediction = Prediction(float(demand.output), sigma)
        again = demand._replace(generated=generated, prediction=prediction)
        if self.admit(request, Life(again, forked=life.forked), total, chunk):
            del self.gone[request]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), tokens=st.integers(1, 40))
    def grow(self, data: st.DataObject, tokens: int) -> None:
        request = data.draw(st.sampled_from(sorted(self.held)))
        life = self.held[request]
        tokens = min(tokens, life.most - life.held)
        if tokens < 1:
            return
        before = state(self.allocator)
        if self.allocator.grow(request, tokens):
            self.store(request, tokens)
        else:
            assert state(self.allocator) == before

    @precondition(lambda self: self.held and self.allocator.able(Migrates))
    @rule(data=st.data())
    def migrate(self, data: st.DataObject) -> None:
        """A request fills its place and is moved: every token it has is copied, and nothing
        else."""
        request = data.draw(st.sampled_from(sorted(self.held)))
        life, alone = self.held[request], np.array([request])
        if life.held >= life.demand.prompt:
            left = max(life.most - life.held, 0)
            rounds = self.allocator.headroom(alone, left)
            self.allocator.advance(alone, rounds)
            self.store(request, rounds)
        if self.allocator.headroom(alone, 1):
            return
        before = state(self.allocator)
        reserved = int(self.allocator.reserved[request])
        moved = self.allocator.able(Migrates).migrate(request)
        if moved is None:
            assert state(self.allocator) == before
            return
        assert (moved.request, moved.tokens, moved.left) == (request, life.held, reserved)
        assert (life.places == moved.source + np.arange(moved.tokens)).all()
        target = moved.target + np.arange(moved.tokens)
        self.content[target] = self.content[life.places]
        life.places = target
        self.leaving.append((moved.source, moved.left))
        assert self.allocator.headroom(alone, 1)

    @precondition(lambda self: len(self.held) > 1 and self.allocator.able(Forks) is not None)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """A sample goes on from another one's tokens."""
        pairs = [
            (one, other) for one, mine in self.held.items() for other, theirs in self.held.items()
            if one != other and mine.demand.parent == theirs.demand.parent >= 0
            and mine.demand.prompt <= mine.held <= theirs.held
        ]  # fmt: skip
        if not pairs:
            return
        request, source = data.draw(st.sampled_from(pairs))
        life, free = self.held[request], self.allocator.free_slots
        self.allocator.able(Forks).fork(request, source)
        assert self.allocator.free_slots >= free
        for made in self.allocator.able(CopiesKv).copies():
            target = made.target + np.arange(made.tokens)
            self.content[target] = self.content[made.source : made.source + made.tokens]
        life.forked = self.held[source].tokens(source, life.held)
        life.places = self.slots(request)

    @precondition(lambda self: self.leaving)
    @rule()
    def settle(self) -> None:
        self.allocator.able(Migrates).settle()
        self.leaving.clear()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), rounds=st.integers(1, 40))
    def advance(self, data: st.DataObject, rounds: int) -> None:
        decoding = [r for r, life in sorted(self.held.items()) if life.held >= life.demand.prompt]
        if not decoding:
            return
        order = data.draw(st.one_of(st.just(decoding), st.permutations(decoding)))
        order = order[: data.draw(st.integers(1, len(order)))] if rounds % 2 else order
        requests = np.array(order, np.int64)
        room = self.allocator.headroom(requests, rounds)
        assert 0 <= room <= rounds
        slow = copy.deepcopy(self.allocator)
        reserved = []
        for _ in range(room):
            assert _round(slow, order)
            reserved.append(slow.reserved_total)
        if self.allocator.layout.groups is None:  # of which a stretch of steps is made
            taken = slow.reserved_total - self.allocator.reserved_total
            said = self.allocator.taken(requests, room)
            own = type(self.allocator).taken is not Allocator.taken
            assert said == taken if own else said <= taken
        self.allocator.advance(requests, room)
        assert state(self.allocator) == state(slow)
        grown = np.zeros(room, np.int64)
        if self.allocator.able(OnDemand):
            grown = self.allocator.able(OnDemand).grown(requests, room)
        assert (self.allocator.reserved_total - grown).tolist() == reserved
        if room < rounds:
            assert not _round(slow, order)
        for request in order:
            self.store(request, room)

    @precondition(lambda self: self.held and self.allocator.able(Drafts))
    @rule(data=st.data())
    def keep_drafts(self, data: st.DataObject) -> None:
        """A step keeps some drafts of each request, in order, until one has no room."""
        lives = self.held.items()
        decoding = [r for r, life in lives if life.demand.prompt <= life.held < life.most]
        if not decoding:
            return
        requests = np.array(data.draw(st.permutations(decoding)), np.int64)
        most = [min(self.held[r].most - self.held[r].held, 20) for r in requests.tolist()]
        kept = np.array([data.draw(st.integers(1, each)) for each in most])
        before, none = self.allocator.stored[requests], 0 * requests
        had = self.allocator.able(Drafts).store_ahead(requests, kept, none, none)
        more = self.allocator.stored[requests] - before
        assert (more == np.where(np.arange(len(requests)) < had, kept, 0)).all()
        for request, tokens in zip(requests[:had].tolist(), kept.tolist(), strict=False):
            self.store(request, tokens)
        if had < len(requests):
            assert not self.allocator.grow(int(requests[had]), int(kept[had]))

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data(), ended=st.booleans())
    def release(self, data: st.DataObject, ended: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.held)))
        reserved = int(self.allocator.reserved[request])
        assert self.allocator.release(request) == reserved
        life = self.held.pop(request)
        prompt = life.demand.prompt
        if ended:
            if self.allocator.able(Remembers):
                self.allocator.able(Remembers).finished(request, prompt, life.demand.output)
            if life.demand.session >= 0:
                self.between.append(life)
        elif life.held < life.most:
            # tokens that were to be computed next are computed with the others
            life.held = life.held + 1 if life.held >= prompt else prompt
            self.gone[request] = life

    @precondition(lambda self: len(self.held) > 1 and self.allocator.able(Swaps))
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.held)))
        life = self.away[request] = self.held.pop(request)
        assert self.allocator.able(Swaps).swap_out(request) == life.held

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def swap_in(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.away)))
        life, before = self.away[request], state(self.allocator)
        found = cached(self.allocator, request, life.held - 1, life.demand)
        found *= self.allocator.able(Contiguous) is None  # all comes from the host
        if not self.allocator.able(Swaps).swap_in(request):
            assert state(self.allocator) == before
            return
        self.compact(request)
        tokens, life.held, life.places = life.held, 0, np.zeros(0, np.int64)
        self.held[request] = self.away.pop(request)
        self.store(request, tokens, found)

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        if self.allocator.able(Learns):
            self.allocator.able(Learns).clock(self.now_s)

    @invariant()
    def every_token_is_in_its_slot_and_bytes_are_conserved(self) -> None:
        """A slot has one owner, or holds a token of all of them; runs that touch are one."""
        allocator = self.allocator
        assert np.flatnonzero(allocator.resident).tolist() == sorted(self.held)
        assert 0 <= allocator.fragmentation <= 1
        owners, stored = np.zeros((2, LAYOUT.slots), np.int64)
        for request, life in self.held.items():
            units = allocator.units(request)
            assert life.held == allocator.stored[request] == units.tokens.sum()
            assert (units.tokens <= units.size).all() and units.start.min() >= 0
            ends = units.start + units.size
            assert ends.max() <= LAYOUT.slots
            assert units.size.sum() == allocator.reserved[request]
            runs = 1 + (units.start[1:] != ends[:-1]).sum()
            assert allocator.extent_count(np.array([request])) == runs
            held = np.bincount(_spread(units.start, units.size), minlength=LAYOUT.slots)
            assert held.max() <= 1, "a request holds a slot twice"
            places = _spread(units.start, units.tokens)
            owners += held
            stored[places] += 1
            if not isinstance(allocator, IdealAllocator):  # it moves tokens at will
                assert (self.content[places] == life.tokens(request, life.held)).all()
        both = owners > 1
        assert (stored[both] == owners[both]).all(), "a slot of two owners holds no token of both"
        for start, size in self.leaving:
            assert not owners[start : start + size].any(), "a place is lost before it is copied"
            owners[start : start + size] = 1
        assert (owners > 0).sum() == allocator.reserved_total
        assert (owners > 0).sum() + allocator.free_slots == self.empty[0]

    def teardown(self) -> None:
        if self.allocator.able(Migrates):
            self.allocator.able(Migrates).settle()
        for request in list(self.held):
            self.allocator.release(request)
        assert (self.allocator.free_slots, self.allocator.largest_hole) == self.empty
        assert self.allocator.reserved_total == 0


def _spread(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """All slots of these runs."""
    before = np.cumsum(size) - size
    spread: np.ndarray = np.repeat(start - before, size) + np.arange(size.sum())
    return spread
