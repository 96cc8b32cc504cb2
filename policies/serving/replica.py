"""One replica: a model on its cards, served from event to event in its own time.

Between two events (arrival, end, growth that could fail, bucket refresh, migration, probe) steps
are equal and are advanced together, with exactly the numbers of single steps.

The event core (`policies.serving.simulation`) asks for the steps from `next_s` on, and counts them
when they are over or were cut:

    if (begun := replica.begin()) is not None:
        step, fitting = begun
        times = replica.times(step, *replica.observe(step))
        ended = replica.end(step, fitting, *replica.cut(step, times, until_s))
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import numpy as np

from policies.allocators.capabilities import Learns, Maps
from policies.engines.engine import Engine
from policies.engines.host_memory import HostTraffic
from policies.engines.scheduled_step import Step
from policies.memory.drafting import DraftingSteps
from policies.memory.fidelity import Memory
from policies.memory.pipeline import PipelineSteps
from policies.memory.step import Efficiency, StepModel, StepTimer, StepTimes
from policies.requests.requests import FloatArray
from policies.serving.metrics import Metrics
from policies.serving.recorder import Recorder, Watch
from policies.transfers.fabric import Port
from policies.transfers.hosting import Hosting
from policies.transfers.lender import Lender
from policies.transfers.moves import Moves
from policies.transfers.offloading_engine import OffloadingEngine
from policies.transfers.tiers import Tiers

MOST_ROUNDS = 1 << 14
"""Steps advanced together at most, so that their times stay a small array."""
MOST_HOSTING = 16
"""The same where its driver decides something every few steps."""


class Replica:
    """`now_s`: when its last step ended. `together`: False advances a step at a time, for tests."""

    def __init__(
        self, engine: Engine, steps: StepTimer, memory: Memory, metrics: Metrics,
        together: bool = True, recorder: Recorder | None = None, moves: Moves | None = None,
        tiers: Tiers | Port | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.memory = memory
        self.metrics = metrics
        self.now_s = 0.0
        allocator = engine.allocator
        self._learns = allocator if isinstance(allocator, Learns) else None
        self._maps = allocator if isinstance(allocator, Maps) else None
        self._steps = steps
        self._model = steps.steps if isinstance(steps, DraftingSteps) else steps
        self.pipeline = self._model if isinstance(self._model, PipelineSteps) else None
        self._together = together
        self.moves = moves
        self.tiers = tiers
        self.hosting: Hosting | None = None
        """What requests that run come and go through, where they do."""
        self.lender: Lender | None = None
        """What keeps KV on other cards, and theirs, where it does."""
        self._offloading = engine if isinstance(engine, OffloadingEngine) else None
        self.host: HostTraffic | None = None
        """Copies of all cards of the host, where its memory is described."""
        self._watch = None if recorder is None else Watch(recorder, engine)
        self.shares = False
        """Whether what it knows of requests is another's."""
        self._held_up = False
        self.waited = False
        """Whether requests were in line, or known to come, as it scheduled last."""
        self._to_come: list[tuple[float, int]] = []  # a heap

    @property
    def stages(self) -> int:
        """Groups of its cards that a step passes through."""
        return self._steps.stages

    @property
    def next_s(self) -> float:
        """When its next step begins; inf where it has nothing to do."""
        if self.engine.busy and not self._held_up:
            return self.now_s
        return max(self._event_s, self.now_s)

    @property
    def waits(self) -> bool:
        """Whether requests that are there do not run, or are known to come."""
        return bool(self.engine.waits or self._to_come)

    @property
    def waiting(self) -> list[int]:
        """These, in order."""
        return [*self.engine.waiting, *(request for _, request in sorted(self._to_come))]

    @property
    def state(self) -> tuple[int, ...]:
        """Differs where its next step would differ from the last one for another cause than the
        tokens it made."""
        return self.engine.changes, len(self.engine.waiting), len(self._to_come)

    @property
    def _event_s(self) -> float:
        """When a request comes or a transfer arrives next; inf if none is known."""
        due_s = math.inf if self.tiers is None else self.tiers.due_s
        for part in (self.hosting, self.lender):
            due_s = due_s if part is None else min(due_s, part.due_s)
        return min(self._to_come[0][0], due_s) if self._to_come else due_s

    def arrive(self, requests: Iterable[int], at_s: Iterable[float]) -> None:
        """These requests join the line at these times, none before `now_s`."""
        for item in zip(at_s, requests, strict=True):
            heapq.heappush(self._to_come, item)

    def depart(self) -> list[tuple[float, int]]:
        """Requests that have not joined the line, and when they arrive: they will not here."""
        gone, self._to_come = self._to_come, []
        return gone

    def drain(self) -> list[int]:
        """Its memory is lost: the requests that have not ended, in order, none of which it has any
        more."""
        return self.engine.drain() + [request for _, request in sorted(self.depart())]

    def share(self, other: Replica) -> None:
        """What it knows of requests is what `other` knows; none is in both at a time."""
        self.engine.share(other.engine)
        self.shares = True

    def kv_slots(self) -> int:
        """Slots of KV that it holds, and those that prompts in line will take."""
        line = [*self.engine.waiting, *(request for _, request in self._to_come)]
        return self.engine.allocator.reserved_total + int(self.engine.prompt[line].sum())

    @property
    def held_up(self) -> bool:
        """Whether requests are there and nothing can be scheduled until something comes."""
        return self._held_up

    def begin(self, at_s: float) -> tuple[Step, int] | None:
        """(the step that begins at `at_s`, which is `next_s` or later, `Engine.fitting` of it);
        None where nothing can be scheduled then."""
        if at_s > self.now_s:
            self.wait(at_s)
        self._join()
        if not self.engine.busy:
            return None
        self.waited = self.waits
        if self._learns is not None:
            self._learns.clock(self.now_s)
        step = self._schedule()
        self._held_up = step is None
        if step is None or (step.empty and not self.engine.busy):
            return None
        return step, self.engine.fitting(step)

    def stir(self) -> None:
        """Something has changed from outside: what could not be scheduled may be."""
        self._held_up = False

    def end(self, step: Step, fitting: int, times: StepTimes, end_s: float) -> list[int]:
        """Steps like this are done, the last at `end_s`: the requests that ended with them."""
        engine, begin_s = self.engine, self.now_s
        rounds, reserved = len(times.total_s), engine.allocator.reserved_total
        engine.repeat(step, rounds - 1)
        if self._maps is not None:
            self._maps.charged()
        self.memory.passed(rounds, times)
        if self.pipeline is not None:
            self.pipeline.passed(rounds)
        self.now_s = end_s
        self.metrics.steps(
            step, times, engine.allocator, engine.running, begin_s, reserved, fitting,
            engine.holders,
        )  # fmt: skip
        if self._watch:
            self._watch.stepped(begin_s, step, times)
        if self.tiers is not None:
            self.tiers.passed(end_s, times)
        if self.lender is not None:
            self.lender.passed(times)
        return self._complete(step, rounds)

    def _schedule(self) -> Step | None:
        """The next step in which something is computed: none is while asynchronous scheduling waits
        for the memory of requests that have ended. None: nothing is until something comes."""
        while True:
            step = self.engine.schedule()
            if self._watch:
                self._watch.scheduled(self.now_s, step)
            if not step.empty or (step.preempted and not self.engine.ending):
                return step
            if self.engine.ending:
                self.metrics.sums.preemptions += step.preempted
                self.engine.complete(step, 1)
            elif self.engine.holding and not (self.lender and self.lender.blocked):
                return None
            elif self.engine.busy:
                self.engine.idle_step()
            else:
                return step

    def _join(self) -> None:
        """Requests that have arrived join the line, and transfers are over."""
        while self._to_come and self._to_come[0][0] <= self.now_s:
            self.engine.waiting.append(heapq.heappop(self._to_come)[1])
        if isinstance(self.tiers, Tiers) and self._offloading is not None:
            self.tiers.clock(self.now_s)
            self._offloading.landed()
        for part in (self.hosting, self.lender):
            if part is not None:
                part.land(self.now_s)

    def wait(self, until_s: float) -> None:
        """Nothing runs until then, if that is to come."""
        if until_s <= self.now_s:
            return
        self.engine.retire()
        self.metrics.idle(until_s - self.now_s, self.stages)
        self.now_s = until_s

    def observe(self, step: Step) -> tuple[int, Efficiency]:
        """(how many steps from now on are equal, the memory's efficiency in them)."""
        efficiency = self.memory.observe(step, self.engine)
        rounds = 1
        if self._together:
            alone = self.hosting is None and self.lender is None
            most = MOST_ROUNDS if alone else MOST_HOSTING
            rounds = self.engine.rounds(step, min(most, self.memory.rounds_to_probe))
        return rounds, efficiency

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """Times of so many equal steps."""
        if self.pipeline is not None:
            self.pipeline.now_s = self.now_s
        times = self._steps.times(step, rounds, efficiency)
        if step.swapped and self.host is not None and isinstance(self._model, StepModel):
            times = times.delayed(self._host_s(step, times, self._model))
        if self.tiers is not None:
            moving = self.tiers.moving(self.engine.allocator)
            cost = self.memory.beside(step, self.engine, moving)
            return times.delayed(self.tiers.stalls(times, efficiency, cost))
        if self.lender is not None and isinstance(self._model, StepModel):
            waits_s = self.lender.stalls(times, step.chunks, self._model, efficiency)
            return times.delayed(waits_s)
        if self.hosting is not None and (taken := self.hosting.copied_bytes_s(self.now_s)):
            waits_s = times.contended(taken, self._steps.bandwidth * efficiency.attention)
            self.hosting.slower.append(float(waits_s[0] / times.total_s[0]))
            return times.delayed(waits_s)
        if step.beside:
            moved = step.beside * self.engine.allocator.layout.token_bytes
            taken, given = moved / float(times.total_s[0]), self._steps.bandwidth
            return times.delayed(times.contended(taken, given * efficiency.attention))
        if self._maps is None:
            return times
        return times.delayed(self._maps.stalls(step.decode, times.total_s))

    def _host_s(self, step: Step, times: StepTimes, steps: StepModel) -> FloatArray:
        """Seconds that steps, of which the first swaps, wait for the host's memory beyond what its
        link takes, float64 (rounds,). What hides may take as long as the step."""
        assert self.host is not None
        alone_s, size = steps.swap_s(step.swapped), steps.swap_bytes(step.swapped)
        waits_s = np.zeros(len(times.total_s))
        taken_s = self.host.seconds(self.now_s, size, size / alone_s)
        spare_s = float(times.total_s[0]) - alone_s if step.hidden else 0.0
        waits_s[0] = max(taken_s - alone_s - max(spare_s, 0.0), 0.0)
        return waits_s

    def cut(self, step: Step, times: StepTimes, until_s: float) -> tuple[StepTimes, float]:
        """(those of the steps that begin before something happens, when the last of them ends)."""
        rounds = len(times.total_s)
        if rounds == 1:
            return times, self.now_s + float(times.total_s[0])
        ends = np.empty(rounds + 1)
        ends[0], ends[1:] = self.now_s, times.total_s
        ends.cumsum(out=ends)
        event_s = until_s if self._learns is None else min(self._learns.due_s, until_s)
        if self.tiers is not None:
            event_s = min(event_s, self.tiers.due_s)
        for part in (self.hosting, self.lender):
            event_s = event_s if part is None else min(event_s, part.due_s)
        if self._to_come and self.engine.admits_arrivals(step):
            event_s = min(event_s, self._to_come[0][0])
        if event_s < ends[rounds]:
            # a step that starts at or after an event sees it
            rounds = int(np.searchsorted(ends[:-1], event_s))
            times = times.first(rounds)
        return times, float(ends[rounds])

    def _complete(self, step: Step, rounds: int) -> list[int]:
        prefilled, ended = self.engine.complete(step, rounds)
        if not self._to_come and not self.engine.busy:
            self.engine.retire()
        for request in prefilled:
            if np.isnan(self.metrics.first_s[request]):
                self.metrics.first_s[request] = self.now_s
                if self.moves is not None and self.metrics.ended >= self.metrics.warmup:
                    self.moves.sent(request, self.engine.allocator.units(request))
        if ended and self.metrics.end(ended, self.now_s):
            self.memory.mark()
            if self.tiers is not None:
                self.tiers.mark()
        if self._watch:
            self._watch.completed(self.now_s, prefilled, ended)
        return ended
