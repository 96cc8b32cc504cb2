"""Requests of an engine that hold memory and do not run, since their KV comes from elsewhere or
goes there (`policies.engines.connector`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from policies.allocators.allocator import Demand
from policies.engines.connector import ConnectedEngine, Connector, Ending, Loading, Match
from policies.engines.engine_requests import EngineRequests
from policies.engines.memory_beside import NONE, KeptTurns, Rooms, Visitors
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.step_delays import StepDelays
from policies.requests.requests import IntArray

_LINE = ("passes_over", "matched", "finished")
"""Hooks of connectors that have a say in who of the line is tried."""


class Loads:
    """Requests of an engine whose KV comes from elsewhere or goes there; its `connectors`, and what
    these have beside (`delays`, `rooms`, `visitors`, `turns`)."""

    def __init__(self, engine: EngineRequests) -> None:
        self._engine = engine
        self.connectors, self.loading, self.held = engine.connectors, engine.loading, engine.held
        self.delays: list[StepDelays] = []
        self.rooms: list[Rooms] = []
        self.visitors: list[Visitors] = []
        self.turns: list[KeptTurns] = []
        self.back: deque[int] = deque()
        """Of those that load, those that wait for nothing but a place, and compute on."""
        self.decodes: deque[int] = deque()
        """The same of those that decode on."""
        self._unsure: dict[int, int] = {}
        """Of those that are held: tokens stored that are not known (asynchronous scheduling)."""
        self.forgets: set[int] = set()
        """Requests of which nothing is to be found again."""
        self._stuck_at = -1
        self.line_asks = False
        """Whether a connector has a say in who of the line is tried."""

    def whole(self, request: int) -> bool:
        """Whether all of a request that has its memory lies here, and stays."""
        return not any(rooms.apart(request) for rooms in self.rooms)

    def in_transit(self, request: int) -> bool:
        """Whether KV of a request is on its way from its memory here, or to it."""
        return any(connector.moves(request) for connector in self.connectors)

    def stored(self, request: int) -> int:
        """Tokens that a request stores, here and elsewhere."""
        stored = int(self._engine.allocator.stored[request])
        return stored + sum(rooms.away(request) for rooms in self.rooms)

    @property
    def holding(self) -> bool:
        """Whether requests that do not run hold memory, and will give it back."""
        return bool(self.loading or self.held) or any(each.holding for each in self.visitors)

    @property
    def holders(self) -> IntArray:
        """Requests that hold memory and neither run nor have just ended, int64 (n,)."""
        if not (self.loading or self.held or self.visitors):
            return NONE
        own = np.array([*self.loading, *self.held], np.int64)
        return np.concatenate([own, *(each.holders for each in self.visitors)])

    @property
    def stuck(self) -> bool:
        """Whether nothing can be scheduled until something happens outside."""
        return self._stuck_at == self._engine.changes

    def rest(self) -> None:
        """Nothing could be scheduled."""
        self._stuck_at = self._engine.changes

    def wake(self) -> None:
        """Something has changed for requests in line that could not be admitted."""
        self._stuck_at = -1
        self._engine.scheduler.woken()

    def connect(self, connector: Connector) -> None:
        """Have one more connector, which is asked behind those that are there."""
        self.connectors.append(connector)
        connector.connect(cast(ConnectedEngine, self._engine))
        if connector.delays is not None:
            self.delays.append(connector.delays)
        if connector.rooms is not None:
            self.rooms.append(connector.rooms)
        if connector.visitors is not None:
            self.visitors.append(connector.visitors)
        if connector.turns is not None:
            self.turns.append(connector.turns)
        self._engine.line.early = False
        self.line_asks |= connector.turns is not None or any(
            getattr(type(connector), hook) is not getattr(Connector, hook) for hook in _LINE
        )
        self._engine.scheduler.connected(connector)

    def known(self, request: int) -> int:
        """Tokens stored of a request whose text is known: not those of a step under way."""
        return int(self._engine.allocator.stored[request]) - self._unsure.get(request, 0)

    def cached(self, request: int, limit: int) -> int:
        """How many of its first tokens, at most `limit`, the device has."""
        caching = self._engine.caching
        return (
            0 if caching is None else caching.cached(request, limit, self._engine.demand(request))
        )

    def landed(self) -> None:
        """What has come by now may be used, and what has left is gone."""
        for connector in self.connectors:
            for request in connector.arrived():
                if request in self.loading:
                    decodes = self.loading[request].match.computed
                    (self.decodes if decodes else self.back).append(request)
            for request in connector.lost():
                if request in self.loading:
                    self._engine.scheduler.recover(request)
                else:
                    self._unload(request)
            self._let_go(connector, connector.released())

    def lose(self) -> None:
        """The device has lost all: whoever was there gives its memory up, and nothing is found."""
        for connector in self.connectors:
            connector.reset()
        ended = [*self._engine.ending, *self.held]
        self._engine.ending = []
        self.held.clear()
        self._gone(ended)
        left = self._engine.running[self._engine.left[self._engine.running] > 0].tolist()
        for request in reversed([*left, *self.loading]):
            self._engine.scheduler.put_back(request)
        for each in (self.loading, self.back, self.decodes):
            each.clear()
        self._engine.running, self._engine.partial = np.zeros(0, np.int64), False
        if self._engine.caching is not None:
            self._engine.caching.forget()
        self._engine.changes += 1

    def give_up(self, request: int) -> None:
        """One that is `loading` gets nothing: it gives its memory back, but for what it found."""
        match = self.loading.pop(request).match
        for line in (self.back, self.decodes):
            if request in line:
                line.remove(request)
        self.release_known(request, match.start)
        self.wake()

    def begin_again(self, request: int) -> None:
        """A request that runs has lost KV: it waits, and is computed again."""
        self._engine.stop(request)
        self._engine.scheduler.put_back(request)

    def _unload(self, request: int) -> None:
        """Layers that were to come while a request runs will not: it begins again, and nothing that
        it holds is found. What it made of others counts (assumed)."""
        if request in self._engine.running and request not in self._engine.ending:
            self.forgets.add(request)
            self.begin_again(request)
        self.computed(request)

    def open(self, line: Iterable[int], first: int = 0) -> Iterable[int]:
        """Places of the requests in line that no connector passes over, from `first` on."""
        # sessions whose last turn holds its memory for a step more
        ending = (
            set(self._engine.sessions[self._engine.ending].tolist()) - {-1}
            if self._engine.ending
            else set()
        )
        for place, request in enumerate(line, first):
            if int(self._engine.sessions[request]) in ending or request in self.held:
                continue  # what is held is of when it was here before
            asked = request, self._engine.demand(request), self._engine.total(request)
            if not any(connector.passes_over(*asked) for connector in self.connectors):
                yield place

    def foremost(self) -> int:
        """The place of a request that goes before all others; -1: none."""
        places = (turns.first(self._engine.waiting) for turns in self.turns)
        return next((place for place in places if place >= 0), -1)

    def resume(self, request: int) -> None:
        """A request is tried: what was held for it gives its memory up."""
        for turns in self.turns:
            if ended := turns.resumed(request):
                self._let_go_turns(turns, ended)  # who is tried next is another

    def gives_up(self) -> bool:
        """Nothing runs: whether memory that was held is given up for those in line."""
        for turns in self.turns:
            if ended := turns.yields():
                self._let_go_turns(turns, ended)
                return True
        return False

    def _let_go_turns(self, turns: KeptTurns, ended: Sequence[int]) -> None:
        """These are kept no longer."""
        connector = next(each for each in self.connectors if each.turns is turns)
        self._let_go(connector, [(request, Ending.FREE) for request in ended])
        self._engine.relenting = True

    def matched(
        self, request: int, demand: Demand, cached: int, total: int
    ) -> tuple[Connector, Match] | None:  # fmt: skip
        """Who has the KV of a request, and what; None: nobody. What lies on other cards is computed
        there."""
        if self.rooms and not self.whole(request):
            return None
        for connector in self.connectors:
            if (match := connector.matched(request, demand, cached, total)) is not None:
                return connector, match
        return None

    def load(
        self, request: int, demand: Demand, cached: int, total: int,
        matched: tuple[Connector, Match], budget: int,
    ) -> tuple[str, Chunk | None]:  # fmt: skip
        """Admit a request whose KV comes from elsewhere: as `Engine._try`."""
        connector, match = matched
        tokens = 0 if match.waits else self._engine.line.chunk(total - match.end, budget, total)
        if not match.waits and not tokens:
            return "token_budget", None
        if not self._engine.scheduler.reserve_loaded(request, demand, total, match.end + tokens):
            return "kv_memory", None
        self.allocated(request, demand, cached, total, matched)
        if match.waits:
            self._engine.waiting.remove(request)
            self.loading[request] = Loading(match, connector)
            return "offered_load", None
        self._engine.cached_tokens += match.end
        self._engine.partial = match.end + tokens < total
        return "offered_load", Chunk(request, match.end, tokens, not self._engine.partial)

    def allocated(
        self, request: int, demand: Demand, cached: int, total: int,
        matched: tuple[Connector, Match] | None,
    ) -> None:  # fmt: skip
        for connector in self.connectors:
            match = matched[1] if matched is not None and matched[0] is connector else None
            connector.allocated(request, demand, cached, total, match)

    def decode_on(self) -> None:
        """Requests whose KV has come, and their next token with it, run: before the one that is in
        its prefill, which stays the last."""
        while self.decodes:
            request = self.decodes[0]
            if len(self._engine.running) >= self._engine.cap:
                break
            self.decodes.popleft()
            del self.loading[request]
            at = len(self._engine.running) - self._engine.partial
            self._engine.running = np.insert(self._engine.running, at, request)
            self._engine.changes += 1

    def come_back(self, chunks: list[Chunk], budget: int) -> int:
        """Requests whose KV has come, or will not, compute on; the budget that is left."""
        while self.back and budget and not self._engine.partial:
            request = self.back[0]
            if len(self._engine.running) >= self._engine.cap:
                break
            match = self.loading[request].match
            if again := self._engine.scheduler.compute_again(request, chunks, budget):
                self._engine.cached_tokens += match.start
                self._enter(request)
                budget -= again
                continue
            start, total = int(self._engine.allocator.stored[request]), self._engine.total(request)
            if not (tokens := self._engine.line.chunk(total - start, budget, total)):
                break
            if not self._engine.scheduler.extend(request, tokens, total):
                self.back.popleft()
                del self.loading[request]
                self.release(request)
                self._engine.waiting.appendleft(request)
                continue
            budget -= tokens
            self._engine.cached_tokens += match.end
            self._engine.partial = start + tokens < total
            chunks.append(Chunk(request, start, tokens, not self._engine.partial))
            self._enter(request)
        return budget

    def _enter(self, request: int) -> None:
        self.back.popleft()
        del self.loading[request]
        self._engine.running = np.append(self._engine.running, request)
        self._engine.scheduler.begun(request, None)

    def computed(self, request: int) -> None:
        for connector in self.connectors:
            connector.computed(request)

    def tell_stepped(self, step: Step, prefilled: list[int], ended: list[int]) -> list[int]:
        """Steps like this are done: those of `ended` that do not go on elsewhere."""
        for connector in self.connectors:
            connector.stepped(step, prefilled)
            ended = [request for request in ended if not connector.goes_on(request)]
        return ended

    def tell_preempted(self, request: int) -> None:
        for connector in self.connectors:
            connector.preempted(request)

    def free(self, ended: list[int]) -> None:
        """Requests have ended: take back the memory of those that no connector holds."""
        if self.connectors:
            ended = [request for request in ended if not self._holds(request)]
        self._gone(ended)

    def _holds(self, request: int) -> bool:
        """Whether an ended request keeps its memory for a connector: of one that lies elsewhere in
        part nothing is kept."""
        if not self._engine.allocator.resident[request] or not self.whole(request):
            return False
        if unseen := self._engine.scheduler.unseen(request):
            self._unsure[request] = unseen
        demand, tokens = self._engine.demand(request), self.known(request)
        holders = set()
        for connector in self.connectors:
            ending = connector.finished(request, demand, tokens)
            if ending is Ending.HELD:
                holders.add(connector)
            elif ending is Ending.FORGET:
                self.forgets.add(request)
        if holders:
            self.held[request] = holders
        return bool(holders)

    def _let_go(self, connector: Connector, released: Sequence[tuple[int, Ending]]) -> None:
        """A connector holds these no longer."""
        gone = []
        for request, ending in released:
            holders = self.held[request]
            holders.remove(connector)
            if ending is Ending.FORGET:
                self.forgets.add(request)
            if not holders:
                del self.held[request]
                gone.append(request)
        if gone:
            self.wake()
        self._gone(gone)

    def _gone(self, requests: list[int]) -> None:
        if requests:
            self._free_now(requests)
        for connector in self.connectors:
            for request in requests:
                connector.forgotten(request)

    def _free_now(self, ended: list[int]) -> None:
        engine = self._engine
        if engine.batching is not None:
            engine.batching.release_together(True)
        for request in ended:
            if engine.remembering is not None:
                engine.remembering.ends(request)
            if engine.allocator.resident[request]:
                runs = engine.allocator.extent_count(np.array([request]))
                slots = engine.allocator.layout.slots_of(engine.allocator.stored[request])
                engine.run_tokens[request] = slots / runs
                engine.reserved_ever[request] += self.release(request)
            else:  # preempted with its last token under way
                engine.waiting.remove(request)
            engine.demands.pop(request, None)
            if engine.remembering is not None:
                engine.remembering.finished(
                    request, int(engine.prompt[request]), int(engine.output[request])
                )
        if engine.batching is not None:
            engine.batching.release_together(False)
        engine.changes += len(ended)

    def release(self, request: int) -> int:
        """Free the slots of a request; how many were reserved."""
        if (early := self._engine.scheduler.release_early(request)) is not None:
            return int(early)
        if (given := self.leave(request)) is not None:
            self.forgets.discard(request)
            self._unsure.pop(request, None)
            return given + self.release_known(request, 0)
        if request in self.forgets:
            self.forgets.remove(request)
            self._unsure.pop(request, None)
            if self._engine.caching is not None:
                return self._engine.caching.discard(request)
        elif request in self._unsure:
            known = self.known(request)
            del self._unsure[request]
            return self.release_known(request, known)
        return self._engine.scheduler.forget(request)

    def release_known(self, request: int, tokens: int) -> int:
        if self._engine.caching is None:
            return self._engine.allocator.release(request)
        return self._engine.caching.release_known(request, tokens)

    def leave(self, request: int) -> int | None:
        """Tokens that a request gives back elsewhere; None: it has nothing there."""
        given = [rooms.leave(request) for rooms in self.rooms]
        return next((each for each in given if each is not None), None)

    def grow(self, request: int, tokens: int) -> bool:
        """Reserve the slots of the next tokens of a prefill; False if there is no room."""
        for rooms in self.rooms:
            if (done := rooms.grow(request, tokens)) is not None:
                return done
        return self._engine.allocator.grow(request, tokens)
