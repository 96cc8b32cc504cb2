"""An engine: a scheduler, its line of requests that wait, those whose KV comes from elsewhere, and
how those that decode get room. It is called once a step. A request is one sequence: several answers
to a prompt are as many requests (`Requests.apart`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator
from policies.allocators.columns import count_down, least_of
from policies.engines.admission import WaitingLine
from policies.engines.connected import Loads
from policies.engines.connector import Connector
from policies.engines.engine_requests import EngineRequests, Kind, Offered
from policies.engines.growth import Growth
from policies.engines.scheduled_step import Step
from policies.engines.scheduler import Scheduler
from policies.requests.requests import IntArray


class Engine(EngineRequests):
    """Requests that wait and run, step by step."""

    def __init__(
        self, make: Callable[[EngineRequests], Scheduler], spec: Any, allocator: Allocator,
        offered: Offered,
    ) -> None:  # fmt: skip
        """make: makes the scheduler of an engine."""
        super().__init__(spec, allocator, offered)
        self.loads = Loads(self)
        self.line = WaitingLine(self)
        self.growth: Growth = Growth(self)
        self.scheduler = make(self)
        self.line.early = self.scheduler.whole_inputs
        self._soonest, self._soonest_of = 0, self.running  # the least `left` of those that run

    # who is here

    @property
    def waits(self) -> bool:
        """Whether a request has arrived and does not run."""
        return bool(self.waiting or self.scheduler.swapped)

    def waits_for(self, request: int) -> str | None:
        """What a preempted request is here for: `recompute` or `swap`; None: it is not here."""
        if request in self.scheduler.swapped:
            return "swap"
        line = request in self.waiting or request in self.loading
        return "recompute" if line else None

    @property
    def busy(self) -> bool:
        """Whether a request has arrived and has not ended, and something can be done about it."""
        own = self.scheduler.runs or self._unfinished
        for visitors in self.loads.visitors:
            own = visitors.busy(own)
        return own

    @property
    def _unfinished(self) -> bool:
        """Whether a request that does not run could be scheduled."""
        return bool(self.loads.back or self.loads.decodes or (self.waits and not self.loads.stuck))

    def here(self, request: int) -> int:
        """How many tokens of a request that is not here are in memory now, so that it would not
        compute them."""
        if self.caching is None:
            return 0
        limit = self.scheduler.findable(request, self.total(request))
        return self.caching.cached(request, limit, self.demanded(request))

    def admits_arrivals(self, step: Step) -> bool:
        """Whether a request that arrives in a step like this could be admitted to the next one."""
        return self.scheduler.admits_arrivals(step)

    def decoding(self) -> IntArray:
        """The running requests that decode in the next step and have not ended, in order, int64
        (n,)."""
        return self.scheduler.decoding()

    @property
    def prefilling(self) -> bool:
        """Whether a running request is in its prefill."""
        return self.scheduler.prefilling

    # step by step

    def schedule(self) -> Step:
        """Choose the requests of the next step and reserve its slots."""
        for connector in self.connectors:
            connector.begins()
        step = self.scheduler.schedule()
        for visitors in self.loads.visitors:
            if step.empty and visitors.gives_way():
                step = self.scheduler.schedule()
        for rooms in self.loads.rooms:
            rooms.scheduled(step)
        return step

    def rounds(self, step: Step, limit: int) -> int:
        """How many steps, this one included and up to `limit`, are the same if no request
        arrives."""
        if not self.scheduler.repeats:
            return 1
        for connector in self.connectors:
            limit = connector.rounds(step, limit)
        if limit == 1 or not step.repeats or self.partial or self.relenting or self.ending:
            return 1
        if self.windowed or not self.growth.alike:
            return 1  # what a step reads and holds is not linear in its length
        least = self._soonest
        if step.decode is not self._soonest_of:
            least = least_of(self.left, step.decode)
        return 1 + self.allocator.headroom(step.decode, min(limit, least) - 1)

    def repeat(self, step: Step, rounds: int) -> None:
        """Reserve the slots of `rounds` further steps like `step`."""
        if rounds:
            self.allocator.advance(step.decode, rounds)
        self.scheduler.repeated(rounds)

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        """The steps are done: (requests whose prefill made an output token, requests that
        ended)."""
        if self.migrating is not None:
            self.migrating.settle()
        self.growth.seen(step)
        late, left = self.ending, self.left
        prefilled = [chunk.request for chunk in step.chunks if chunk.last] if step.chunks else []
        ended: list[int] = []
        if self.growth.alike and not late:
            for request in prefilled:
                left[request] -= 1
            running = self.running
            least = count_down(left, step.decode, rounds, running)
        else:
            if late:
                self.retire()
            left[step.decode] -= self.growth.made(step.decode, rounds)
            left[late] = 0
            left[prefilled] -= 1
            running = self.running
            least = least_of(left, running)
        if not least:
            done = left[running] == 0
            ended = running[done].tolist()
            self.ending = ended
            if not self.late:
                self.running = running[~done]
                least = least_of(left, self.running)
                self.retire()
        self._soonest, self._soonest_of = least, self.running
        self.growth.completed(step, prefilled, ended)
        ended = self.loads.tell_stepped(step, prefilled, ended)
        self.scheduler.completed(ended)
        return prefilled, ended

    def retire(self) -> None:
        """Take back the memory of the requests that have ended."""
        if self.ending:
            self.scheduler.retires()
        ended, self.ending = self.ending, []
        if ended:
            if self.late:
                self.running = self.running[self.left[self.running] > 0]
            self.loads.free(ended)

    def stop(self, request: int) -> None:
        """A running request runs here no more; it has its memory."""
        if self.partial and request == self.running[-1]:
            self.partial = False
        self.running = self.running[self.running != request]
        self.changes += 1
        self.scheduler.stopped(request)

    def drain(self) -> list[int]:
        """Requests that have not ended, in the order of the line; it has none of them any more."""
        away = list(self.scheduler.swapped)  # the host loses what it has of them as well
        self.scheduler.swapped.clear()
        if self.migrating is not None:  # with the step that was lost
            self.migrating.settle()
        self.retire()
        begin_again = [request for each in self.loads.visitors for request in each.drained()]
        self.loads.lose()
        return away + begin_again + self.leave_line()

    def leave_line(self) -> list[int]:
        """Requests that wait, in order; it has none of them any more."""
        gone = [*self.scheduler.leaves(), *self.waiting]
        self.waiting.clear()
        return gone

    def share(self, other: Engine) -> None:
        """Its arrays by request are those of `other`: none is in both engines at a time."""
        self.share_left(other)
        self.reserved_ever, self.run_tokens = other.reserved_ever, other.run_tokens
        self.allocator.share(other.allocator)

    def share_left(self, other: Engine) -> None:
        """What is left of a request is known in both engines: it may go from one to the other."""
        self.left = other.left

    def join(self, request: int) -> None:
        """A request that has its memory, with its prompt computed, runs here from now on; its KV
        was computed elsewhere."""
        for connector in self.connectors:
            connector.joined(request)
        at = len(self.running) - self.partial  # one in its prefill stays the last
        self.running = np.insert(self.running, at, request)
        self.changes += 1

    def give_back(self, request: int) -> None:
        """The memory of a request that does not run is free; it runs elsewhere, or begins again."""
        self.loads.tell_preempted(request)
        self.loads.release(request)
        self.changes += 1

    def idle_step(self) -> None:
        """Nothing was scheduled though requests run or wait. Raises DescriptionError as
        `Progress.idle` says."""
        if (what := self.progress.idle(self.left)) is not None:
            there = f"{len(self.running)} requests run, {len(self.waiting)} wait"
            raise self.futile(f"{what}, while {there}")

    # what connectors and controllers ask

    def connect(self, connector: Connector) -> None:
        """Have one more connector, which is asked behind those that are there."""
        self.loads.connect(connector)

    def connector(self, kind: type[Kind]) -> Kind:
        """Its connector of this kind, which there is."""
        return next(each for each in self.connectors if isinstance(each, kind))

    def known(self, request: int) -> int:
        """Tokens stored of a request whose text is known: not those of a step under way."""
        return self.loads.known(request)

    def cached(self, request: int, limit: int) -> int:
        """How many of its first tokens, at most `limit`, the device has."""
        return self.loads.cached(request, limit)

    def give_up(self, request: int) -> None:
        """One that is `loading` gets nothing: it gives its memory back, but for what it found."""
        self.loads.give_up(request)

    def whole(self, request: int) -> bool:
        """Whether all of a request that has its memory lies here, and stays."""
        return self.loads.whole(request)
