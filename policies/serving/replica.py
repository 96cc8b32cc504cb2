"""One replica: a model on its cards, served from event to event in its own time.

Between two events (arrival, end, growth that could fail, bucket refresh, migration, probe) steps
are equal and are advanced together, with exactly the numbers of single steps.

The event core (`policies.serving.simulation`) asks for the steps from `next_s` on, and counts them
when they are over or were cut:

    if (begun := replica.begin(at_s)) is not None:
        step, fitting = begun
        times = replica.times(step, *replica.observe(step))
        rounds, end_s = replica.cut(step, times, until_s)
        ended = replica.end(step, fitting, times.first(rounds), end_s)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.jit import kernel
from policies.allocators.capabilities import Learns, Maps
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import Memory
from policies.memory.pipeline import PipelineSteps
from policies.memory.step_times import Efficiency, StepTimer, StepTimes
from policies.requests.requests import FloatArray
from policies.serving.metrics import Metrics
from policies.serving.recorder import Watches
from policies.transfers.moves import Moves

MOST_ROUNDS = 1 << 14
"""Steps advanced together at most, so that their times stay a small array."""


class Replica:
    """`now_s`: when its last step ended. `together`: False advances a step at a time, for tests.
    Connectors of its engine stall steps that are as long as those before them have made them."""

    def __init__(
        self, engine: Engine, steps: StepTimer, memory: Memory, metrics: Metrics,
        together: bool = True, watches: Watches | None = None, moves: Moves | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.memory = memory
        self.metrics = metrics
        self.now_s = 0.0
        allocator = engine.allocator
        self._learns, self._maps = allocator.able(Learns), allocator.able(Maps)
        self._steps = steps
        self.pipeline: PipelineSteps | None = steps.pipeline
        """Of its stages, where it has several."""
        if self.pipeline is not None and self.pipeline.looks_ahead:
            if not engine.scheduler.looks_ahead:
                raise DescriptionError(
                    f"cluster.pipeline.balance: lookahead: not with engine {engine.spec.name},"
                    " whose steps compute prompts apart from what decodes; expected engine v1, or"
                    " balance: cost"
                )
            engine.scheduler.ahead = self.pipeline.ahead
        self._together = together
        self.moves = moves
        self.connectors = engine.connectors
        self._watch = None if watches is None else watches.watch(engine)
        self.shares = False
        """Whether what it knows of requests is another's."""
        self.ran_s = 0.0
        """Seconds of the steps that were over last."""
        self.served = 0
        """Requests that ended here."""
        self.waited = False
        """Whether requests were in line, or known to come, as it scheduled last."""
        self._to_come: list[tuple[float, int]] = []  # a heap

    def stands_on(self, card: int) -> None:
        """Its first card is this one, by which what it does is told to a recorder."""
        if self._watch:
            self._watch.number = card

    @property
    def stages(self) -> int:
        """Groups of its cards that a step passes through."""
        return self._steps.stages

    @property
    def outlives(self) -> bool:
        """Whether it has something that is not lost with its card."""
        return any(each.outlives for each in self.connectors)

    @property
    def next_s(self) -> float:
        """When its next step begins; inf where it has nothing to do."""
        engine = self.engine
        if engine.busy and not engine.loads.stuck:
            return self.now_s
        return max(self._event_s, self.now_s)

    @property
    def waits(self) -> bool:
        """Whether requests that are there do not run, or are known to come."""
        return bool(self.engine.waits or self._to_come)

    @property
    def at_work(self) -> bool:
        """Whether requests are there, running or not."""
        return self.engine.busy or self.waits

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
    def held_up(self) -> bool:
        """Whether requests are there and nothing can be scheduled until something comes."""
        return self.engine.loads.stuck

    def stir(self) -> None:
        """Something has changed from outside: what could not be scheduled may be."""
        self.engine.loads.wake()

    @property
    def _event_s(self) -> float:
        """When a request comes or something happens to a connector; inf if none is known."""
        due_s = math.inf
        for each in self.connectors:
            due_s = min(due_s, each.due_s)
        return min(self._to_come[0][0], due_s) if self._to_come else due_s

    def arrive(self, requests: Iterable[int], at_s: Iterable[float]) -> None:
        """These requests join the line at these times, none before `now_s`."""
        for item in zip(at_s, requests, strict=True):
            heapq.heappush(self._to_come, item)

    def depart(self) -> list[tuple[float, int]]:
        """Requests that have not joined the line, and when they arrive: they will not here."""
        gone, self._to_come = self._to_come, []
        return gone

    def drain(self, at_s: float) -> list[int]:
        """Its memory is lost at `at_s`: the requests that have not ended, in order, none of which
        it has any more."""
        gone = self.engine.drain() + [request for _, request in sorted(self.depart())]
        self.hands_over(at_s, gone)
        return gone

    def hands_over(self, at_s: float, again: Iterable[int]) -> None:
        """All its requests go on elsewhere from then on, these from their beginning."""
        if self._watch:
            self._watch.left(at_s, again)

    def retire(self) -> None:
        """Its cards serve as other replicas do from now on, and it has nothing."""
        for connector in self.connectors:
            connector.retire()

    def share(self, other: Replica) -> None:
        """What it knows of requests is what `other` knows; none is in both at a time."""
        self.engine.share(other.engine)
        self.shares = True

    def figures(self) -> dict[str, Any]:
        """What its connectors report, by name."""
        found: dict[str, Any] = {}
        for connector in self.connectors:
            found |= connector.figures()
        return found

    def kv_slots(self) -> int:
        """Slots of KV that it holds, and those that prompts in line will take."""
        line = [*self.engine.waiting, *(request for _, request in self._to_come)]
        return self.engine.allocator.reserved_total + int(self.engine.prompt[line].sum())

    def begin(self, at_s: float) -> tuple[Step, int] | None:
        """(the step that begins at `at_s`, which is `next_s` or later, `Engine.fitting` of it);
        None where nothing can be scheduled then."""
        engine = self.engine
        if at_s > self.now_s:
            self.wait(at_s)
        engine.loads.wake()
        self._join()
        if not engine.busy:
            return None
        self.waited = self.waits
        if self._learns is not None:
            self._learns.clock(self.now_s)
        step = self._schedule()
        if step.empty and (engine.loads.stuck or not engine.busy):
            return None
        return self.memory.adds(step, engine), engine.line.fitting(step)

    def end(self, step: Step, fitting: int, times: StepTimes, end_s: float) -> list[int]:
        """Steps like this are done, the last at `end_s`: the requests that ended with them."""
        engine, begin_s = self.engine, self.now_s
        rounds, reserved = len(times.total_s), engine.allocator.reserved_total
        if rounds > 1:
            engine.repeat(step, rounds - 1)
        self.memory.passed(rounds, times)
        if self.pipeline is not None:
            self.pipeline.passed(rounds)
        self.now_s, self.ran_s = end_s, end_s - begin_s
        self.metrics.steps(
            step, times, engine.allocator, engine.running, begin_s, reserved, fitting,
            engine.loads.holders,
        )  # fmt: skip
        if self._watch:
            self._watch.stepped(begin_s, step, times)
        for delays in engine.loads.delays:
            delays.done(times)
        for connector in self.connectors:
            connector.passed(end_s)
        if self._maps is not None:
            self._maps.charged()
        return self._complete(step, rounds)

    def _schedule(self) -> Step:
        """The next step in which something is computed: none is while asynchronous scheduling waits
        for the memory of requests that have ended, or nothing can be until something comes."""
        while True:
            step = self.engine.schedule()
            if self._watch:
                self._watch.scheduled(self.now_s, step)
            if not step.empty or (step.preempted and not self.engine.ending):
                return step
            if self.engine.ending:
                self.metrics.sums.preemptions += step.preempted
                self.engine.complete(step, 1)
            elif self.engine.loads.holding or not self.engine.busy:
                if self.engine.busy:
                    self.engine.loads.rest()
                return step
            else:
                self.engine.idle_step()

    def _join(self) -> None:
        """Requests that have arrived join the line, and transfers are over."""
        while self._to_come and self._to_come[0][0] <= self.now_s:
            self.engine.waiting.append(heapq.heappop(self._to_come)[1])
            self.engine.loads.wake()
        for connector in self.connectors:
            connector.clock(self.now_s)
        self.engine.loads.landed()

    def withdraw(self, request: int) -> None:
        """A request comes no more, or waits no more."""
        self._to_come = [item for item in self._to_come if item[1] != request]
        heapq.heapify(self._to_come)
        if request in self.engine.waiting:
            self.engine.waiting.remove(request)

    def wait(self, until_s: float) -> None:
        """Nothing runs until then, if that is to come."""
        if until_s <= self.now_s:
            return
        self.engine.retire()
        self.pause(until_s)

    def pause(self, until_s: float) -> None:
        """Nothing runs until then, while what is scheduled stays so."""
        self.metrics.idle(until_s - self.now_s, self.stages)
        self.now_s = until_s

    def observe(self, step: Step) -> tuple[int, Efficiency]:
        """(how many steps from now on are equal, the memory's efficiency in them)."""
        efficiency = self.memory.observe(step, self.engine)
        rounds = 1
        if self._together:
            most = min(MOST_ROUNDS, self.memory.rounds_to_probe)
            rounds = self.engine.rounds(step, most)
        return rounds, efficiency

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """Times of so many equal steps."""
        if self.pipeline is not None:
            self.pipeline.now_s = self.now_s
        times = self._steps.times(step, rounds, efficiency)
        if self.engine.loads.delays:
            times = self._stalled(step, times, efficiency)
        if self._maps is not None:  # until the frames that it needs are mapped
            times = times.delayed(self._maps.stalls(step.decode, times.total_s))
        return times

    def _stalled(self, step: Step, times: StepTimes, efficiency: Efficiency) -> StepTimes:
        """These, with what its connectors make them wait."""
        if self.memory.weights_apart:
            times = times._replace(weights_apart=True)
        moving = [
            each for delays in self.engine.loads.delays
            for each in delays.moving(self.engine.allocator)
        ]  # fmt: skip
        cost = self.memory.beside(step, self.engine, moving) if moving else 1.0
        for delays in self.engine.loads.delays:
            waits_s = delays.stalls(step, times, efficiency, cost)
            times = times if waits_s is None else times.delayed(waits_s)
        return times

    def cut(self, step: Step, times: StepTimes, until_s: float) -> tuple[int, float]:
        """(how many of the steps begin before something happens, one at least, when the last of
        them ends)."""
        if len(times.total_s) == 1:
            return 1, self.now_s + times.total_s.item()
        event_s = until_s
        if self._learns is not None:
            event_s = min(self._learns.due_s, until_s)
        for connector in self.connectors:
            event_s = min(event_s, connector.due_s)
        if self._to_come and self.engine.admits_arrivals(step):
            event_s = min(event_s, self._to_come[0][0])
        rounds, end_s = _begun_by(event_s, self.now_s, times.total_s)
        return rounds, end_s

    def _complete(self, step: Step, rounds: int) -> list[int]:
        prefilled, ended = self.engine.complete(step, rounds)
        self.served += len(ended)
        if self.engine.ending and not self._to_come and not self.engine.busy:
            self.engine.retire()
        first = []
        if prefilled:
            first_s = self.metrics.requests.first_s
            first = [request for request in prefilled if math.isnan(first_s[request])]
            first_s[first] = self.now_s
            if self.moves is not None and self.metrics.ended >= self.metrics.warmup:
                for request in first:
                    self.moves.sent(request)
        if ended and self.metrics.end(ended, self.now_s):
            self.memory.mark()
            for connector in self.connectors:
                connector.mark()
        if self._watch:
            self._watch.completed(self.now_s, prefilled, first, ended)
        return ended


@kernel
def _begun_by(event_s: float, now_s: float, seconds: FloatArray) -> tuple[int, float]:
    """(how many of the steps that follow each other from `now_s` on, float64 (rounds,), begin
    before an event that is not over when all are, the first in any case; when the last of them
    ends): a step that begins at the time of an event sees it."""
    begun, cut_s, at_s = 0, 0.0, now_s
    for each in range(len(seconds)):
        if each > 0 and begun == 0 and at_s >= event_s:
            begun, cut_s = each, at_s
        at_s += seconds[each]
    if begun == 0 or event_s >= at_s:
        return len(seconds), at_s
    return begun, cut_s
