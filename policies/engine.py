"""The scheduler: vLLM's v1 engine, one call a step.

Running requests come first, one token each; what is left of the token budget prefills waiting
requests in order of arrival, in chunks. The head of the line blocks those behind it. A request that
cannot get a block preempts the last running one by recompute, which goes to the front of the line;
nothing is admitted in a step that preempted (vllm/v1/core/sched/scheduler.py). A request is
admitted when all of its input fits, or, as earlier versions have it, when its next chunk does; the
latter admits long prompts that preempt themselves again and again (`admit_on`).
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description import DescriptionError, Strict
from policies.allocator import Allocator, Demand, Migration
from policies.predictor import Prediction
from policies.requests import FloatArray, IntArray

Count = Annotated[int, Field(ge=1)]

LIMITS = ("kv_memory", "sequence_cap", "token_budget", "offered_load")
"""What can keep a step from doing more."""


class EngineSpec(Strict):
    """Options of the scheduler; vLLM's defaults."""

    name: Literal["v1"] = "v1"
    max_num_batched_tokens: Count = 2048
    """Tokens a step may compute."""
    max_num_seqs: Count = 256
    """Requests that may run at once."""
    max_tokens: Count | None = None
    """Outputs end here. None: the longest output of the workload (assumed: a well-informed
    operator)."""
    max_model_len: Count | None = None
    """Longest prompt + output. None: the model's."""
    admit_on: Literal["input", "chunk"] = "input"
    """What must fit for a request to be admitted: all its tokens to prefill (vLLM's
    `scheduler_reserve_full_isl`, on by default), or the chunk of this step (before that)."""
    too_long: Literal["error", "drop"] = "error"
    """What happens to requests that can never fit (assumed)."""

    @model_validator(mode="after")
    def _budget_covers_running(self) -> EngineSpec:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")
        return self


class Chunk(NamedTuple):
    """Part of a prefill: `tokens` after the `start` that are stored already."""

    request: int
    start: int
    tokens: int
    last: bool
    """Whether it ends the prefill, so that an output token follows."""


class Step(NamedTuple):
    """One scheduled step; places in memory are already given."""

    decode: IntArray
    """Requests that decode one token, in running order."""
    context: int
    """Tokens they had stored before."""
    chunks: list[Chunk]
    migrations: list[Migration]
    preempted: int
    limit: str
    """Which of LIMITS kept the step from doing more."""
    cached: int = 0
    """Tokens that requests admitted again found in memory, and need not prefill."""

    @property
    def repeats(self) -> bool:
        """Whether the next step is alike, as long as nobody arrives, ends or lacks room."""
        return not self.chunks and not self.migrations and not self.preempted


class Engine:
    """Who waits and who runs. `left[i]`: output tokens request i must still produce."""

    def __init__(
        self,
        spec: EngineSpec,
        allocator: Allocator,
        prompt_tokens: IntArray,
        output_tokens: IntArray,
        predicted: FloatArray,
        sigma: float,
    ) -> None:
        self.spec = spec
        self.allocator = allocator
        self.prompt = prompt_tokens
        self.output = output_tokens
        self.left = output_tokens.copy()
        self.waiting: deque[int] = deque()
        self.running: IntArray = np.zeros(0, np.int64)
        self.reserved_ever = np.zeros(len(prompt_tokens), np.int64)
        """Slots of the last residence of each request, with those of places it moved out of."""
        self.run_tokens: FloatArray = np.full(len(prompt_tokens), np.nan)
        """Mean tokens of a physically contiguous run of each request as it ended."""
        self.preemptions = 0
        self.changes = 0
        """Counts admissions, ends, preemptions and moves: who runs where is the same while it
        stands."""
        self._predicted = predicted
        self._sigma = sigma
        self._partial = False  # the last running request is still in its prefill
        self._cached = 0  # of the step being scheduled
        self._relenting = False  # who was refused may be admitted without anybody leaving

    def schedule(self) -> Step:
        """Give the next step its requests and their memory."""
        before = self.preemptions
        self._cached, self._relenting = 0, False
        decode, migrations = self._decode()
        context = int(self.allocator.stored[decode].sum()) - len(decode)
        budget = self.spec.max_num_batched_tokens - len(decode)
        chunks: list[Chunk] = []
        if self._partial and budget:
            budget -= self._continue(chunks, budget)
        limit = "kv_memory"
        if self.preemptions == before:
            limit = self._admit(chunks, budget)
        preempted = self.preemptions - before
        self.changes += len(chunks) + len(migrations) + preempted
        return Step(decode, context, chunks, migrations, preempted, limit, self._cached)

    def rounds(self, step: Step, limit: int) -> int:
        """How many steps, this one included and up to `limit`, are alike while nobody arrives."""
        if limit == 1 or not step.repeats or self._partial or self._relenting:
            return 1
        limit = min(limit, int(self.left[step.decode].min()))
        return 1 + self.allocator.headroom(step.decode, limit - 1)

    def repeat(self, step: Step, rounds: int) -> None:
        """Give `rounds` further steps like `step` their memory."""
        if rounds:
            self.allocator.advance(step.decode, rounds)

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        """The steps are done: (requests that made an output token of a prefill, requests that
        ended)."""
        self.allocator.settle()
        self.left[step.decode] -= rounds
        prefilled = [chunk.request for chunk in step.chunks if chunk.last]
        if prefilled:
            self.left[prefilled] -= 1
        done = self.left[self.running] == 0
        ended: list[int] = []
        if done.any():
            ended = self.running[done].tolist()
            self.running = self.running[~done]
            for request in ended:
                runs = self.allocator.extent_count(np.array([request]))
                self.run_tokens[request] = self.allocator.stored[request] / runs
                self.reserved_ever[request] += self.allocator.release(request)
                self.allocator.finished(
                    request, int(self.prompt[request]), int(self.output[request])
                )
            self.changes += len(ended)
        return prefilled, ended

    def _decode(self) -> tuple[IntArray, list[Migration]]:
        """One more token of room for every decoding request."""
        decode = self.running[:-1] if self._partial else self.running
        if self.allocator.headroom(decode, 1):
            self.allocator.advance(decode, 1)
            return decode, []
        return self._decode_one_by_one()

    def _decode_one_by_one(self) -> tuple[IntArray, list[Migration]]:
        """As `_decode` where somebody lacks room: he moves, or a request is preempted."""
        running: list[int] = self.running.tolist()
        partial = running[-1] if self._partial else -1
        decode: list[int] = []
        migrations: list[Migration] = []
        at = 0
        while at < len(running) and (request := running[at]) != partial:
            if fitting := self._grow_those_that_fit(running[at:], partial):
                decode += running[at : at + fitting]
                at += fitting
            elif moved := self.allocator.migrate(request):
                migrations.append(moved)
                self.reserved_ever[request] += moved.left
            else:
                victim = running[-1] if self.allocator.preempts == "last" else request
                running.remove(victim)
                self._preempt(victim)
        self._partial = partial >= 0 and partial in running
        self.running = np.array(running, np.int64)
        return np.array(decode, np.int64), migrations

    def _grow_those_that_fit(self, running: list[int], partial: int) -> int:
        """A token for the first ones of `running`, as many as there is room for; how many."""
        decode = np.array(running[:-1] if running[-1] == partial else running, np.int64)
        low, high = 0, len(decode)
        while low < high:
            middle = (low + high + 1) // 2
            if self.allocator.headroom(decode[:middle], 1):
                low = middle
            else:
                high = middle - 1
        if low:
            self.allocator.advance(decode[:low], 1)
        return low

    def _preempt(self, request: int) -> None:
        self.allocator.release(request)
        self.reserved_ever[request] = 0
        self.waiting.appendleft(request)
        self.preemptions += 1

    def _total(self, request: int) -> int:
        """Tokens to prefill: the prompt, and what was generated before a preemption."""
        return int(self.prompt[request] + self.output[request] - self.left[request])

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of the prefill under way; its tokens."""
        request = int(self.running[-1])
        start, total = int(self.allocator.stored[request]), self._total(request)
        tokens = min(total - start, budget)
        if not self.allocator.grow(request, tokens):  # it is the last running: it preempts itself
            self.running = self.running[:-1]
            self._partial = False
            self._preempt(request)
            return 0
        self._partial = start + tokens < total
        chunks.append(Chunk(request, start, tokens, not self._partial))
        return tokens

    def _admit(self, chunks: list[Chunk], budget: int) -> str:
        """Admit from the head of the line; what ended it."""
        admitted: list[int] = []
        limit = "offered_load"
        while self.waiting:
            if len(self.running) + len(admitted) >= self.spec.max_num_seqs:
                limit = "sequence_cap"
                break
            if not budget or self._partial:
                limit = "token_budget"
                break
            request = self.waiting[0]
            total, demand = self._total(request), self._demand(request)
            # the last token is always computed: the next one follows from it
            cached = self.allocator.cached(request, total - 1, demand)
            tokens = min(total - cached, budget)
            whole = self.spec.admit_on == "input"
            fits = not whole or self.allocator.fits(total, request, demand)
            if not fits or not self.allocator.reserve(request, demand, cached + tokens):
                limit = "kv_memory"
                # it asks for less when all it left is lost and a chunk is not the whole rest
                ordered = self.allocator.loses_ends_first
                self._relenting = not whole and cached > 0 and total > budget and not ordered
                if not len(self.running) and not admitted:
                    raise self._never_fits(request)
                break
            self.waiting.popleft()
            admitted.append(request)
            budget -= tokens
            self._cached += cached
            self._partial = cached + tokens < total
            chunks.append(Chunk(request, cached, tokens, not self._partial))
        if admitted:
            self.running = np.concatenate((self.running, np.array(admitted, np.int64)))
        return limit

    def _demand(self, request: int) -> Demand:
        generated = int(self.output[request] - self.left[request])
        prediction = Prediction(float(self._predicted[request]), self._sigma)
        return Demand(
            int(self.prompt[request]), generated, prediction, output=int(self.output[request])
        )

    def _never_fits(self, request: int) -> DescriptionError:
        return DescriptionError(
            f"request {request} ({self.prompt[request]} prompt + {self.output[request]} output "
            f"tokens) does not fit the empty device's {self.allocator.slots} token slots"
        )
