"""Requests of an engine that hold memory and do not run, since their KV comes from elsewhere or
goes there (`policies.engines.connector`)."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.engines.connector import NONE, Connector, Ending, Loading, Match
from policies.engines.engine_requests import EngineRequests, Offered
from policies.engines.scheduled_step import Chunk, Step
from policies.requests.requests import IntArray

_LINE = ("first", "passes_over", "matched", "finished")
"""Hooks of connectors that have a say in who of the line is tried."""


class Connected(EngineRequests):
    """What an engine does with its `connectors`."""

    def __init__(self, spec: Any, allocator: Allocator, offered: Offered) -> None:
        super().__init__(spec, allocator, offered)
        self.held: dict[int, set[Connector]] = {}
        """Requests that have ended and hold memory, and for whom."""
        self._back: deque[int] = deque()
        """Of those that load, those that wait for nothing but a place, and compute on."""
        self._decodes: deque[int] = deque()
        """The same of those that decode on."""
        self._unsure: dict[int, int] = {}
        """Of those that are held: tokens stored that are not known (asynchronous scheduling)."""
        self._forgets: set[int] = set()
        """Requests of which nothing is to be found again."""
        self._stuck_at = -1
        self._line_asks = False
        """Whether a connector has a say in who of the line is tried."""

    # what others see

    @property
    def holding(self) -> bool:
        """Whether requests that do not run hold memory, and will give it back."""
        return bool(self.loading or self.held) or any(each.holding for each in self.connectors)

    @property
    def holders(self) -> IntArray:
        """Requests that hold memory and neither run nor have just ended, int64 (n,)."""
        if not self.connectors:
            return NONE
        own = np.array([*self.loading, *self.held], np.int64)
        return np.concatenate([own, *(each.holders for each in self.connectors)])

    @property
    def stuck(self) -> bool:
        """Whether nothing can be scheduled until something happens outside."""
        return self._stuck_at == self.changes

    def rest(self) -> None:
        """Nothing could be scheduled."""
        self._stuck_at = self.changes

    def wake(self) -> None:
        """Something has changed for requests in line that could not be admitted."""
        self._stuck_at = -1

    def connect(self, connector: Connector) -> None:
        """Have one more connector, which is asked behind those that are there."""
        self.connectors.append(connector)
        self._line_asks |= any(
            getattr(type(connector), hook) is not getattr(Connector, hook) for hook in _LINE
        )
        connector.connect(self)

    def known(self, request: int) -> int:
        """Tokens stored of a request whose text is known: not those of a step under way."""
        return int(self.allocator.stored[request]) - self._unsure.get(request, 0)

    def cached(self, request: int, limit: int) -> int:
        """How many of its first tokens, at most `limit`, the device has."""
        caching = self._caching
        return 0 if caching is None else caching.cached(request, limit, self.demand(request))

    def landed(self) -> None:
        """What has come by now may be used, and what has left is gone."""
        for connector in self.connectors:
            for request in connector.arrived():
                if request in self.loading:
                    decodes = self.loading[request].match.computed
                    (self._decodes if decodes else self._back).append(request)
            for request in connector.lost():
                if request in self.loading:
                    self._recover(request)
                else:
                    self._unload(request)
            self._let_go(connector, connector.released())

    def lose(self) -> None:
        """The device has lost all: whoever was there gives its memory up, and nothing is found."""
        for connector in self.connectors:
            connector.reset()
        ended = [*self.ending, *self.held]
        self.ending = []
        self.held.clear()
        self._gone(ended)
        left = self.running[self.left[self.running] > 0].tolist()
        for request in reversed([*left, *self.loading]):
            self._put_back(request)
        for each in (self.loading, self._back, self._decodes):
            each.clear()
        self.running, self._partial = np.zeros(0, np.int64), False
        if self._caching is not None:
            self._caching.forget()
        self.changes += 1

    def give_up(self, request: int) -> None:
        """One that is `loading` gets nothing: it gives its memory back, but for what it found."""
        match = self.loading.pop(request).match
        for line in (self._back, self._decodes):
            if request in line:
                line.remove(request)
        self._release_known(request, match.start)
        self.wake()

    # what a scheduler implements

    @abstractmethod
    def retire(self) -> None:
        """Take back the memory of the requests that have ended."""

    @abstractmethod
    def _preempt(self, request: int) -> None:
        """Take back the memory of a request, which waits from now on."""

    def _put_back(self, request: int) -> None:
        """The same of one that computes again."""
        self._preempt(request)

    @abstractmethod
    def _chunk(self, rest: int, budget: int, total: int) -> int:
        """How many of the `rest` of a request's `total` tokens its next step computes; 0: it
        waits."""

    @abstractmethod
    def _reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        """Reserve slots to admit a request whose first `stored` of `total` tokens are there, or
        come from elsewhere; False if there is no room."""

    def begin_again(self, request: int) -> None:
        """A request that runs has lost KV: it waits, and is computed again."""
        self.stop(request)
        self._put_back(request)

    def _extend(self, request: int, tokens: int, total: int) -> bool:
        """Reserve slots for the next `tokens` that one which comes back computes; False if there is
        no room."""
        return self.allocator.grow(request, tokens)

    def _recover(self, request: int) -> None:
        """The KV of one that is `loading` will not come: it gives its memory back, but for what it
        found, and waits in front of the line."""
        self.give_up(request)
        self._computed(request)
        self.waiting.appendleft(request)

    def _unload(self, request: int) -> None:
        """Layers that were to come while a request runs will not: it begins again, and nothing that
        it holds is found. What it made of others counts (assumed)."""
        if request in self.running and request not in self.ending:
            self._forgets.add(request)
            self.begin_again(request)
        self._computed(request)

    def _compute_again(self, request: int, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of what should have come to a request that has kept its memory; its
        tokens, 0 if nothing should have."""
        return 0

    def _unseen(self, request: int) -> int:
        """Tokens stored of a request by a step whose output is not known yet."""
        return 0

    # its own

    def _open(self, line: Iterable[int], first: int = 0) -> Iterable[int]:
        """Places of the requests in line that no connector passes over, from `first` on."""
        # sessions whose last turn holds its memory for a step more
        ending = set(self._sessions[self.ending].tolist()) - {-1} if self.ending else set()
        for place, request in enumerate(line, first):
            if int(self._sessions[request]) in ending or request in self.held:
                continue  # what is held is of when it was here before
            asked = request, self.demand(request), self.total(request)
            if not any(connector.passes_over(*asked) for connector in self.connectors):
                yield place

    def _foremost(self) -> int:
        """The place of a request that goes before all others; -1: none."""
        places = (connector.first(self.waiting) for connector in self.connectors)
        return next((place for place in places if place >= 0), -1)

    def _resume(self, request: int) -> None:
        """A request is tried: what was held for it gives its memory up."""
        for connector in self.connectors:
            if ended := connector.resumed(request):
                self._let_go(connector, [(each, Ending.FREE) for each in ended])
                self._relenting = True  # who is tried next is another

    def _yield(self) -> bool:
        """Nothing runs: whether memory that was held is given up for those in line."""
        for connector in self.connectors:
            if ended := connector.yields():
                self._let_go(connector, [(each, Ending.FREE) for each in ended])
                self._relenting = True
                return True
        return False

    def _matched(
        self, request: int, demand: Demand, cached: int, total: int
    ) -> tuple[Connector, Match] | None:  # fmt: skip
        """Who has the KV of a request, and what; None: nobody."""
        for connector in self.connectors:
            if (match := connector.matched(request, demand, cached, total)) is not None:
                return connector, match
        return None

    def _load(
        self, request: int, demand: Demand, cached: int, total: int,
        found: tuple[Connector, Match], budget: int,
    ) -> tuple[str, Chunk | None]:  # fmt: skip
        """Admit a request whose KV comes from elsewhere: as `Engine._try`."""
        connector, match = found
        tokens = 0 if match.waits else self._chunk(total - match.end, budget, total)
        if not match.waits and not tokens:
            return "token_budget", None
        if not self._reserve_loaded(request, demand, total, match.end + tokens):
            return "kv_memory", None
        self._allocated(request, demand, cached, total, found)
        if match.waits:
            self.waiting.remove(request)
            self.loading[request] = Loading(match, connector)
            return "offered_load", None
        self._cached_tokens += match.end
        self._partial = match.end + tokens < total
        return "offered_load", Chunk(request, match.end, tokens, not self._partial)

    def _allocated(
        self, request: int, demand: Demand, cached: int, total: int,
        found: tuple[Connector, Match] | None,
    ) -> None:  # fmt: skip
        for connector in self.connectors:
            match = found[1] if found is not None and found[0] is connector else None
            connector.allocated(request, demand, cached, total, match)

    def _decode_on(self) -> None:
        """Requests whose KV has come, and their next token with it, run: before the one that is in
        its prefill, which stays the last."""
        while self._decodes:
            request = self._decodes[0]
            if len(self.running) >= self._cap:
                break
            self._decodes.popleft()
            del self.loading[request]
            at = len(self.running) - self._partial
            self.running = np.insert(self.running, at, request)
            self.changes += 1

    def _come_back(self, chunks: list[Chunk], budget: int) -> int:
        """Requests whose KV has come, or will not, compute on; the budget that is left."""
        while self._back and budget and not self._partial:
            request = self._back[0]
            if len(self.running) >= self._cap:
                break
            match = self.loading[request].match
            if again := self._compute_again(request, chunks, budget):
                self._cached_tokens += match.start
                self._enter(request)
                budget -= again
                continue
            start, total = int(self.allocator.stored[request]), self.total(request)
            if not (tokens := self._chunk(total - start, budget, total)):
                break
            if not self._extend(request, tokens, total):
                self._back.popleft()
                del self.loading[request]
                self._release(request)
                self.waiting.appendleft(request)
                continue
            budget -= tokens
            self._cached_tokens += match.end
            self._partial = start + tokens < total
            chunks.append(Chunk(request, start, tokens, not self._partial))
            self._enter(request)
        return budget

    def _enter(self, request: int) -> None:
        self._back.popleft()
        del self.loading[request]
        self.running = np.append(self.running, request)

    def _computed(self, request: int) -> None:
        for connector in self.connectors:
            connector.computed(request)

    def _tell_stepped(self, step: Step, prefilled: list[int], ended: list[int]) -> list[int]:
        """Steps like this are done: those of `ended` that do not go on elsewhere."""
        for connector in self.connectors:
            connector.stepped(step, prefilled)
        return [
            request for request in ended
            if not any(connector.goes_on(request) for connector in self.connectors)
        ]  # fmt: skip

    def _tell_preempted(self, request: int) -> None:
        for connector in self.connectors:
            connector.preempted(request)

    def _free(self, ended: list[int]) -> None:
        """Requests have ended: take back the memory of those that no connector holds."""
        if self.connectors:
            ended = [request for request in ended if not self._holds(request)]
        self._gone(ended)

    def _holds(self, request: int) -> bool:
        """Whether an ended request keeps its memory for a connector: of one that lies elsewhere in
        part nothing is kept."""
        if not self.allocator.resident[request] or not self.whole(request):
            return False
        if unseen := self._unseen(request):
            self._unsure[request] = unseen
        demand, tokens = self.demand(request), self.known(request)
        holders = set()
        for connector in self.connectors:
            ending = connector.finished(request, demand, tokens)
            if ending is Ending.HELD:
                holders.add(connector)
            elif ending is Ending.FORGET:
                self._forgets.add(request)
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
                self._forgets.add(request)
            if not holders:
                del self.held[request]
                gone.append(request)
        if gone:
            self.wake()
        self._gone(gone)

    def _gone(self, requests: list[int]) -> None:
        if requests:
            self._free_now(requests)
        for request in requests if self.connectors else ():
            for connector in self.connectors:
                connector.forgotten(request)

    def _free_now(self, ended: list[int]) -> None:
        if self._batching is not None:
            self._batching.release_together(True)
        for request in ended:
            if self._remembering is not None:
                self._remembering.ends(request)
            if self.allocator.resident[request]:
                runs = self.allocator.extent_count(np.array([request]))
                slots = self.allocator.layout.slots_of(self.allocator.stored[request])
                self.run_tokens[request] = slots / runs
                self.reserved_ever[request] += self._release(request)
            else:  # preempted with its last token under way
                self.waiting.remove(request)
            self._demands.pop(request, None)
            if self._remembering is not None:
                self._remembering.finished(
                    request, int(self.prompt[request]), int(self.output[request])
                )
        if self._batching is not None:
            self._batching.release_together(False)
        self.changes += len(ended)

    def _release(self, request: int) -> int:
        """Free the slots of a request; how many were reserved."""
        if request in self._forgets:
            self._forgets.remove(request)
            self._unsure.pop(request, None)
            if self._caching is not None:
                return self._caching.discard(request)
        elif request in self._unsure:
            known = self.known(request)
            del self._unsure[request]
            return self._release_known(request, known)
        return self._forget(request)

    def _forget(self, request: int) -> int:
        """As `_release`, of one that has all of its tokens here and is found again as it may be."""
        return self.allocator.release(request)

    def _release_known(self, request: int, tokens: int) -> int:
        if self._caching is None:
            return self.allocator.release(request)
        return self._caching.release_known(request, tokens)
