"""Random lives of requests on an allocator, which hold it to its contract."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Classifies,
    Contiguous,
    Drafts,
    Forks,
    Learns,
    Migrates,
    MovesBlocks,
    OnDemand,
    Remembers,
    Swaps,
)
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Contract, Life, cached, run_slots, state
from tests.policies.allocators.settings import REQUESTS, Setting
from tests.policies.checksum import checksum

TEXTS: dict[int, tuple[tuple[int, int], ...]] = {
    -1: (), 0: ((0, 70),), 1: ((1, 25),), 2: ((1, 25), (2, 40)), 3: ((1, 25), (3, 64)),
}  # fmt: skip
"""(Prefix, its end in tokens) of what requests begin with; odd ones fill no block."""


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


class Lives(Contract):
    """Random lives of requests."""

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

    def demand(self, prompt: int, output: int, text: int = -1, **more: Any) -> Demand:
        """One that is as its prediction says, more or less."""
        guess = Prediction(max(output * self.rng.uniform(0.1, 2), 1.0), self.pick([0.0, 0.3, 2.0]))
        prefix, end = TEXTS[text][-1] if text >= 0 else (-1, 0)
        above = TEXTS[text][:-1]
        return Demand(prompt, 0, guess, prefix, min(end, prompt), output, above=above, **more)

    def chunk(self) -> float:
        """The share of a prefill that the first step of a residence takes."""
        return 1.0 if self.maybe() else self.rng.uniform(0.01, 1)

    # what happens

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
        self.barred = run_slots(barred * moves.block, np.full(len(barred), moves.block))
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
        if moves is None or self.next >= REQUESTS:
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
        assert not self.limits.state_bytes and not self.limits.drafter[0]
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
        life = Lives(setting, seed)
        for _ in range(steps):
            life.act()
        told.append(life.end())
        count += life.count
    often = ", ".join(f"{many} {name}" for name, many in sorted(count.items()))
    return f"{often}: {checksum(told)}"
