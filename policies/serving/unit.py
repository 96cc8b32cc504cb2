"""Replicas that begin each step together, and the equal steps that lie ahead of them.

Mostly a unit is one replica. Replicas that have experts in common are one unit (data-parallel
attention): a step of one is a step of all, whose tokens together choose the experts, and takes as
long as the slowest. A replica without requests waits (vLLM's would run an empty batch).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.engines.memory_beside import NONE
from policies.engines.scheduled_step import Step
from policies.memory.step_times import StepTimes
from policies.requests.requests import IntArray
from policies.serving.replica import Replica


class ReplicaSteps(NamedTuple):
    """What one replica does in a stretch. `fitting`: see `Engine.fitting`."""

    replica: Replica
    step: Step
    fitting: int
    times: StepTimes


class Stretch(NamedTuple):
    """Equal steps that lie ahead of a unit, the first from `begin_s`; as many of each part."""

    parts: tuple[ReplicaSteps, ...]
    begin_s: float
    end_s: float

    @property
    def rounds(self) -> int:
        """How many steps they are."""
        return len(self.parts[0].times.total_s)

    @property
    def begins_s(self) -> np.ndarray:
        """When each step begins, float64 (rounds,)."""
        total_s = self.parts[0].times.total_s
        begins_s: np.ndarray = self.begin_s + np.cumsum(total_s) - total_s
        return begins_s

    def made(self, before_s: float = math.inf) -> int:
        """Output tokens of the steps that begin before then."""
        rounds = self.rounds
        if before_s < math.inf:
            rounds = int(np.searchsorted(self.begins_s, before_s))
        made = 0
        for _, step, _, _ in self.parts:
            first = sum(chunk.last for chunk in step.chunks)
            made += rounds * step.output + (first if rounds else 0)
        return made

    def first(self, rounds: int, end_s: float) -> Stretch:
        """The first of the steps, which end then."""
        if rounds == self.rounds:
            return Stretch(self.parts, self.begin_s, end_s)
        parts = tuple(each._replace(times=each.times.first(rounds)) for each in self.parts)
        return Stretch(parts, self.begin_s, end_s)


class Unit:
    """`replicas`, and the `cards` of each, by number: several where they are stages of it.
    `number`: of the first card, by which units that do something at the same time take turns."""

    def __init__(self, replicas: Sequence[Replica], cards: Sequence[tuple[int, ...]]) -> None:
        self.replicas = list(replicas)
        self.cards = list(cards)
        self.number = min(cards[0])
        self.ahead: Stretch | None = None
        self.version = 0
        """Counts what was planned for it: an event of an earlier plan is void."""
        self.steady_s: float | None = None
        """Of the stretch ahead: until when the load is steady, where sessions say so."""
        self.paused: tuple[int, ...] | None = None
        """What `state` was when a stretch was cut so that somebody could look; None: it was
        not."""
        self.lost_steps: dict[Replica, tuple[Step, int]] = {}
        """What replicas had scheduled, and lost with the step of another: they compute it again."""

    @property
    def next_s(self) -> float:
        """When its next step begins; inf where it has nothing to do."""
        if len(self.replicas) == 1:
            return self.replicas[0].next_s
        return min(replica.next_s for replica in self.replicas)

    @property
    def waited(self) -> bool:
        """Whether requests were in line, or known to come, as it scheduled last."""
        if len(self.replicas) == 1:
            return self.replicas[0].waited
        return any(replica.waited for replica in self.replicas)

    def cards_of(self, replica: Replica) -> tuple[int, ...]:
        """The cards of one of its replicas."""
        return self.cards[0 if len(self.replicas) == 1 else self.replicas.index(replica)]

    @property
    def held_up(self) -> bool:
        """Whether requests are there and nothing can be scheduled until something comes."""
        if len(self.replicas) == 1:
            return self.replicas[0].engine.loads.stuck
        return any(replica.held_up for replica in self.replicas)

    @property
    def state(self) -> tuple[int, ...]:
        """Differs where a step would differ from the one before."""
        return tuple(x for each in self.replicas for x in each.state)

    def begin(self, at_s: float) -> bool:
        """Plan the steps from `at_s` on, which is `next_s` or later; False where nothing is
        computed."""
        if len(self.replicas) == 1:
            return self._begin_alone(self.replicas[0], at_s)
        asked = [(each, self._ask(each, at_s)) for each in self.replicas if each.next_s <= at_s]
        begun = [(each, *found) for each, found in asked if found is not None]
        if not begun:
            return False
        self.ahead = Stretch(_together(begun), begun[0][0].now_s, math.inf)
        self.recut(math.inf)
        return True

    def _ask(self, replica: Replica, at_s: float) -> tuple[Step, int] | None:
        """As `Replica.begin`."""
        if (lost := self.lost_steps.pop(replica, None)) is None:
            return replica.begin(at_s)
        replica.pause(at_s)
        return lost

    def _begin_alone(self, replica: Replica, at_s: float) -> bool:
        """As `begin`, of its only replica."""
        if (begun := replica.begin(at_s)) is None:
            return False
        step, fitting = begun
        times = replica.times(step, *replica.observe(step))
        rounds, end_s = replica.cut(step, times, math.inf)
        times = times.first(rounds)
        self.ahead = Stretch((ReplicaSteps(replica, step, fitting, times),), replica.now_s, end_s)
        return True

    def further(self, replica: Replica, at_s: float) -> tuple[IntArray, int]:
        """(requests of one of its replicas that decode in the steps ahead, how many of these, but
        for the first, begin before `at_s`): the slots of the first are taken, those of the others
        when they are over."""
        for part in self.ahead.parts if self.ahead is not None else ():
            if part.replica is replica and self.ahead is not None and self.ahead.rounds > 1:
                begun = int(np.searchsorted(self.ahead.begins_s, at_s))
                return part.step.decode, max(begun - 1, 0)
        return NONE, 0

    def recut(self, until_s: float) -> bool:
        """Keep of the steps ahead those that begin before `until_s` and before anything that they
        would see, the first in any case; whether there are fewer now."""
        ahead = self.ahead
        assert ahead is not None
        cuts = [each.replica.cut(each.step, each.times, until_s) for each in ahead.parts]
        rounds, end_s = min(cuts, key=lambda cut: cut[0])
        if rounds == ahead.rounds and ahead.end_s < math.inf:
            return False
        self.ahead = ahead.first(rounds, end_s)
        return True

    def arrived(self, replica: Replica) -> bool:
        """As `recut`, as a request comes to one of its replicas."""
        assert self.ahead is not None
        for part in self.ahead.parts:
            if part.replica is replica:
                return replica.engine.admits_arrivals(part.step) and self.recut(math.inf)
        return self.recut(replica.next_s)  # it has no part in these steps, but in the next one


def _together(begun: list[tuple[Replica, Step, int]]) -> tuple[ReplicaSteps, ...]:
    """Steps of replicas that wait for each other."""
    decoded = sum(step.tokens for _, step, _ in begun)
    chunked = sum(step.batched for _, step, _ in begun) - decoded
    steps = [
        step._replace(elsewhere=(decoded - step.tokens, chunked + step.tokens - step.batched))
        for _, step, _ in begun
    ]
    pairs = [(replica, step) for (replica, _, _), step in zip(begun, steps, strict=True)]
    seen = [replica.observe(step) for replica, step in pairs]
    rounds = min(each for each, _ in seen)
    own = [
        replica.times(step, rounds, efficiency)
        for (replica, step), (_, efficiency) in zip(pairs, seen, strict=True)
    ]
    total_s = np.max([times.total_s for times in own], axis=0)
    own = [each.delayed(total_s - each.total_s)._replace(total_s=total_s) for each in own]
    return tuple(
        ReplicaSteps(replica, step, fitting, times)
        for (replica, _, fitting), step, times in zip(begun, steps, own, strict=True)
    )
