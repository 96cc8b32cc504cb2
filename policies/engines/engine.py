"""The scheduler: what engines share, and vLLM's v1 engine; one call a step.

Running requests come first, one token each; what is left of the token budget prefills waiting
requests in order of arrival, in chunks. The head of the line blocks those behind it. A request that
cannot get a block preempts the last running one by recompute, which goes to the front of the line;
nothing is admitted in a step that preempted (vllm/v1/core/sched/scheduler.py). A request is
admitted when all of its input fits, or, as earlier versions have it, when its next chunk does; the
latter admits long prompts that preempt themselves again and again (`admit_on`).

A request with several samples is one request throughout: its prompt is prefilled once, and each of
its decode steps makes a token of every sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Strict
from policies.allocators.allocator import Allocator, Demand, Migration
from policies.predictors.prediction import Predictions
from policies.requests.requests import FloatArray, IntArray, Requests

Count = Annotated[int, Field(ge=1)]

LIMITS = ("kv_memory", "sequence_cap", "token_budget", "offered_load", "batching")
"""What can keep a step from doing more."""


class EngineOptions(Strict):
    """Options that every engine has; `name` tells them apart."""

    name: str
    max_num_seqs: Count = 256
    """Sequences that may run at once; each sample of a request is one."""
    max_tokens: Count | None = None
    """Outputs end here. None: the longest output of the workload (assumed: a well-informed
    operator)."""
    max_model_len: Count | None = None
    """Longest prompt + output. None: the model's."""
    batching: Literal["any", "same_tag"] = "any"
    """Who is admitted together: anybody, or those alone whose tag (`Allocator.tag`) is that of the
    batch, who overtake the others. A batch is the prefill step in v0; in v1 what is admitted until
    nothing runs. The head of the line is overtaken `max_num_seqs` times at most (assumed)."""
    packing: Literal["arrival", "decreasing_first_fit"] = "arrival"
    """Who is admitted next: the head of the line, or the longest prediction among the first
    `packing_window` for which there is room (S3's batches; Jin et al. 2023). The head of the line
    is overtaken `max_num_seqs` times at most (assumed)."""
    packing_window: Count = 64
    """How far down the line packing looks (assumed)."""
    too_long: Literal["error", "drop"] = "error"
    """What happens to requests that can never fit (assumed)."""

    @model_validator(mode="after")
    def _one_order_of_the_line(self) -> EngineOptions:
        if self.packing != "arrival" and self.batching != "any":
            raise ValueError("packing: only with batching: any")
        return self


class EngineSpec(EngineOptions):
    """Options of v1; vLLM's defaults."""

    name: Literal["v1"] = "v1"
    max_num_batched_tokens: Count = 2048
    """Tokens a step may compute."""
    admit_on: Literal["input", "chunk"] = "input"
    """What must fit for a request to be admitted: all its tokens to prefill (vLLM's
    `scheduler_reserve_full_isl`, on by default), or the chunk of this step (before that)."""

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
    samples: int = 1
    """Of the request: an output token of each follows."""


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
    """Tokens that requests found in memory as they were admitted, and need not prefill."""
    further: int = 0
    """Samples of the decoding requests beyond the first of each."""
    common: int = 0
    """Tokens of `context` that those attend to as well: their prompts."""
    swapped: int = 0
    """Tokens copied to host memory, or back from it."""
    copies: tuple[Migration, ...] = ()
    """Copies on write."""

    @property
    def tokens(self) -> int:
        """Tokens that are decoded: one of each sample."""
        return len(self.decode) + self.further

    @property
    def copied(self) -> int:
        """Tokens copied on write."""
        return sum(copy.tokens for copy in self.copies)

    @property
    def repeats(self) -> bool:
        """Whether the next step is alike, as long as nobody arrives, ends or lacks room."""
        moved = self.migrations or self.preempted or self.copies or self.swapped
        return not self.chunks and not moved


class Engine:
    """Who waits and who runs, as v1 decides it. `left[i]`: output tokens that each sample of
    request i must still produce."""

    def __init__(
        self,
        spec: Any,
        allocator: Allocator,
        requests: Requests,
        output_tokens: IntArray,
        predicted: Predictions,
    ) -> None:
        self.spec = spec
        self.allocator = allocator
        self.budget = self._token_budget()
        """Tokens a step may compute."""
        self.prompt = requests.prompt_tokens
        self.output = output_tokens
        self.samples = requests.samples
        self.left = output_tokens.copy()
        self.waiting: deque[int] = deque()
        self.running: IntArray = np.zeros(0, np.int64)
        self.reserved_ever = np.zeros(len(requests), np.int64)
        """Slots of the last residence of each request, with those of places it moved out of."""
        self.run_tokens: FloatArray = np.full(len(requests), np.nan)
        """Mean tokens of a physically contiguous run of each request as it ended."""
        self.preemptions = 0
        self.changes = 0
        """Counts admissions, ends, preemptions and moves: who runs where is the same while it
        stands."""
        self._requests = requests
        self._several = bool((requests.samples > 1).any())
        self._predicted = predicted
        self._partial = False  # the last running request is still in its prefill
        self._cached = 0  # of the step being scheduled
        self._relenting = False  # who was refused may be admitted without anybody leaving
        self._tag = 0  # of the batch
        self._overtaken = 0  # how often the head of the line was

    @property
    def waits(self) -> bool:
        """Whether anybody has arrived who does not run."""
        return bool(self.waiting)

    @property
    def busy(self) -> bool:
        """Whether anybody has arrived who has not ended."""
        return self.waits or len(self.running) > 0

    def admits_arrivals(self, step: Step) -> bool:
        """Whether somebody who arrives in a step like this could be admitted to the next one."""
        overtakes = step.limit == "batching" or self.spec.packing != "arrival"
        return overtakes or not self.waiting

    def schedule(self) -> Step:
        """Give the next step its requests and their memory."""
        before = self.preemptions
        self._cached, self._relenting = 0, False
        decode, migrations = self._decode()
        budget = self.budget - self._sequences(decode)
        chunks: list[Chunk] = []
        if self._partial and budget:
            budget -= self._continue(chunks, budget)
        limit = "kv_memory"
        if self.preemptions == before:
            limit = self._admit(chunks, budget)
        return self._step(decode, chunks, migrations, self.preemptions - before, limit)

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

    def _token_budget(self) -> int:
        budget: int = self.spec.max_num_batched_tokens
        return budget

    def _step(
        self, decode: IntArray, chunks: list[Chunk], migrations: list[Migration], preempted: int,
        limit: str, swapped: int = 0,
    ) -> Step:  # fmt: skip
        """The step that was scheduled; every decoding request has room for its next tokens."""
        self.changes += len(chunks) + len(migrations) + preempted + (swapped > 0)
        context = int(self.allocator.stored[decode].sum()) - self._sequences(decode)
        step = Step(
            decode, context, chunks, migrations, preempted, limit, self._cached, swapped=swapped
        )
        if not self._several:
            return step
        others = self.samples[decode] - 1
        return step._replace(
            further=int(others.sum()),
            common=int(others @ self.prompt[decode]),
            copies=tuple(self.allocator.copies()),
        )

    def _sequences(self, requests: IntArray) -> int:
        """Samples of `requests`, together."""
        return int(self.samples[requests].sum()) if self._several else len(requests)

    def _total(self, request: int) -> int:
        """Tokens to prefill: the prompt, and what was generated before a preemption."""
        generated = self.output[request] - self.left[request]
        return int(self.prompt[request] + self.samples[request] * generated)

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
        chunks.append(Chunk(request, start, tokens, not self._partial, int(self.samples[request])))
        return tokens

    def _admit(self, chunks: list[Chunk], budget: int) -> str:
        """Admit from the head of the line; what ended it."""
        admitted: list[int] = []
        sequences = self._sequences(self.running)
        limit = "offered_load"
        while self.waiting:
            limit = "batching"
            for place in self._candidates(bool(admitted)):
                request = self.waiting[place]
                limit, chunk = self._try(request, sequences, budget)
                if chunk is not None:
                    del self.waiting[place]
                    self._overtaken = self._overtaken + 1 if place else 0
                    admitted.append(request)
                    chunks.append(chunk)
                    sequences += chunk.samples
                    budget -= chunk.tokens
                    break
                if limit == "kv_memory" and not len(self.running) and not admitted:
                    raise self._never_fits(request)
            if limit != "offered_load":
                break
        if admitted:
            self.running = np.concatenate((self.running, np.array(admitted, np.int64)))
        return limit

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        """Admit a request if it can be: its first chunk, or what it lacks and None."""
        samples = int(self.samples[request])
        if sequences + samples > self.spec.max_num_seqs:
            return "sequence_cap", None
        if not budget or self._partial:
            return "token_budget", None
        total, demand = self._total(request), self._demand(request)
        cached = self.allocator.cached(request, self._findable(request, total), demand)
        tokens = self._first_chunk(total - cached, budget)
        if not tokens:
            return "token_budget", None
        if not self._reserve(request, demand, total, cached, budget):
            return "kv_memory", None
        self._cached += cached
        self._partial = cached + tokens < total
        return "offered_load", Chunk(request, cached, tokens, not self._partial, samples)

    def _candidates(self, begun: bool) -> Iterable[int]:
        """Places in line of those that may be admitted next, to be tried in this order. `begun`:
        somebody was admitted in this step."""
        if self.spec.packing == "decreasing_first_fit":
            reach = 1 if self._overtaken >= self.spec.max_num_seqs else self.spec.packing_window
            line = list(islice(self.waiting, reach))
            return sorted(range(len(line)), key=lambda place: -self._predicted.length[line[place]])
        if self.spec.batching == "any":
            return (0,)
        place = self._place_in_line(begun)
        return () if place < 0 else (place,)

    def _findable(self, request: int, total: int) -> int:
        """How many of a request's first `total` tokens may be in memory: the last one is always
        computed, since the next follows from it."""
        return total - 1

    def _first_chunk(self, rest: int, budget: int) -> int:
        """How many of the `rest` of a request's tokens its first step computes; 0: it waits."""
        return min(rest, budget)

    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        """Room for the first chunk of a request that found `cached` of its `total` tokens."""
        whole = self.spec.admit_on == "input"
        stored = cached + self._first_chunk(total - cached, budget)
        fits = not whole or self.allocator.fits(total, request, demand)
        if fits and self.allocator.reserve(request, demand, stored):
            return True
        # it asks for less when all it left is lost and a chunk is not the whole rest
        ordered = self.allocator.loses_ends_first
        self._relenting |= not whole and cached > 0 and total > budget and not ordered
        return False

    def _place_in_line(self, begun: bool) -> int:
        """Place of the first one in line with the batch's tag, -1 if there is none. `begun`:
        somebody was admitted in this step."""
        if not self._has_batch(begun):
            self._tag = self._tag_of(self.waiting[0])
        reach = self.spec.max_num_seqs - self._overtaken + 1
        line = enumerate(islice(self.waiting, reach))
        return next((at for at, request in line if self._tag_of(request) == self._tag), -1)

    def _has_batch(self, begun: bool) -> bool:
        """Whether there is a batch already, which those admitted join."""
        return begun or len(self.running) > 0

    def _tag_of(self, request: int) -> int:
        return self.allocator.tag(request, self._demand(request))

    def _demand(self, request: int) -> Demand:
        own, output = self._requests, int(self.output[request])
        return Demand(
            int(self.prompt[request]),
            output - int(self.left[request]),
            self._predicted[request],
            int(own.prefix_id[request]),
            int(own.prefix_tokens[request]),
            int(self.samples[request]),
            output,
        )

    def _never_fits(self, request: int) -> DescriptionError:
        return DescriptionError(
            f"request {request} ({self.prompt[request]} prompt + {self.output[request]} output "
            f"tokens) does not fit the empty device's {self.allocator.slots} token slots"
        )
