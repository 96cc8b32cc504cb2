"""What the engines share: a scheduler of running and waiting requests, called once a step. A
request is one sequence: several answers to a prompt are as many requests (`Requests.apart`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Batches, Migration
from policies.allocators.columns import count_down, least_of, sum_of
from policies.engines.admission import Admission
from policies.engines.connector import NONE
from policies.engines.engine_progress import Progress
from policies.engines.engine_requests import Offered
from policies.engines.scheduled_step import Chunk, Step, SwapCopies
from policies.requests.requests import IntArray


class Engine(Admission):
    """Requests that wait and run, step by step."""

    aligns_chunks: ClassVar[bool] = False
    """Whether chunks of prompts can end at the ends of blocks, where states are kept."""

    def __init__(self, spec: Any, allocator: Allocator, offered: Offered) -> None:
        super().__init__(spec, allocator, offered)
        self.budget = self._token_budget()
        """Tokens a step may compute."""
        self.preemptions = 0
        self._windowed = allocator.layout.groups is not None
        self._uneven = self._windowed or allocator.layout.sparse is not None
        self._late = False  # the next step is scheduled before it is known which requests ended
        self._progress = Progress(self._cap)
        self._soonest, self._soonest_of = 0, self.running  # the least `left` of those that run
        if self._state_block and not self.aligns_chunks:
            raise DescriptionError(
                f"policy.state_caching: engine {spec.name} ends chunks anywhere, where no state is "
                "kept; expected engine v1, or none"
            )

    def waits_for(self, request: int) -> str | None:
        """What a preempted request is here for: `recompute` or `swap`; None: it is not here."""
        line = request in self.waiting or request in self.loading
        return "recompute" if line else None

    @property
    def busy(self) -> bool:
        """Whether a request has arrived and has not ended, and something can be done about it."""
        own = len(self.running) > 0 or self._unfinished
        return self._has_work(own) if self.connectors else own

    @property
    def _unfinished(self) -> bool:
        """Whether a request that does not run could be scheduled."""
        return bool(self._back or self._decodes or (self.waits and not self.stuck))

    def _has_work(self, own: bool) -> bool:
        """`busy`, with what its connectors say."""
        for connector in self.connectors:
            own = connector.busy(own)
        return own

    def here(self, request: int) -> int:
        """How many tokens of a request that is not here are in memory now, so that it would not
        compute them."""
        if self._caching is None:
            return 0
        limit = self._findable(request, self.total(request))
        return self._caching.cached(request, limit, self._demanded(request))

    def admits_arrivals(self, step: Step) -> bool:
        """Whether a request that arrives in a step like this could be admitted to the next one."""
        overtakes = step.limit == "batching" or self.spec.packing != "arrival"
        return overtakes or not self.waiting or self.holding  # others may be passed over

    def schedule(self) -> Step:
        """Choose the requests of the next step and reserve its slots."""
        for connector in self.connectors:
            connector.begins()
        step = self._schedule()
        for connector in self.connectors:
            if step.empty and connector.gives_way():
                step = self._schedule()
        for connector in self.connectors:
            step = connector.scheduled(step)
        return step

    @abstractmethod
    def _schedule(self) -> Step:
        """As `schedule`, of the scheduler alone."""

    def rounds(self, step: Step, limit: int) -> int:
        """How many steps, this one included and up to `limit`, are the same if no request
        arrives."""
        for connector in self.connectors:
            limit = connector.rounds(step, limit)
        if limit == 1 or not step.repeats or self._partial or self._relenting or self.ending:
            return 1
        if self._windowed or self.drafts is not None:
            return 1  # what a step reads and holds is not linear in its length
        least = self._soonest
        if step.decode is not self._soonest_of:
            least = least_of(self.left, step.decode)
        return 1 + self.allocator.headroom(step.decode, min(limit, least) - 1)

    def repeat(self, step: Step, rounds: int) -> None:
        """Reserve the slots of `rounds` further steps like `step`."""
        if rounds:
            self.allocator.advance(step.decode, rounds)

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        """The steps are done: (requests whose prefill made an output token, requests that
        ended)."""
        if self._migrating is not None:
            self._migrating.settle()
        if self.drafts is not None:
            self.drafts.seen(step)
        late, left = self.ending, self.left
        prefilled = [chunk.request for chunk in step.chunks if chunk.last] if step.chunks else []
        ended: list[int] = []
        if self.drafts is None and not late:
            for request in prefilled:
                left[request] -= 1
            running = self.running
            least = count_down(left, step.decode, rounds, running)
        else:
            if late:
                self.retire()
            left[step.decode] -= rounds if self.drafts is None else self.drafts.tokens[step.decode]
            left[late] = 0
            left[prefilled] -= 1
            running = self.running
            least = least_of(left, running)
        if not least:
            done = left[running] == 0
            ended = running[done].tolist()
            self.ending = ended
            if not self._late:
                self.running = running[~done]
                least = least_of(left, self.running)
                self.retire()
        self._soonest, self._soonest_of = least, self.running
        if self.drafts is not None:
            self.drafts.completed(step, prefilled, ended, self._late)
        if self.connectors:
            ended = self._tell_stepped(step, prefilled, ended)
        return prefilled, ended

    def retire(self) -> None:
        """Take back the memory of the requests that have ended."""
        ended, self.ending = self.ending, []
        if ended:
            if self._late:
                self.running = self.running[self.left[self.running] > 0]
            self._free(ended)

    def drain(self) -> list[int]:
        """Requests that have not ended, in the order of the line; it has none of them any more."""
        if self._migrating is not None:  # with the step that was lost
            self._migrating.settle()
        self.retire()
        begin_again = [request for each in self.connectors for request in each.drained()]
        self.lose()
        return begin_again + self.leave_line()

    def leave_line(self) -> list[int]:
        """Requests that wait, in order; it has none of them any more."""
        gone = list(self.waiting)
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

    def rows_of(self, step: Step) -> IntArray:
        """Rows that each decoding request computes, int64 (n,)."""
        if self.drafts is None:
            return np.ones(len(step.decode), np.int64)
        return self.drafts.rows[step.decode]

    def _rows(self, decode: IntArray) -> int:
        """Tokens of the budget that these take to decode."""
        if self.drafts is None:
            return len(decode)
        return int(self.drafts.rows[decode].sum())

    def _release(self, request: int) -> int:
        if (given := self._leave(request)) is None:
            return super()._release(request)
        self._forgets.discard(request)
        self._unsure.pop(request, None)
        return given + self._release_known(request, 0)

    def _leave(self, request: int) -> int | None:
        """Tokens that a request gives back elsewhere; None: it has nothing there."""
        given = [connector.leave(request) for connector in self.connectors]
        return next((each for each in given if each is not None), None)

    def _grow(self, request: int, tokens: int) -> bool:
        """Reserve the slots of the next tokens of a prefill; False if there is no room."""
        for connector in self.connectors:
            if (done := connector.grow(request, tokens)) is not None:
                return done
        return self.allocator.grow(request, tokens)

    def _was_preempted(self, request: int) -> None:
        self.reserved_ever[request] = 0
        self._count_preemption(request)

    def join(self, request: int) -> None:
        """A request that has its memory, with its prompt computed, runs here from now on; its KV
        was computed elsewhere."""
        for connector in self.connectors:
            connector.joined(request)
        at = len(self.running) - self._partial  # one in its prefill stays the last
        self.running = np.insert(self.running, at, request)
        self.changes += 1

    def give_back(self, request: int) -> None:
        """The memory of a request that does not run is free; it runs elsewhere, or begins again."""
        self._tell_preempted(request)
        self._release(request)
        self.changes += 1

    def _decode(self) -> tuple[IntArray, list[Migration]]:
        """Reserve one more token for every decoding request, or all that it verifies."""
        if self.drafts is not None:
            return self._decode_one_by_one(
                self.drafts.plan(self._decoding(), self.left, self.budget)
            )
        if self._batching is not None:
            return self._retract(self._batching), []
        decode = self._decoding()
        if self.allocator.headroom(decode, 1):
            self.allocator.advance(decode, 1)
            return decode, []
        return self._decode_one_by_one(decode)

    def _decode_one_by_one(self, decode: IntArray) -> tuple[IntArray, list[Migration]]:
        """As `_decode` when a request has no free slot: migrate it, or preempt one."""
        running, grown = self.running, list[IntArray]()
        partial = int(running[-1]) if self._partial else -1
        migrations: list[Migration] = []
        while len(decode):
            if fitting := self._grow_those_that_fit(decode):
                grown.append(decode[:fitting])
                decode = decode[fitting:]
                continue
            request = int(decode[0])
            if self._migrating is not None and (moved := self._migrating.migrate(request)):
                migrations.append(moved)
                self.reserved_ever[request] += moved.left
                continue
            victim = int(running[-1]) if self.allocator.preempts == "last" else request
            running, decode = running[running != victim], decode[decode != victim]
            self._preempt(victim)
        self._partial = partial >= 0 and partial in running
        self.running = running
        return np.concatenate(grown) if grown else NONE, migrations

    def _retract(self, batching: Batches) -> IntArray:
        """Preempt the last ones until the others have room for a token; those."""
        while len(decode := self._decoding()) and not self.allocator.headroom(decode, 1):
            victim, self._partial = int(self.running[-1]), False
            self.running = self.running[:-1]
            self._preempt(victim)
        if len(decode):
            batching.advance_later(decode)
        return decode

    def _grow_those_that_fit(self, decode: IntArray) -> int:
        """Reserve a token for as many of the first of `decode` as have room; how many."""
        if self.drafts is not None:
            return self.drafts.store(decode)
        if fitting := self.allocator.growing(decode):
            self.allocator.advance(decode[:fitting], 1)
        elif self._windowed and self._on_demand is not None:
            self.allocator.grow(int(decode[0]), 1)  # in vain, but windows give up old blocks
        return fitting

    def _step(
        self, decode: IntArray, chunks: list[Chunk], migrations: list[Migration], preempted: int,
        limit: str, swaps: SwapCopies | None = None,
    ) -> Step:  # fmt: skip
        """The scheduled step; every decoding request has room for its next tokens."""
        if self._batching is not None:
            self._batching.settle_step()
        if self._contiguous is not None and (moves := self._contiguous.moves()):
            migrations = [*migrations, *moves]
        self.changes += len(chunks) + len(migrations) + preempted + (swaps is not None)
        context = sum_of(self.allocator.stored, decode) - len(decode)
        lengths = self.allocator.stored[decode] - 1 if self._uneven else None
        step = Step(
            decode, context, chunks, migrations, preempted, limit, self._cached_tokens, lengths,
            swaps=swaps,
        )  # fmt: skip
        if self.drafts is not None:
            step = self.drafts.verify(step)
        if self._copying is None or step.empty or not (copies := self._copying.copies()):
            return step
        self.changes += 1
        return step._replace(copies=tuple(copies))

    def _token_budget(self) -> int:
        """Tokens a step may compute."""
        return int(self.spec.token_budget(self.allocator.limits.max_model_len))

    def _count_preemption(self, request: int) -> None:
        """A request is preempted. Raises DescriptionError as `Progress.preempted` says."""
        self.preemptions += 1
        if (what := self._progress.preempted(request, self.left)) is not None:
            raise self._stuck(what)

    def idle_step(self) -> None:
        """Nothing was scheduled though requests run or wait. Raises DescriptionError as
        `Progress.idle` says."""
        if (what := self._progress.idle(self.left)) is not None:
            there = f"{len(self.running)} requests run, {len(self.waiting)} wait"
            raise self._stuck(f"{what}, while {there}")

    def _stuck(self, what: str) -> DescriptionError:
        policy = self.allocator.options.name
        return DescriptionError(f"{what} (policy {policy}, engine {self.spec.name})")
