"""What every allocator must keep, checked against a plain list of what lies in each slot, in random
lives; all that it answers comes to a checksum (`Contract.told`)."""

from __future__ import annotations

import copy
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import numpy as np

from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Classifies,
    Contiguous,
    CopiesKv,
    Drafts,
    Forks,
    KeepsStates,
    Learns,
    Maps,
    Migrates,
    MovesBlocks,
    OnDemand,
    Remembers,
    Swaps,
    report_of,
)
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import Prediction
from tests.policies.checksum import checksum

LAYOUT = KvLayout(base=4096, slots=1024, layers=2, kv_heads=2, head_bytes=256)
LIMITS = Limits(max_tokens=128, max_model_len=256)
REQUESTS = 400
TEXTS: dict[int, tuple[tuple[int, int], ...]] = {
    -1: (), 0: ((0, 70),), 1: ((1, 25),), 2: ((1, 25), (2, 40)), 3: ((1, 25), (3, 64)),
}  # fmt: skip
"""(Prefix, its end in tokens) of what requests begin with; odd ones fill no block."""
OTHER = {"frame": "4KiB", "page": 16, "stagger": 5}
"""Options that are numbers, with another value than their default."""
One = TypeVar("One")


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


class Setting(NamedTuple):
    """What lives are led on."""

    options: PolicyOptions
    limits: Limits = LIMITS
    model: TransformerSpec | None = None
    """With windows, which takes 1,536 slots more."""

    @property
    def layout(self) -> KvLayout:
        if self.model is None:
            return LAYOUT
        groups = kv_groups(self.model, self.options.kv_of_windows)
        assert groups is not None
        return KvLayout(4096, 2560, groups.size, 2, 32, groups=groups)


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


class Contract:
    """Random lives of requests."""

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
        return [_tokens(self.allocator.layer_units(request, group)) for group in groups]

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

    # what happens

    def act(self) -> None:
        """Something that can happen does."""
        while True:
            name = self.pick(ACTIONS)
            if getattr(self, name)():
                break
        self.count[name] += 1
        counts = self.allocator.free_slots, self.allocator.largest_hole
        self.tell(name, self.check(), counts, f"{self.allocator.fragmentation:.6g}")
        self.ask()

    def admit(self, request: int, life: Life, total: int, chunk: float) -> bool:
        """Ask for a share of the `total` tokens; a refusal changes nothing."""
        allocator, demand = self.allocator, life.demand
        if classes := allocator.able(Classifies):
            tag = classes.tag(request, demand)
            assert 0 <= tag <= len(classes.bounds)
            self.tell(tag, classes.bounds)
        found = cached(allocator, request, total - 1, demand)
        assert 0 <= found < total
        if (caches := allocator.able(Caches)) and self.maybe():
            asked = caches.ask(request, total - 1, demand)
            assert asked[0] == found and 0 <= asked[1] <= allocator.free_slots
            self.tell(asked)
        tokens = min(found + max(1, int((total - found) * chunk)), found + self.limits.step)
        before = state(allocator)
        found = cached(allocator, request, tokens - 1, demand)
        refuses = allocator.refuses(request, demand, tokens)
        fits = (able := allocator.able(OnDemand)) is None or able.fits(tokens, request, demand)
        came = self.maybe(0.2)
        self.tell(found, refuses, fits, came)
        reserve = allocator.receive if came else allocator.reserve
        if not reserve(request, demand, tokens):
            assert state(allocator) == before
            self.count["refused"] += 1
            return False
        assert fits and not refuses
        self.compact(request, found)
        life.held, life.places, life.drafted, life.seen = 0, [], False, 0
        self.held[request] = life
        self.store(request, tokens, 0 if came and allocator.able(Contiguous) else found)
        return True

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

    def demand(self, prompt: int, output: int, text: int = -1, **more: Any) -> Demand:
        """One that is as its prediction says, more or less."""
        guess = Prediction(max(output * self.rng.uniform(0.1, 2), 1.0), self.pick([0.0, 0.3, 2.0]))
        prefix, end = TEXTS[text][-1] if text >= 0 else (-1, 0)
        above = TEXTS[text][:-1]
        return Demand(prompt, 0, guess, prefix, min(end, prompt), output, above=above, **more)

    def chunk(self) -> float:
        """The share of a prefill that the first step of a residence takes."""
        return 1.0 if self.maybe() else self.rng.uniform(0.01, 1)

    def arrives(self) -> bool:
        if self.next >= REQUESTS:
            return False
        session = self.next if self.maybe() else -1
        text = self.pick([-1, -1, 0, 0, 1, 2, 3])
        prompt = self.some(1, 120)
        demand = self.demand(prompt, self.some(1, 128), text, session=session)
        self.admit(self.next, Life(demand), prompt, self.chunk())
        self.next += 1
        return True

    def next_turn(self) -> bool:
        """A turn begins with all that the one before has stored, and more."""
        at = self.some(0, len(self.between)) - 1
        if at < 0 or self.next >= REQUESTS:
            return False
        last, output = self.between[at], self.some(1, 128)
        prompt = last.held + self.some(1, 60)
        if prompt > self.limits.max_tokens:
            return False
        guess = Prediction(float(output))
        demand = last.demand._replace(prompt=prompt, generated=0, prediction=guess, output=output)
        if self.admit(self.next, Life(demand), prompt, self.chunk()):
            del self.between[at]
        self.next += 1
        return True

    def crowd(self) -> bool:
        """Many arrive at once, perhaps as samples of one prompt, until one is refused."""
        if self.next + 12 > REQUESTS:
            return False
        parent, prompt = self.next if self.maybe() else -1, self.some(10, 120)
        demand = self.demand(prompt, self.some(2, 128), self.pick([-1, 0]), parent=parent)
        for _ in range(self.some(2, 12)):
            self.next += 1
            if not self.admit(self.next - 1, Life(demand), prompt, 1.0):
                break
        return True

    def come_back(self) -> bool:
        """A preempted request is admitted again; what is said to be in memory must be there."""
        if not self.gone:
            return False
        request = self.pick(sorted(self.gone))
        life = self.gone[request]
        generated = max(life.held - life.demand.prompt, 0)
        prediction = Prediction(float(life.demand.output), self.pick([0.0, 2.0]))
        again = life.demand._replace(generated=generated, prediction=prediction)
        if self.admit(request, Life(again, forked=life.forked), life.held, self.chunk()):
            del self.gone[request]
        return True

    def grow(self) -> bool:
        request = self.pick(sorted(self.held) or [-1])
        if request < 0 or (left := self.held[request].most - self.held[request].held) < 1:
            return False
        tokens, before = min(self.some(1, 40), left), state(self.allocator)
        if grown := self.allocator.grow(request, tokens):
            self.store(request, tokens)
        else:
            assert state(self.allocator) == before or self.windows != (None,)
        self.tell(request, grown)
        return True

    def migrate(self) -> bool:
        """A request fills its place and is moved: every token it has is copied, and nothing
        else."""
        moves = self.allocator.able(Migrates)
        if not (moves and self.held):
            return False
        request = self.pick(sorted(self.held))
        life, alone = self.held[request], np.array([request])
        if life.held >= life.demand.prompt:
            rounds = self.allocator.headroom(alone, max(life.most - life.held, 0))
            self.allocator.advance(alone, rounds)
            self.store(request, rounds)
        if self.allocator.headroom(alone, 1):
            return False
        before, reserved = state(self.allocator), int(self.allocator.reserved[request])
        moved = moves.migrate(request)
        self.tell(moved)
        if moved is None:
            assert state(self.allocator) == before
            return True
        assert request not in self.allocator.pinned
        assert (moved.request, moved.tokens, moved.left) == (request, life.held, reserved)
        places = self.places(request)
        assert (life.places[0][0], places[0][0]) == (moved.source, moved.target)
        self.moved(life, places, self.content.copy())
        self.leaving.append((moved.source, moved.left))
        assert self.allocator.headroom(alone, 1)
        return True

    def settle(self) -> bool:
        if not self.leaving:
            return False
        self.allocator.able(Migrates).settle()
        self.leaving.clear()
        return True

    def fork(self) -> bool:
        """A sample goes on from another one's tokens."""
        pairs = [
            (one, other) for one, mine in self.held.items() for other, theirs in self.held.items()
            if one != other and mine.demand.parent == theirs.demand.parent >= 0
            and mine.demand.prompt <= mine.held <= theirs.held
            and not mine.dropped and not theirs.dropped
        ]  # fmt: skip
        forks = self.allocator.able(Forks)
        if not (pairs and forks and self.windows == (None,)):
            return False
        request, source = self.pick(pairs)
        life, free = self.held[request], self.allocator.free_slots
        forks.fork(request, source)
        assert self.allocator.free_slots >= free
        self.copied()
        life.forked = self.held[source].tokens(source)[: life.held]
        life.places = self.places(request)
        return True

    def advance(self) -> bool:
        if not self.decoding or self.limits.lookahead.drafter:
            return False
        requests = self.any_of(self.decoding)
        order = requests.tolist()
        rounds = self.some(1, 24)
        if self.allocator.able(Learns):  # whose large ones hold so many, and no more
            rounds = min(rounds, *(self.held[request].left for request in order))
        room = self.allocator.headroom(requests, rounds)
        assert 0 <= room <= rounds
        slow = copy.deepcopy(self.allocator)
        reserved = []
        for _ in range(room):
            assert _round(slow, order)
            reserved.append(slow.reserved_total)
        taken, said = slow.reserved_total - self.allocator.reserved_total, 0
        if self.windows == (None,):  # of which a stretch of steps is made
            said = self.allocator.taken(requests, room)
            own = type(self.allocator).taken is not Allocator.taken
            assert said == taken if own else said <= taken
        self.allocator.advance(requests, room)
        apart = 1 if self.limits.saves_states else 0  # states take blocks of their own between
        assert state(self.allocator)[apart:] == state(slow)[apart:]
        grown = np.zeros(room, np.int64)
        if on_demand := self.allocator.able(OnDemand):
            grown = on_demand.grown(requests, room)
        if self.windows != (None,) or not any(self.held[request].drafted for request in order):
            assert (self.allocator.reserved_total - grown).tolist() == reserved
        if room < rounds and (self.windows == (None,) or not room):
            assert not _round(slow, order)
        for request in order:
            self.store(request, room)
        self.tell(order, room, said, grown)
        return True

    def later(self) -> bool:
        """As a step of `advance`, and requests leave together, or room is made."""
        steps = self.allocator.able(Batches)
        if not (steps and self.decoding):
            return False
        requests = self.any_of(self.decoding)
        if self.allocator.headroom(requests, 1):
            steps.advance_later(requests)
            if self.maybe():
                steps.settle_step()
            for request in requests.tolist():
                self.store(request, 1)
        if self.maybe():
            steps.make_room(self.some(1, 200))
        steps.release_together(True)
        for request in requests[: self.some(0, 2)].tolist():
            self.leaves(request, ended=True)
        steps.release_together(False)
        return True

    def keep_drafts(self) -> bool:
        """A step keeps some drafts of each request, in order, until one has no room."""
        able, allocator = self.allocator.able(Drafts), self.allocator
        decoding = [r for r in self.decoding if self.held[r].held < self.held[r].most]
        if not (able and decoding):
            return False
        requests = self.any_of(decoding)
        most = np.array([min(self.held[r].most - self.held[r].held, 6) for r in requests.tolist()])
        kept = self.rng.integers(0, most + 1)
        ahead = (self.limits.lookahead.slots + 1, len(requests))
        beyond, unseen = self.rng.integers(0, *ahead), self.rng.integers(0, *ahead)
        before = allocator.stored[requests]
        for request, more in zip(requests.tolist(), unseen.tolist(), strict=True):
            self.held[request].seen = max(self.held[request].held + more, self.held[request].seen)
        had = able.store_ahead(requests, kept, beyond, unseen)
        more = allocator.stored[requests] - before
        assert (more == np.where(np.arange(len(requests)) < had, kept, 0)).all()
        for request, tokens in zip(requests[:had].tolist(), kept.tolist(), strict=False):
            self.held[request].drafted = True
            self.store(request, tokens)
        if had < len(requests) and not beyond[had]:
            assert not allocator.grow(int(requests[had]), int(kept[had]))
        self.tell(requests, kept, had)
        return True

    def leaves(self, request: int, ended: bool) -> None:
        """A request is released in one of the ways that there are."""
        allocator, life = self.allocator, self.held.pop(request)
        reserved, caches = int(allocator.reserved[request]), allocator.able(Caches)
        ended = ended or life.dropped > 0
        if ended and (remembers := allocator.able(Remembers)):
            remembers.ends(request)
        way = self.some(0, 5) if caches else 0
        if life.dropped or (way == 1 and caches.discards):
            assert caches.discard(request) == reserved
        elif way == 2:
            assert caches.release_known(request, self.some(0, life.held)) == reserved
        else:
            assert allocator.release(request) == reserved
        if ended:
            if remembers := allocator.able(Remembers):
                remembers.finished(request, life.demand.prompt, life.demand.output)
            if life.demand.session >= 0 and not life.dropped:
                self.between.append(life)
        elif life.held < life.most:
            # tokens that were to be computed next are computed with the others
            prompt = life.demand.prompt
            life.held = life.held + 1 if life.held >= prompt else prompt
            self.gone[request] = life

    def release(self) -> bool:
        if len(self.held) < 2:
            return False
        self.leaves(self.pick(sorted(self.held)), self.maybe())
        return True

    def swap_out(self) -> bool:
        swaps = self.allocator.able(Swaps)
        if not (swaps and len(self.held) > 1 and self.unpinned):
            return False
        request = self.pick(self.unpinned)
        life = self.away[request] = self.held.pop(request)
        assert swaps.swap_out(request) == life.held
        return True

    def swap_in(self) -> bool:
        if not self.away:
            return False
        request = self.pick(sorted(self.away))
        life, before = self.away[request], state(self.allocator)
        found = cached(self.allocator, request, life.held - 1, life.demand)
        if self.allocator.able(Contiguous) or self.windows != (None,):
            found = 0  # all comes from the host
        if not self.allocator.able(Swaps).swap_in(request):
            assert state(self.allocator) == before
            return True
        self.compact(request)
        tokens, life.held, life.places = life.held, 0, []
        life.drafted, life.seen = False, 0
        self.held[request] = self.away.pop(request)
        self.store(request, tokens, found)
        return True

    def pin(self) -> bool:
        if not self.held:
            return False
        request = self.pick(sorted(self.held))
        pinned = request in self.allocator.pinned
        (self.allocator.unpin if pinned else self.allocator.pin)(request)
        return True

    def time_passes(self) -> bool:
        if (learns := self.allocator.able(Learns)) is None:
            return False
        self.now_s += self.rng.uniform(0, 10)
        learns.clock(self.now_s)
        self.tell(f"{learns.due_s:.6g}")
        return True

    def bar(self) -> bool:
        """Some blocks are not handed out from now on, and what lies in them is copied."""
        if (moves := self.allocator.able(MovesBlocks)) is None:
            return False
        blocks = self.layout.slots // moves.block
        barred = np.unique(self.rng.integers(0, blocks, self.some(0, 8)))
        before = state(self.allocator)
        copied = moves.bar(barred)
        self.tell(copied)
        if copied is None:
            assert state(self.allocator) == before
            return True
        self.barred = _slots(barred * moves.block, np.full(len(barred), moves.block))
        assert sum(made.tokens for made in self.copied()) == copied
        for request, life in self.held.items():
            life.places = self.places(request)
        return True

    def guest(self) -> bool:
        """A request that runs on another card has room here, more of it, or none any more."""
        moves, tokens = self.allocator.able(MovesBlocks), self.some(1, 60)
        if moves is None:
            return False
        if self.guests and self.maybe(0.7):
            request = self.pick(sorted(self.guests))
            if self.maybe():
                reserved = int(self.allocator.reserved[request])
                del self.guests[request]
                assert moves.give_back(request) == reserved
            elif self.allocator.grow(request, tokens):
                self.guests[request] += tokens
        elif self.next < REQUESTS:
            if moves.keep(self.next, self.demand(200, 50), tokens):
                self.guests[self.next] = tokens
            self.next += 1
        return True

    def adopt(self) -> bool:
        """A request comes in blocks that are free."""
        moves = self.allocator.able(MovesBlocks)
        if moves is None or self.limits.states or self.limits.drafter[0] or self.next >= REQUESTS:
            return False
        free, prompt = self.rng.permutation(moves.free_blocks()), self.some(1, 120)
        blocks, demand = -(-prompt // moves.block), self.demand(prompt, 20)
        if blocks > len(free):
            return False
        self.next += 1
        before = state(self.allocator)
        if not moves.adopt(self.next - 1, demand, free[:blocks], prompt):
            assert state(self.allocator) == before
            return True
        self.held[self.next - 1] = Life(demand)
        self.store(self.next - 1, prompt)
        return True

    def drop_first(self) -> bool:
        """The first blocks of a request lie elsewhere from now on."""
        moves = self.allocator.able(MovesBlocks)
        beside = self.limits.states or self.limits.drafter[0]
        if not (moves and moves.lies_apart and self.unpinned) or beside:
            return False
        request = self.pick(self.unpinned)
        life = self.held[request]
        tokens = moves.block * self.some(0, (life.held - 1) // moves.block)
        moves.drop_first(request, tokens)
        life.dropped, life.places = tokens, self.places(request)
        return True

    def forget(self) -> bool:
        if (caches := self.allocator.able(Caches)) is None or self.maybe(0.8):
            return False
        caches.forget()
        return True

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
        assert (_tokens(pieces) == slots[begin:end]).all() and (pieces.tokens == pieces.size).all()
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
        if self.limits.states and (states := allocator.able(KeepsStates)):
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
        return _slots(blocks * block, np.full(len(blocks), block))

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
            held = np.bincount(_slots(units.start, units.size), minlength=self.layout.slots)
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
            for group, slots in enumerate([_tokens(units)] if alone else self.places(request)):
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


ACTIONS = (
    *("arrives", "advance", "release") * 4, *("crowd", "grow", "come_back", "next_turn") * 2,
    *("fork", "keep_drafts", "swap_in", "later", "migrate") * 2, "swap_out", "settle", "pin",
    "time_passes", "bar", "guest", "adopt", "drop_first", "forget",
)  # fmt: skip


def lead(setting: Setting, lives: int = 6, steps: int = 40, first: int = 0) -> str:
    """What happened most in random lives on an allocator, and a checksum of all that it said."""
    count: Counter[str] = Counter()
    told = []
    for seed in range(first, first + lives):
        life = Contract(setting, seed)
        for _ in range(steps):
            life.act()
        told.append(life.end())
        count += life.count
    often = ", ".join(f"{many} {name}" for name, many in sorted(count.items()))
    return f"{often}: {checksum(told)}"


def _slots(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """All slots of these runs."""
    before = np.cumsum(size) - size
    spread: np.ndarray = np.repeat(start - before, size) + np.arange(size.sum())
    return spread


def _tokens(units: Units) -> np.ndarray:
    """Of each token its slot, in token order."""
    return _slots(units.start, units.tokens)
