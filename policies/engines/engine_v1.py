"""vLLM's v1 engine (vllm/v1/core/sched/scheduler.py).

Running requests come first, one token each; the rest of the token budget prefills waiting requests
in order of arrival, in chunks. A request that cannot get a block preempts the last running one by
recompute, which returns to the front of the line; nothing is admitted in a step that preempted. A
request is admitted when all of its input fits, or, as in earlier versions, when its next chunk
does; the latter admits long prompts that preempt themselves again and again (`admit_on`).

With `async_scheduling` a step is scheduled before the output of the one before is known
(vllm/v1/core/sched/async_scheduler.py): who ends holds memory and a sequence for one step more, and
where the end is not foreseen decodes once more in it. Not modelled: the time of the scheduler that
this hides, and that a request which arrives during a step is seen a step later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import ClassVar

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Demand
from policies.allocators.capabilities import Migration
from policies.engines.connector import Connector
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_requests import EngineRequests
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.growth import Growth
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.scheduler import Scheduler
from policies.engines.vllm_version import VERSIONS
from policies.requests.requests import IntArray


class EngineV1(Scheduler):
    """Requests that wait and run, as v1 schedules them."""

    Options: ClassVar[type[EngineOptions]] = EngineV1Spec
    aligns_chunks = looks_ahead = True
    spec: EngineV1Spec

    def __init__(self, engine: EngineRequests, priority: IntArray | None = None) -> None:
        """priority: int64 (n,), of each request; those of smaller ones go first and are preempted
        last, whatever the order of arrival (vLLM's `policy: priority`)."""
        super().__init__(engine)
        spec = self.spec
        shortest = min(self.engine.budget, spec.long_prefill_token_threshold or self.engine.budget)
        if self.engine.state_block > shortest:
            raise DescriptionError(
                f"policy.state_caching: chunks end at the ends of blocks of {engine.state_block} "
                f"tokens, and engine.max_num_batched_tokens or long_prefill_token_threshold, "
                f"{shortest}, is less"
            )
        self.engine.late = spec.async_scheduling
        self.whole_inputs = spec.admit_on == "input"
        self._stops = spec.ends == "stop"
        self._under_way: IntArray = np.zeros(0, np.int64)
        """Requests that decode in the last step scheduled."""
        self._recent = spec.like is not None and VERSIONS[spec.like].others_first
        self._priority = priority
        options = spec.long_prefill_token_threshold > 0 or spec.prefill_schedule_interval > 1
        self.in_turn = options or priority is not None
        """Whether several requests may be in their prefill, among those that decode."""
        self._filling: set[int] = set()
        """Then: running requests that are in their prefill."""
        self._fills = self._any_decode = False
        """Whether a request was in its prefill when the step began, and whether any decodes."""
        self._threshold = spec.long_prefill_token_threshold
        self._between = spec.prefill_schedule_interval > 1  # steps without a prefill
        self._since = spec.prefill_schedule_interval
        """Steps since the last one with a prefill."""
        self._again: dict[int, int] = {}
        """Requests whose KV has not come from elsewhere, and the tokens that they have."""
        self._line = False
        """Whether it left requests in line."""

    def connected(self, connector: Connector) -> None:
        self._stops &= not connector.foresees_ends

    @property
    def runs(self) -> bool:
        running = len(self.engine.running)
        return running > len(self._foreseen) if self.engine.ending else running > 0

    @property
    def _foreseen(self) -> list[int]:
        """Requests that have ended and were known to, so that they do not decode once more."""
        if self._stops or not self.engine.ending:
            return []
        return list(self.engine.growth.certain(self.engine.ending))

    def schedule(self) -> Step:
        engine = self.engine
        before = engine.preemptions
        engine.cached_tokens, engine.relenting = 0, False
        chunks: list[Chunk] = []
        defers = False
        self._fills = engine.partial or bool(self._filling)
        engine.growth.begins()
        if engine.loads.decodes:
            engine.loads.decode_on()
        if self.in_turn:
            defers = self._defers()
            decode, migrations, budget = self._run_in_turn(chunks, defers)
        else:
            decode, migrations = engine.growth.decode()
            budget = _prefills(self, engine.budget - engine.growth.rows(decode), decode)
            if engine.partial and budget:
                budget -= self._continue(chunks, budget)
        self._any_decode = len(decode) > 0
        limit = "kv_memory"
        if engine.preemptions == before:
            limit = "token_budget" if defers else engine.line.admit(chunks, budget)
            self._line = self._line if defers else bool(engine.waiting)
        if chunks:
            self._since = 0
        step = engine.step(decode, chunks, migrations, engine.preemptions - before, limit)
        self._under_way = decode
        if not engine.ending:
            return step
        return step._replace(overrun=int((engine.left[decode] == 0).sum()))

    def prefill_budget(self, left: int) -> int:
        """Tokens that the step being scheduled may prefill, of at most `left` of its budget: all.

        Called once a step, after decodes have taken theirs, or before where prefills stand among
        them (`in_turn`). A scheduler of one's own may say less (examples/own_scheduler.py).
        """
        return left

    def to_decode(self) -> IntArray:
        decode = super().to_decode()
        if not self.engine.ending or not (foreseen := self._foreseen):
            return decode
        return decode[~np.isin(decode, foreseen)]

    def first_chunk(self, rest: int, budget: int) -> int:
        if budget <= self.engine.growth.padding and self._pads(rest):
            return 0
        return min(rest, budget, self._threshold or rest)

    @property
    def repeats(self) -> bool:
        return not (self._filling or (self._between and self.engine.waiting))

    def _defers(self) -> bool:
        """Whether a step has no prefills; sets the threshold of the step."""
        lone = self._recent and len(self.engine.running) + len(self.engine.waiting) < 2
        self._threshold = 0 if lone else self.spec.long_prefill_token_threshold
        self._since += 1
        early = self._since < self.spec.prefill_schedule_interval and not self._line
        return early and len(self._filling) < len(self.engine.running)

    def _run_in_turn(
        self, chunks: list[Chunk], defers: bool
    ) -> tuple[IntArray, list[Migration], int]:
        """Schedule running requests one after another, prefills among decodes: (those that decode,
        migrations, the budget that is left). Prefills go to `chunks`, unless the step defers."""
        running: list[int] = self.engine.running.tolist()
        skipped = set(self._foreseen)
        skipped |= self._filling if defers else set()
        tokens: dict[int, int] = {}
        begins: dict[int, int] = {}  # tokens that those in their prefill have here
        migrations: list[Migration] = []
        at, budget = 0, self.engine.budget
        others = [each for each in running if each not in skipped | self._filling]
        room = _prefills(self, budget, np.array(others, np.int64), self._filling)
        while at < len(running) and budget > 0:
            request = running[at]
            at += 1
            if request in skipped:
                continue
            if self._again and (again := self.compute_again(request, chunks, budget)):
                budget, self.engine.partial = budget - again, False
                continue
            if request in self._filling:
                begins[request] = int(self.engine.allocator.stored[request])
                rest = self.engine.total(request) - self.engine.loads.stored(request)
                wanted = self.engine.line.chunk(rest, min(budget, room), self.engine.total(request))
                if not wanted:
                    continue
            else:
                planned = self.engine.growth.plan(np.array([request]), budget)
                wanted = self.engine.growth.rows(planned)
                if not wanted:
                    continue
            while request in running and not self._stores(request, wanted):
                if self.engine.migrating is not None and (
                    moved := self.engine.migrating.migrate(request)
                ):
                    migrations.append(moved)
                    self.engine.reserved_ever[request] += moved.left
                    continue
                victim = self._victim(running, request)
                # vLLM goes back a place only for one that it has scheduled
                at -= victim in tokens or victim == request
                running.remove(victim)
                given = tokens.pop(victim, 0)
                budget += given
                room += given if victim in self._filling else 0
                self.preempt(victim)
            if request in running:
                tokens[request] = wanted
                budget -= wanted
                room -= wanted if request in self._filling else 0
            elif not self._recent:
                break
        self.engine.running = np.array(running, np.int64)
        for request in [each for each in tokens if each in self._filling]:
            count = tokens.pop(request)
            last = self.engine.loads.stored(request) == self.engine.total(request)
            chunks.append(Chunk(request, begins[request], count, last))
            if last:
                self._filling.remove(request)
        return np.array(list(tokens), np.int64), migrations, min(budget, room)

    def _stores(self, request: int, tokens: int) -> bool:
        """Reserve so many tokens of a running request, or what it verifies; whether it has room."""
        if request in self._filling:
            return self.engine.loads.grow(request, tokens)
        return bool(self.engine.growth.store_one(request))

    def _victim(self, running: list[int], request: int) -> int:
        """Who is preempted where a running request has no room."""
        if (priority := self._priority) is not None:
            return max(running, key=lambda each: (int(priority[each]), each))
        return running[-1] if self.engine.allocator.preempts == "last" else request

    def orders(self) -> None:
        if (priority := self._priority) is not None:
            line = sorted(self.engine.waiting, key=lambda each: (int(priority[each]), each))
            self.engine.waiting = deque(line)

    def begun(self, request: int, chunk: Chunk | None) -> None:
        if self.in_turn and self.engine.partial:
            self._filling.add(request)
            self.engine.partial = False

    def reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        engine = self.engine
        whole, growing = self.whole_inputs, engine.on_demand
        behind = engine.growth.behind_prefill
        stored = cached + engine.line.chunk(total - cached, budget, total)
        fits = not whole or growing is None or stored == total  # `reserve` asks for as much then
        if not fits and growing is not None:
            fits = growing.fits(total, request, demand)
        if behind and self._pads(total - cached) and (self._any_decode or cached):
            if growing is not None and not growing.fits(total + behind, request, demand):
                return False
            if fits := fits and engine.allocator.reserve(request, demand, stored):
                engine.growth.pad(request)
            return fits
        if fits and engine.allocator.reserve(request, demand, stored):
            return True
        # it asks for less when all that was cached is lost and a chunk is not the whole rest
        lost = engine.caching is not None and not engine.caching.loses_ends_first
        engine.relenting |= not whole and cached > 0 and total > budget and lost
        return False

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of the prefill under way; its tokens."""
        engine = self.engine
        request = int(engine.running[-1])
        if self._again and (tokens := self.compute_again(request, chunks, budget)):
            return tokens
        start, total = int(engine.allocator.stored[request]), engine.total(request)
        rest = total - engine.loads.stored(request)
        if not (tokens := engine.line.aligned(min(rest, budget), rest, total)):
            return 0
        if not engine.loads.grow(request, tokens):  # the last running one preempts itself
            engine.running = engine.running[:-1]
            engine.partial = False
            self.preempt(request)
            return 0
        engine.partial = tokens < rest
        chunks.append(Chunk(request, start, tokens, not engine.partial))
        return tokens

    def retires(self) -> None:
        if self._foreseen:  # they did not decode once more: all is known
            self._under_way = np.setdiff1d(self._under_way, self._foreseen, assume_unique=True)

    def _pads(self, rest: int) -> bool:
        """Whether a request with so many tokens left to compute is admitted like one that
        drafts."""
        return self._recent and rest == 1 and not self._fills

    def stopped(self, request: int) -> None:
        self._filling.discard(request)

    def decoding(self) -> IntArray:
        decode = super().decoding()
        if not self._filling:
            return decode
        return np.array([each for each in decode.tolist() if each not in self._filling], np.int64)

    @property
    def prefilling(self) -> bool:
        return self.engine.partial or bool(self._filling)

    def release_early(self, request: int) -> int | None:
        if request not in self._again:
            return None
        self.engine.loads.computed(request)
        return int(self.engine.loads.release_known(request, self._again.pop(request)))

    def forget(self, request: int) -> int:
        if self.engine.caching is None or not (unknown := self.unseen(request)):
            return self.engine.allocator.release(request)
        return self.engine.caching.release_known(
            request, int(self.engine.allocator.stored[request]) - unknown
        )

    def unseen(self, request: int) -> int:
        """Tokens that it stores and whose blocks have no name yet."""
        growth: Growth = self.engine.growth
        if not self.engine.late:
            # then blocks are named when the next step is scheduled, so not those that drafts fill
            named_late = self.spec.like is not None and not self._recent
            return max(growth.stored_last(request) - 1, 0) if named_late else 0
        if unnamed := growth.unnamed(request):
            return unnamed
        if request not in self._under_way:
            return 0
        # the last token of a decode under way is the output of a step not yet seen
        return growth.stored_last(request)

    def reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        growing = self.engine.on_demand
        whole = self.spec.admit_on == "input"
        fits = not whole or growing is None or growing.fits(total, request, demand)
        return fits and self.engine.allocator.reserve(request, demand, stored)

    def recover(self, request: int) -> None:
        self._again[request] = self.engine.loads.loading[request].match.start  # it keeps its memory
        self.engine.loads.back.append(request)

    def compute_again(self, request: int, chunks: list[Chunk], budget: int) -> int:
        start = self._again.get(request, -1)
        if start < 0:
            return 0
        stored = int(self.engine.allocator.stored[request])
        tokens = self.first_chunk(stored - start, budget)
        self._again[request] += tokens
        if start + tokens == stored:
            del self._again[request]
            self.engine.loads.computed(request)
        self.engine.partial = True
        chunks.append(Chunk(request, start, tokens, False))
        return tokens

    def preempt(self, request: int) -> None:
        self.engine.loads.tell_preempted(request)
        self.engine.loads.release(request)
        self._filling.discard(request)
        self.engine.waiting.appendleft(request)
        self.engine.was_preempted(request)


def _prefills(
    scheduler: EngineV1, left: int, decode: IntArray, filling: Container[int] = ()
) -> int:
    """Its `prefill_budget`, or less where it looks ahead, beside those that decode. filling: those
    in their prefill that run among them. Raises DescriptionError where it is none of 0 to `left`
    tokens."""
    tokens = scheduler.prefill_budget(left)
    if not isinstance(tokens, int | np.integer) or not min(left, 0) <= tokens <= left:
        raise DescriptionError(
            f"engine {scheduler.spec.name}: {type(scheduler).__name__}.prefill_budget: expected"
            f" tokens from 0 to {left}; got {tokens!r}"
        )
    if scheduler.ahead is not None and tokens > 0:
        return scheduler.ahead(decode, _queued(scheduler.engine, filling), int(tokens))
    return int(tokens)


def _queued(engine: EngineRequests, filling: Container[int]) -> list[Chunk]:
    """What is left of prompts that run, and those in line, in order."""
    last = engine.running[-1:].tolist() if engine.partial else []
    runs = [each for each in engine.running.tolist() if each in filling]
    queued = [(each, engine.loads.stored(each)) for each in runs or last]
    queued += [(each, 0) for each in engine.waiting]
    chunks = [Chunk(each, start, engine.total(each) - start, True) for each, start in queued]
    return [chunk for chunk in chunks if chunk.tokens > 0]
