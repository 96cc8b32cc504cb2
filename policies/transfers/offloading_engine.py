"""v1 over a tiered KV cache (`policies.transfers.tiers`), as with vLLM's `OffloadingConnector`.

A request whose KV comes from a tier has its memory from its admission on, runs when all of it is
there (vLLM: `WAITING_FOR_REMOTE_KVS`), and others run meanwhile; layer by layer it runs at once. A
request that ended keeps its memory until what is stored of it has left, or while its session pauses
and its KV is kept. Passed over is one whose text is on its way to another, or whose session's last
turn is still being stored. If a loaded request has no room for its first chunk, it gives its memory
back and waits in front of the line; what was loaded may still be found. Turns whose KV is kept go
first (InferCept: by the arrival of the session). With asynchronous scheduling an ended request is
stored, kept or given up a step later, without the token that it decoded too many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import MovesBlocks
from policies.engines.engine import Offered
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.requests.requests import IntArray
from policies.transfers.refusals import require_plain
from policies.transfers.tiers import Tiers


class OffloadingEngine(EngineV1):
    """`layerwise`: requests run while their KV comes."""

    def __init__(
        self, spec: EngineV1Spec, allocator: Allocator, offered: Offered, tiers: Tiers,
        layerwise: bool = False,
    ) -> None:  # fmt: skip
        """Raises DescriptionError for what is not modelled with tiers."""
        super().__init__(spec, allocator, offered)
        require_plain("serving.tiers", self, late=True)
        self._tiers, self._layerwise = tiers, layerwise
        self.loading: dict[int, tuple[int, int]] = {}
        """Requests that hold memory for tokens that are on their way: from, to."""
        self._back: deque[int] = deque()  # of these, those that wait no more
        self._dropped: set[int] = set()  # requests of which nothing is to be found again
        self._again: dict[int, int] = {}
        """Requests whose KV has not come, and the tokens that they have."""
        self.leaving: list[int] = []
        """Requests that ended and hold memory for what is being stored."""
        self.kept: dict[int, int] = {}
        """Of sessions that pause, those whose last turn holds its memory."""
        self._overran: set[int] = set()  # of them, those with a token too many
        requests, before = offered.requests, offered.requests.turn_before
        self._pause_s = np.full(len(requests), np.nan)
        self._pause_s[before[before >= 0]] = requests.think_s[before >= 0]

    @property
    def busy(self) -> bool:
        return super().busy or bool(self._back)

    @property
    def holding(self) -> bool:
        return bool(self.loading or self.leaving or self.kept)

    @property
    def holders(self) -> IntArray:
        """Requests that hold memory and do not run."""
        return np.array([*self.loading, *self.leaving, *self.kept.values()], np.int64)

    def admits_arrivals(self, step: Step) -> bool:
        return super().admits_arrivals(step) or self.holding  # others may be passed over

    def landed(self) -> None:
        """What has arrived by now may be used."""
        self._back.extend(request for request in self._tiers.loaded() if request in self.loading)
        for request in self._tiers.failed():
            self._again[request] = self.loading[request][0]
            self._back.append(request)
        for request, way in self._tiers.overdue().items():
            del self.kept[int(self._sessions[request])]
            if not self._stays(request, way):
                self._gone([request])
        gone = set(self._tiers.stored()).intersection(self.leaving)
        if gone:
            self.leaving = [request for request in self.leaving if request not in gone]
            self._gone(sorted(gone))
        if self._tiers.card_lost():
            self._lose()

    def _lose(self) -> None:
        """The card has lost all: whoever was there gives its memory up, and nothing is found."""
        assert isinstance(self.allocator, MovesBlocks)
        for request in self.kept.values():
            self._tiers.resumed(request)
        ended = [*self.ending, *self.leaving, *self.kept.values()]
        self.ending, self.leaving = [], []
        self.kept.clear()
        self._gone(ended)
        left = self.running[self.left[self.running] > 0].tolist()
        for request in reversed([*left, *self.loading]):
            self._preempt(request)
        for each in (self.loading, self._back):
            each.clear()
        self.running, self._partial = np.zeros(0, np.int64), False
        self.allocator.forget()
        self.changes += 1

    def rounds(self, step: Step, limit: int) -> int:
        if self._tiers.restoring:
            return 1
        if (every := self._tiers.saves_every) and len(step.decode):
            limit = min(limit, 1 + int((-self.allocator.stored[step.decode] % every).min()))
        return super().rounds(step, limit)

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        prefilled, ended = super().complete(step, rounds)
        for request in prefilled:
            if self.left[request]:
                self._tiers.store(request, self._demand(request), int(self.prompt[request]))
        if every := self._tiers.saves_every:
            stored = self.allocator.stored[step.decode]
            whole = (stored > 0) & (stored % every == 0)
            for request, tokens in zip(
                step.decode[whole].tolist(), stored[whole].tolist(), strict=True
            ):
                if self.left[request]:
                    self._tiers.store(request, self._demand(request), tokens)
        return prefilled, ended

    def _free(self, ended: list[int]) -> None:
        if self._late:
            self._overran.update(set(ended).intersection(self._under_way.tolist()))
        self._gone([request for request in ended if not self._stays(request, self._way(request))])

    def _known(self, request: int) -> int:
        """Tokens stored of an ended request whose text is known."""
        return int(self.allocator.stored[request]) - (request in self._overran)

    def _way(self, request: int) -> str | None:
        """What becomes of the memory of a request that has ended."""
        if not self.allocator.resident[request]:
            return "end"
        return self._tiers.pauses(
            request, self._demand(request), self._known(request),
            float(self._pause_s[request]), len(self.running),
            int(self.allocator.stored[self.running].sum()),
        )  # fmt: skip

    def _stays(self, request: int, way: str | None) -> bool:
        """Whether it holds its memory for now."""
        if way == "keep":
            self.kept[int(self._sessions[request])] = request
            return True
        if way == "drop":
            self._dropped.add(request)
        if way in ("drop", "end"):
            return False
        if self._tiers.store(request, self._demand(request), self._known(request), True):
            self.leaving.append(request)
            return True
        return False

    def _go_on(self, session: int) -> None:
        """A session that was kept has its next turn, or has to give its memory up."""
        request = self.kept.pop(session, -1)
        if request >= 0:
            self._tiers.resumed(request)
            self._gone([request])
            self._relenting = True  # who is tried next is another

    def _gone(self, requests: list[int]) -> None:
        if requests:
            super()._free(requests)
        for request in requests:
            self._tiers.forget(request)

    def _preempt(self, request: int) -> None:
        self._tiers.drop(request)
        super()._preempt(request)

    def _release(self, request: int) -> int:
        assert self._caching is not None
        if request in self._dropped:
            self._dropped.remove(request)
            self._overran.discard(request)
            return self._caching.discard(request)
        if request in self._overran:
            known = self._known(request)
            self._overran.remove(request)
            return self._caching.release_known(request, known)
        if request not in self._again:
            return super()._release(request)
        self._tiers.computed(request)
        return self._caching.release_known(request, self._again.pop(request))

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        request = int(self.running[-1])
        return self._compute_again(request, chunks, budget) or super()._continue(chunks, budget)

    def _compute_again(self, request: int, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of what should have come; its tokens, 0 if nothing should have."""
        start = self._again.get(request, -1)
        if start < 0:
            return 0
        stored = int(self.allocator.stored[request])
        tokens = min(stored - start, budget)
        self._again[request] += tokens
        if start + tokens == stored:
            del self._again[request]
            self._tiers.computed(request)
        self._partial = True
        chunks.append(Chunk(request, start, tokens, False))
        return tokens

    def _candidates(self, begun: bool) -> Iterable[int]:
        for place, request in enumerate(self.waiting if self.kept else ()):
            if int(self._sessions[request]) in self.kept:
                return (place,)  # its memory is held for it
        storing = set(self._sessions[[*self.leaving, *self.ending]].tolist()) - {-1}
        for place, request in enumerate(islice(self.waiting, self._cap)):
            if int(self._sessions[request]) in storing:
                continue
            if not self._tiers.busy(request, self._demand(request), self._total(request)):
                return (place,)
        return ()

    def _admit(self, chunks: list[Chunk], budget: int) -> str:
        while self._back and budget and not self._partial:
            if self._sequences(self.running) >= self._cap:
                break
            request = self._back.popleft()
            cached, end = self.loading.pop(request)
            if request in self._again:
                self._cached_tokens += cached
                self.running = np.append(self.running, request)
                budget -= self._compute_again(request, chunks, budget)
                continue
            start, total = int(self.allocator.stored[request]), self._total(request)
            tokens = min(total - start, budget)
            if not self.allocator.grow(request, tokens):
                self._release(request)
                self.waiting.appendleft(request)
                continue
            budget -= tokens
            self._cached_tokens += end
            self._partial = start + tokens < total
            chunks.append(Chunk(request, start, tokens, not self._partial))
            self.running = np.append(self.running, request)
        limit = super()._admit(chunks, budget)
        while limit == "kv_memory" and self.kept and not len(self.running):
            self._go_on(next(iter(self.kept)))  # nothing runs: the longest kept gives way
            limit = super()._admit(chunks, budget)
        return limit

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        if sequences + 1 > self._cap:
            return "sequence_cap", None
        if not budget or self._partial:
            return "token_budget", None
        self._go_on(int(self._sessions[request]))
        total, demand = self._total(request), self._demand(request)
        limit = self._findable(request, total)
        assert self._caching is not None
        cached = self._caching.cached(request, limit, demand)
        plan = self._tiers.plan(request, demand, cached, limit)
        if plan is None:
            found = super()._try(request, sequences, budget)
            if found[1] is not None:
                self._tiers.admitted(request, demand, cached, total)
            return found
        tokens = self._first_chunk(total - plan.end, budget) if self._layerwise else 0
        if not self._reserve_loaded(request, demand, total, plan.end + tokens):
            return "kv_memory", None
        self._tiers.load(request, plan)
        self._tiers.admitted(request, demand, cached, total)
        if not self._layerwise:
            self.waiting.remove(request)
            self.loading[request] = plan.start, plan.end
            return "offered_load", None
        self._cached_tokens += plan.end
        self._partial = plan.end + tokens < total
        return "offered_load", Chunk(request, plan.end, tokens, not self._partial)

    def _reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        growing = self._on_demand
        whole = self.spec.admit_on == "input"
        fits = not whole or growing is None or growing.fits(total, request, demand)
        return fits and self.allocator.reserve(request, demand, stored)
