"""SGLang's scheduler (0.5.23: `managers/scheduler.py`, `schedule_policy.py`, `schedule_batch.py`).

A step is prefills or decodes. While requests wait and the batch is not full, a step prefills them:
in order of arrival, or by the longest prefix found, requests last whose first 32 tokens one before
them computes. One is admitted if its prompt and all output that it may ask for (4,096 tokens at
most) fit what is free, less a share of what running requests may still ask for. A prompt longer
than what is left of a chunk is cut, and what is left of it comes first in the next step. The batch
is full once a request finds no room, until another leaves.

The share, `new_token_ratio`, falls with each decode step. Where a decode step has no room, requests
with the fewest output tokens, of those the longest prompts, are retracted to the end of the line,
one at least; the share becomes what they have decoded of what they asked for, and those that stay
are in the order of that choice. It begins anew when nothing runs or waits.

SGLang's own memory is policy `radix`, and with `--disable-radix-cache` `paged` with blocks of one
token. Under policies that reserve at admission nothing is kept free for output to come, as it is in
the reservation (assumed: SGLang has none).

Not modelled: overlap of scheduling with steps, mixed chunks, `ignore_eos`, requests that are
aborted for want of memory (an error here).
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, checked
from policies.allocators.allocator import Demand
from policies.allocators.capabilities import Migration
from policies.allocators.radix_tree import Key, beginning
from policies.engines.connector import Connector, Match
from policies.engines.engine_options import Count, EngineOptions
from policies.engines.engine_requests import EngineRequests
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.scheduler import Scheduler
from policies.requests.requests import IntArray

MOST_NEW, RATIO, LEAST_SHARE, DECAY_STEPS, RETRACT_STEPS = 4096, 0.7, 0.14, 600, 20
"""SGLang's CLIP_MAX_NEW_TOKENS, INIT_NEW_TOKEN_RATIO, MIN_NEW_TOKEN_RATIO_FACTOR,
NEW_TOKEN_RATIO_DECAY_STEPS and RETRACT_DECODE_STEPS."""
IN_BATCH, LINE = 32, 128
"""IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD; requests in line that are sorted by their prefix."""


class EngineSglangSpec(EngineOptions):
    """Options of SGLang's scheduler."""

    name: Literal["sglang"] = "sglang"
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    """Order of the line: of arrival, or the longest prefix found first."""
    chunked_prefill_size: Count = 8192
    """Tokens that a step prefills at most. SGLang: 2,048 to 16,384, by the memory of the device."""
    max_prefill_tokens: Count = 16384
    """Tokens from which on a step admits no more prefills."""
    schedule_conservativeness: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Factor on the share of their remaining output that running requests keep free at first."""
    ends: Literal["stop", "length"] = "stop"
    """Output that a request asks for: the most that any may have (assumed: as most do that people
    chat with), or its own length."""

    def token_budget(self, longest: int) -> int:
        return max(self.chunked_prefill_size, self.sequence_cap)

    @checked
    def _one_line(self) -> None:
        if self.batching != "any" or self.packing != "arrival":
            raise ValueError("batching, packing: not with engine sglang; expected schedule_policy")
        if self.max_num_seqs is None:
            raise ValueError("max_num_seqs: null only with engine v1 and like")


class _Pass:
    """What one step may still prefill: `total` and `current` are slots spoken for, with and without
    output to come; `promised`, those of them that the allocator counts already."""

    def __init__(self, spec: EngineSglangSpec, output: float, page: int) -> None:
        self.total, self.current, self.promised, self._page = output, 0, 0, page
        self.tokens, self.chunk = spec.max_prefill_tokens, spec.chunked_prefill_size

    def paged(self, tokens: int) -> int:
        """Slots of whole pages."""
        return -(-tokens // self._page) * self._page

    def charge(self, tokens: int, output: int) -> None:
        """A prefill of so many tokens, and so much output to come."""
        tokens = self.paged(tokens)
        self.total += tokens + self._page + output
        self.current += tokens + self._page
        self.tokens -= tokens
        self.chunk -= tokens

    @property
    def spent(self) -> bool:
        """Whether a step computes enough."""
        return self.tokens <= 0 or self.chunk <= 0


class EngineSglang(Scheduler):
    """Requests that wait and run, as SGLang schedules them."""

    Options = EngineSglangSpec
    spec: EngineSglangSpec

    def __init__(self, engine: EngineRequests) -> None:
        """Raises DescriptionError for chunks that part a page."""
        super().__init__(engine)
        spec, allocator = self.spec, engine.allocator
        self._page = allocator.transfer_block if self.engine.on_demand is not None else 1
        if spec.chunked_prefill_size % self._page:
            raise DescriptionError(
                f"serving.engine.chunked_prefill_size: expected a multiple of the policy's pages, "
                f"{self._page}; got {spec.chunked_prefill_size}"
            )
        limits = allocator.limits
        longest = min(limits.max_model_len, allocator.reach) - 1
        asked = self.engine.output if spec.ends == "length" else limits.max_tokens
        self._asked: IntArray = np.minimum(asked, np.maximum(longest - self.engine.prompt - 1, 1))
        """Output that each request may have."""
        self._full = False
        self._limit = "offered_load"
        """What kept a request from being admitted last."""
        self._ratio = self._first_ratio = min(RATIO * spec.schedule_conservativeness, 1.0)
        self._least = self._ratio * LEAST_SHARE
        self._decay = (self._ratio - self._least) / DECAY_STEPS
        self._filled = np.zeros(len(engine.requests), np.int64)
        """Tokens that the last prefill of each computed or found."""

    def schedule(self) -> Step:
        before, self.engine.cached_tokens = self.engine.preemptions, 0
        chunks: list[Chunk] = []
        decode: IntArray = np.zeros(0, np.int64)
        moves: list[Migration] = []
        if self.engine.loads.decodes:
            self.engine.loads.decode_on()
        self._full &= len(self.engine.running) > 0
        if (
            self.engine.partial
            or self.engine.loads.back
            or (self.engine.waiting and not self._full)
        ):
            self._limit = self._prefill(chunks)
            while (
                not chunks
                and not len(self.engine.running)
                and self.engine.waiting
                and self.engine.loads.gives_up()
            ):
                self._limit = self._prefill(chunks)
        if not chunks and len(self.engine.running):
            decode, moves = self._decode_all()
        elif (
            not chunks
            and self.engine.waiting
            and self.engine.preemptions == before
            and not self.engine.loads.holding
        ):
            raise self.engine.line.never_fits(self.engine.waiting[0])
        limit = self._limit if self.engine.waiting else "offered_load"
        return self.engine.step(decode, chunks, moves, self.engine.preemptions - before, limit)

    def completed(self, ended: list[int]) -> None:
        if ended or self.engine.partial:
            self._full = False
        if not self.engine.busy:
            self._ratio = self._first_ratio

    def admits_arrivals(self, step: Step) -> bool:
        return not self._full or self.engine.loads.holding

    def woken(self) -> None:
        self._full = False

    def repeated(self, rounds: int) -> None:
        self._ratio = max(self._ratio - rounds * self._decay, self._least)

    def _prefill(self, chunks: list[Chunk]) -> str:
        """Prefill the next chunk of a request, and those that wait: which of STEP_LIMITS ended
        it."""
        decode = self.to_decode()
        to_come = 0.0
        if self.engine.on_demand is not None:
            asked = np.minimum(self._asked[decode] - _made(self.engine, decode), MOST_NEW)
            to_come = float((asked * self._ratio).sum())
        budget = _Pass(self.spec, to_come, self._page)
        if self.engine.partial and not self._continue(chunks, budget):
            return "kv_memory"
        admitted, limit, line = [], "offered_load", _line_open(self.engine)
        if self.engine.loads.back and not self.engine.partial:
            self._prefill_back(chunks, budget)
            if self.engine.partial:
                limit, line = "token_budget", []
        for request in line:
            if budget.spent and _left(self.engine, budget) > 0:
                limit = "token_budget"
                break
            if len(decode) + len(chunks) >= self.engine.cap:
                self._full, limit = True, "sequence_cap"
                break
            limit, chunk = self._admit_one(request, budget)
            if chunk is not None:
                chunks.append(chunk)
                admitted.append(request)
            if limit == "kv_memory":
                self._full = bool(chunks) or len(decode) > 0
            if limit != "offered_load":
                break
        for request in admitted:
            self.engine.waiting.remove(request)
        self.engine.running = np.concatenate((self.engine.running, np.array(admitted, np.int64)))
        return limit

    def _prefill_back(self, chunks: list[Chunk], budget: _Pass) -> None:
        """Prefill those whose KV has come, or will not, which have most of their memory."""
        free, before = self.engine.allocator.free_slots, len(chunks)
        self.engine.loads.come_back(chunks, max(budget.chunk, 0))
        budget.promised += free - self.engine.allocator.free_slots
        for chunk in chunks[before:]:
            self._filled[chunk.request] = self.engine.total(chunk.request)
            output = min(int(self._asked[chunk.request]), MOST_NEW) if chunk.last else 0
            budget.charge(chunk.tokens, output)

    def _continue(self, chunks: list[Chunk], budget: _Pass) -> bool:
        """The next chunk of the prefill under way; False: it has no room, and waits again."""
        request = int(self.engine.running[-1])
        start = int(self.engine.allocator.stored[request])
        rest = self.engine.total(request) - self.engine.loads.stored(request)
        most = int(min(budget.chunk, _left(self.engine, budget)))
        tokens = min(rest, most if most > 0 else budget.chunk)
        before = self.engine.allocator.free_slots
        if not self.engine.loads.grow(request, tokens):
            if not self.engine.loads.holding:
                raise self.engine.line.never_fits(request)
            self.engine.running, self.engine.partial = self.engine.running[:-1], False
            self.preempt(request)
            return False
        budget.promised += before - self.engine.allocator.free_slots
        self.engine.partial = tokens < rest
        output = 0 if self.engine.partial else min(int(self._asked[request]), MOST_NEW)
        budget.charge(tokens, output)
        chunks.append(Chunk(request, start, tokens, not self.engine.partial))
        return True

    def _admit_one(self, request: int, budget: _Pass) -> tuple[str, Chunk | None]:
        """(What keeps others from being admitted, the first chunk of a request that is)."""
        self.engine.loads.resume(request)
        total, demand = self.engine.total(request), self.engine.demand(request)
        cached, pinned = _ask(self.engine, request, total - 1, demand)
        asked, rest = int(self._asked[request]), total - cached
        made = int(_made(self.engine, request))
        wanted = rest + min(max(asked - made, 0), MOST_NEW) + self._page
        if wanted >= _left(self.engine, budget) - pinned:
            return "kv_memory", None
        if found := self.engine.loads.matched(request, demand, cached, total):
            return self._admit_loaded(request, demand, cached, total, found, budget)
        tokens, output = rest, min(asked, MOST_NEW)
        if budget.paged(rest) > budget.chunk:
            tokens, output = budget.chunk // self._page * self._page, 0
            if tokens <= 0:
                return "token_budget", None
        before = self.engine.allocator.free_slots
        if not self.engine.line.admitted(request, demand, total, cached, tokens):
            return "kv_memory", None
        self.engine.loads.allocated(request, demand, cached, total, None)
        budget.promised += before - self.engine.allocator.free_slots - pinned
        budget.charge(tokens, output)
        self._filled[request] = total
        self.engine.cached_tokens += cached
        self.engine.partial = tokens < rest
        limit = "kv_memory" if _left(self.engine, budget) <= 0 else "offered_load"
        limit = "token_budget" if budget.spent and limit != "kv_memory" else limit
        return limit, Chunk(request, cached, tokens, not self.engine.partial)

    def _admit_loaded(
        self, request: int, demand: Demand, cached: int, total: int,
        found: tuple[Connector, Match], budget: _Pass,
    ) -> tuple[str, Chunk | None]:  # fmt: skip
        """As `_admit_one`, of a request whose KV comes from elsewhere."""
        most = budget.chunk // self._page * self._page
        before = self.engine.allocator.free_slots
        limit, chunk = self.engine.loads.load(request, demand, cached, total, found, max(most, 0))
        self._filled[request] = found[1].end
        if chunk is not None:
            self._filled[request] = total
            budget.promised += before - self.engine.allocator.free_slots
            output = min(int(self._asked[request]), MOST_NEW) if chunk.last else 0
            budget.charge(chunk.tokens, output)
        return limit, chunk

    def _decode_all(self) -> tuple[IntArray, list[Migration]]:
        """Reserve a token of every running request, or what it verifies; or retract some. Of a
        policy that reserves at admission those move, or are preempted, that have outgrown it: it is
        nobody else's room that they lack."""
        if self.engine.on_demand is None:
            return self.engine.growth.decode()
        if self._fit(self.engine.running):
            self._ratio = max(self._ratio - self._decay, self._least)
        else:
            self._retract_some()
        self.engine.growth.store_all(self.engine.running)
        return self.engine.running, []

    def _fit(self, running: IntArray) -> bool:
        """Whether all of these have room in the next step."""
        return bool(self.engine.growth.fit(running, self._page))

    def _retract_some(self) -> None:
        running: list[int] = self.engine.running.tolist()
        made = dict(zip(running, _made(self.engine, self.engine.running).tolist(), strict=True))
        running.sort(key=lambda each: (made[each], -int(self.engine.prompt[each])), reverse=True)
        first = True
        while running and (first or not self._fit(np.array(running))):
            if len(running) == 1 and not self.engine.loads.holding:
                raise self.engine.line.never_fits(running[0])
            first = False
            self.preempt(running.pop())
            if self.engine.batching is not None:
                self.engine.batching.make_room(len(running) * RETRACT_STEPS)
        self.engine.running, self._full = np.array(running, np.int64), False
        if not running:
            return
        tokens = sum(made[each] for each in running) + RETRACT_STEPS * len(running)
        self._ratio = min(tokens / (int(self._asked[self.engine.running].sum()) + 1), 1.0)

    def reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        return self.engine.allocator.reserve(request, demand, stored)

    def preempt(self, request: int) -> None:
        self.engine.loads.tell_preempted(request)
        known = int(self._filled[request]) if self.engine.loads.leave(request) is None else 0
        if request in self.engine.loads.forgets:
            self.engine.loads.forgets.remove(request)
            known = 0
        self.engine.loads.release_known(request, known)
        self.engine.waiting.append(request)
        self.engine.was_preempted(request)

    def reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        return self.engine.allocator.reserve(request, demand, cached + budget)

    def first_chunk(self, rest: int, budget: int) -> int:
        return min(rest, budget)


def _left(engine: EngineRequests, budget: _Pass) -> float:
    """Slots that nothing is promised to, neither with nor without output to come. A policy that
    reserves at admission has promised them itself."""
    if engine.on_demand is None:
        return np.inf
    free = engine.allocator.free_slots + budget.promised
    return min(free - budget.total, free - budget.current)


def _made(engine: EngineRequests, requests: IntArray | int) -> IntArray:
    """Output tokens so far."""
    made: IntArray = engine.output[requests] - engine.left[requests]
    return made


def _ask(engine: EngineRequests, request: int, limit: int, demand: Demand) -> tuple[int, int]:
    """See `Caches.ask`."""
    return (0, 0) if engine.caching is None else engine.caching.ask(request, limit, demand)


def _line(engine: EngineRequests) -> list[int]:
    """Requests in the order in which they are admitted."""
    line = list(engine.waiting)
    if engine.spec.schedule_policy == "fcfs" or len(line) > LINE:
        return line
    rank: dict[int, float] = {}
    begun: set[Key] = set()
    for request in line:
        total, demand = engine.total(request), engine.demand(request)
        found, _ = _ask(engine, request, total, demand)
        rank[request] = -min(found, total - 1)
        if found <= IN_BATCH <= total:
            begins = beginning(request, demand, IN_BATCH)
            if begins in begun:
                rank[request] = np.inf
            begun.add(begins)
    line.sort(key=rank.__getitem__)
    engine.waiting = deque(line)  # equals keep the order of the last time
    return line


def _line_open(engine: EngineRequests) -> list[int]:
    """Of the requests in `_line`, those that no connector passes over."""
    line = _line(engine)
    if engine.loads.line_asks:
        line = [line[place] for place in engine.loads.open(line)]
        if (place := engine.loads.foremost()) >= 0:
            first = engine.waiting[place]
            line = [first, *(request for request in line if request != first)]
    return line
