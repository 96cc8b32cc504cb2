"""Steps of a pipeline: each is cut into micro-batches, which pass one stage after the other.

A stage computes a micro-batch as a card computes a step (`policies.memory.step`), then its
activations go over the link to the next stage, while it computes the next one. Stages and links
take micro-batches in order, one at a time, so that of m equal ones in S stages a share of
(S - 1) / (m + S - 1) is idle where each step drains the pipeline (Huang et al. 2019). Else the next
step follows as soon as its requests have their tokens: those of a micro-batch when the same
place of the batch has left the last stage (as vLLM, which has S batches in flight), and not before
the last of its prompts arrived. Memory that a step frees is there for the whole next one (assumed).

`balance: cost` has KunServe's costs: c tokens after p cost a (p c + (c^2 + c) / 2) + b c, and parts
of a step are halved until they are small. With `balance: lookahead`, which is KunServe's whole rule
(its figure 11), that which is halved is all that waits: what decodes, and each prompt in line. A
step has the first of these micro-batches that its budget has room for, and the next one is made of
what waits then (assumed, as in SJTU-IPADS/kunserve; the paper does not say how many of them begin
before they are formed again). Prefixes that may be found in memory are counted as prompts. The time
of a sampled token's way back to the first stage is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.specs.accelerator import CardLink
from hwmodel.specs.link import LinkSpec, load_link
from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.memory.step_work import mean_stage
from policies.requests.requests import FloatArray, IntArray

Count = Annotated[int, Field(ge=1)]

DEALT = 16
"""Requests that decode are dealt to micro-batches as if in turn to so many (assumed), so that old
ones, whose KV is long, are not all in one."""


class PipelineSpec(Strict):
    """How stages share a step."""

    link: str | None = None
    """Between stages: a shipped link, or a file. None: the device's own."""
    balance: Literal["tokens", "cost", "lookahead"] = "tokens"
    """Micro-batches have equal tokens, or equal costs: halves of a step, or of all that waits."""
    micro_batches: Count | None = None
    """With `tokens`; None: as many as stages."""
    least_tokens: Count = 256
    """With `cost` or `lookahead`: parts of so many tokens or fewer are not halved, where there is
    one for each stage (assumed; the paper has a minimum and no number)."""
    drains: bool = False
    """Whether all stages are through with a step before the next begins."""


class Costs(NamedTuple):
    """KunServe's: seconds a pair of tokens, and a token; what a part costs whatever it has is the
    same for all."""

    pair: float = 0.0
    token: float = 1.0

    def of(self, start: Any, tokens: Any) -> Any:
        """Of `tokens` after `start`: numbers, or int64 (n,)."""
        return self.pair * (start * tokens + (tokens * tokens + tokens) / 2) + self.token * tokens


def costs_of(steps: StepModel, tokens: int = 4096) -> Costs:
    """What prompts of some thousand tokens show of a step model."""

    def seconds(start: int, count: int) -> float:
        step = Step(np.zeros(0, np.int64), 0, [Chunk(0, start, count, False)], [], 0, "")
        return float(steps.times(step, 1, Efficiency()).total_s[0])

    half, whole_s = tokens // 2, seconds(0, tokens)
    pair = (seconds(tokens, tokens) - whole_s) / tokens**2
    pairs = (tokens**2 + tokens - half**2 - half) / 2
    token = (whole_s - seconds(0, half) - pair * pairs) / (tokens - half)
    return Costs(max(pair, 0.0), token) if token > 0 else Costs()


class TokenRow:
    """Tokens one after the other: one of each request that decodes, with so many `stored`, int64
    (n,), then those of chunks."""

    def __init__(self, stored: IntArray, chunks: Sequence[Chunk], costs: Costs) -> None:
        tokens = np.array([1] * len(stored) + [chunk.tokens for chunk in chunks], np.int64)
        self.whole = int(tokens.sum())
        self._costs = costs
        self._start = np.concatenate((stored, [chunk.start for chunk in chunks])).astype(np.int64)
        self._edges = np.concatenate(([0], np.cumsum(tokens)))
        self._passed = np.concatenate(([0.0], np.cumsum(costs.of(self._start, tokens))))

    def cost(self, at: int) -> float:
        """Of the first so many tokens."""
        item = int(np.searchsorted(self._edges, at, "right")) - 1
        inside = at - self._edges[item]
        rest = self._costs.of(self._start[item], inside) if inside else 0.0
        return float(self._passed[item] + rest)

    def middle(self, low: int, high: int) -> int:
        """Where tokens `low` to `high`, two or more, are halved by cost; each half has one."""
        half = (self.cost(low) + self.cost(high)) / 2
        return bisect_left(range(low + 1, high - 1), half, key=self.cost) + low + 1


def cuts(row: TokenRow, spec: PipelineSpec, stages: int) -> list[int]:
    """Where micro-batches of a step begin and end, in its tokens."""
    whole = row.whole
    if spec.balance == "tokens":
        many = min(spec.micro_batches or stages, whole)
        return [round(whole * part / max(many, 1)) for part in range(many + 1)]
    found, enough = [0, whole], False
    while True:
        halved = found[:1]
        for low, high in pairwise(found):
            if high - low > (spec.least_tokens if enough else 1):
                halved.append(row.middle(low, high))
            halved.append(high)
        if len(halved) == len(found):
            return found
        found, enough = halved, len(halved) > stages


def leading(row: TokenRow, spec: PipelineSpec, stages: int, most: int) -> list[int]:
    """Where the first micro-batches of all that waits begin and end, in its tokens: those that
    together have at most `most`."""
    found, parts = [0], [(0, row.whole, 1)]
    while parts:
        low, high, many = parts.pop()
        if high - low > (1 if many < stages else spec.least_tokens):
            middle = row.middle(low, high)
            parts += [(middle, high, 2 * many), (low, middle, 2 * many)]
        elif high > most:
            break
        else:
            found.append(high)
    return found


def micro_batch(step: Step, low: int, high: int, stored: IntArray) -> Step:
    """The tokens from `low` to `high` of a step (`cuts`). Migrations go with the first ones."""
    many, chunks = len(stored), []
    at = many
    for chunk in step.chunks:
        first, last = max(low - at, 0), min(high - at, chunk.tokens)
        if first < last:
            ends = chunk.last and last == chunk.tokens
            chunks.append(chunk._replace(start=chunk.start + first, tokens=last - first, last=ends))
        at += chunk.tokens
    begin, end = min(low, many), min(high, many)
    step = step.part(low, high).ordered(np.arange(begin, end))
    return step._replace(context=int(stored[low:high].sum()), chunks=chunks)


def _dealt(decode: IntArray) -> IntArray:
    """Requests that decode in the order in which micro-batches get them."""
    return decode[np.argsort(np.arange(len(decode)) % DEALT, kind="stable")]


class Exchange(NamedTuple):
    """KV on the links of a pipeline, beside activations."""

    ends_s: Sequence[Sequence[float]]
    """Of each link, when the KV of each request is over."""
    chunks: bool
    """One after each of the activations, as long as a stage computes; else they wait until that of
    a request is over, and KV for nothing."""


def flow(
    work: Sequence[Sequence[float]], sends: Sequence[float], free: Sequence[float],
    ready: Sequence[float], exchange: Exchange | None = None, now_s: float = 0.0,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """When micro-batches leave the last stage, and when stages and links are free after them.

    work: seconds of each micro-batch in each stage. sends: of each over any of the links. free: of
    stage, link, stage, ... from when on. ready: of each micro-batch. exchange: what else the links
    carry, where the step begins at `now_s`.
    """
    chunk_s = 0.0
    if exchange is not None:
        mean_s = sum(map(sum, work)) / max(sum(map(len, work)), 1)
        chunk_s = max(mean_s - max(sends, default=0.0), 0.0)
    free, ends = list(free), []
    for stages, send, at in zip(work, sends, ready, strict=True):
        for stage, seconds in enumerate(stages):
            at = free[2 * stage] = max(at, free[2 * stage]) + seconds
            if stage + 1 < len(stages):
                since = free[2 * stage + 1]
                at = max(at, since)
                ends_s = () if exchange is None else exchange.ends_s[stage]
                if exchange is not None and ends_s and at < (last := ends_s[-1] - now_s):
                    over = ends_s[bisect_left(ends_s, at + now_s)] - now_s
                    at = max(at, min(since + chunk_s, last) if exchange.chunks else over)
                at = free[2 * stage + 1] = at + send
        ends.append(at)
    return ends, free


class PipelineSteps:
    """Step times of stages, each a `StepModel`; see the module. `state_bytes`: hidden state of a
    token, of which each of `cards` that a stage has sends its share. arrival_s: of each request.
    `now_s`: when the step begins that is asked for."""

    def __init__(
        self, spec: PipelineSpec, stages: Sequence[StepModel], allocator: Allocator,
        arrival_s: FloatArray, own: CardLink | None, state_bytes: int, cards: int = 1,
    ) -> None:  # fmt: skip
        """Raises DescriptionError where there is no link."""
        self._spec, self._stages, self._allocator = spec, stages, allocator
        self._link: LinkSpec | CardLink | None = own
        if spec.link is not None:
            self._link = load_link(spec.link)
        if self._link is None:
            raise DescriptionError("stages: the device has no link; name one in pipeline.link")
        self._token_bytes = state_bytes / cards
        self._costs = Costs() if spec.balance == "tokens" else costs_of(stages[0])
        self._ahead: list[int] = []
        """Where micro-batches of the step that is scheduled begin and end, as all that waits was
        cut."""
        self.bandwidth, self.stages = stages[0].bandwidth, len(stages)
        self.pipeline = self
        self._arrival_s, self.now_s = arrival_s, 0.0
        self._free = [0.0] * (2 * len(stages) - 1)
        self._ready = [0.0]
        self._next: list[tuple[list[float], list[float], float, float, float]] = []
        self.steps, self.parts, self.seconds, self.busy_s = 0, 0, 0.0, 0.0
        self.exchange: Exchange | None = None
        self.longer: list[float] = []
        """Shares by which steps beside an exchange take longer."""
        self.link_share = 0.0
        """Of the last step, the part in which the link was busy with activations."""

    def send_s(self, tokens: int) -> float:
        """Seconds until the activations of so many tokens are at the next stage."""
        size = tokens * self._token_bytes
        if isinstance(self._link, LinkSpec):
            return self._link.seconds(round(size))
        assert self._link is not None
        return self._link.exchange_s(size)

    @property
    def looks_ahead(self) -> bool:
        """Whether `ahead` says how much a step prefills."""
        return self._spec.balance == "lookahead"

    def ahead(self, decode: IntArray, queued: Sequence[Chunk], left: int) -> int:
        """Tokens that the next step prefills of what waits, `left` at most, beside these requests
        that decode."""
        stored = np.maximum(self._allocator.stored[_dealt(decode)] - 1, 0)
        row = TokenRow(stored, queued, self._costs)
        edges = leading(row, self._spec, self.stages, len(decode) + left)
        # where decodes alone fill the budget prompts would wait for ever
        self._ahead = edges if queued and edges[-1] > len(decode) else []
        return self._ahead[-1] - len(decode) if self._ahead else left

    def _cuts(self, stored: IntArray, chunks: Sequence[Chunk]) -> list[int]:
        """`cuts` of a step, or of all that waited if it was made so. It may have less than was
        foreseen, where memory lacked."""
        row = TokenRow(stored, chunks, self._costs)
        if self._ahead and chunks:
            edges = [*(edge for edge in self._ahead if edge < row.whole), row.whole]
            if len(edges) > self.stages:
                return edges
        return cuts(row, self._spec, self.stages)

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """See `StepTimer.times`. Phases and work are those of the mean stage, all micro-batches
        together; for the rest of a step it waits."""
        step = step.ordered(_dealt(np.arange(len(step.decode))))
        stored = step.lengths if step.drafts else self._allocator.stored[step.decode] - 1
        assert stored is not None
        edges = self._cuts(stored, step.chunks)
        parts = [micro_batch(step, *ends, stored) for ends in pairwise(edges)] or [step]
        rows = [[stage.times(each, rounds, efficiency) for stage in self._stages] for each in parts]
        sends = [self.send_s(part.batched) for part in parts]
        work = np.array([[times.total_s for times in row] for row in rows])
        total = self._run(parts, work, sends)
        flat, many = [times for row in rows for times in row], len(self._stages)
        sums: dict[str, Any] = {}
        for name in set(StepTimes._fields) - {"stall_s", "work"}:
            sums[name] = sum((getattr(times, name) for times in flat), 0) / many
        done = mean_stage([times.work for times in flat], many)
        waits: FloatArray = total - sums["total_s"]
        self.link_share = min(sum(sends) / float(total[0]), 0.9)
        return StepTimes(**{**sums, "total_s": total, "stall_s": waits, "work": done})

    def _run(self, parts: list[Step], work: Any, sends: list[float]) -> FloatArray:
        """Seconds of each step; work: (parts, stages, rounds)."""
        free, before, drains = self._free, self._ready, self._spec.drains
        many, rounds = len(parts), work.shape[2]
        ready = [before[-(-(place + 1) * len(before) // many) - 1] for place in range(many)]
        for place, part in enumerate(parts):
            came = max((self._arrival_s[c.request] for c in part.chunks), default=-np.inf)
            ready[place] = max(ready[place], min(float(came) - self.now_s, 0.0))
        self._next, busy = [], work.sum(axis=(0, 1))
        total, passed_s = np.empty(rounds), self.now_s
        for turn in range(rounds):
            beside = self.exchange
            if beside and not any(ends and ends[-1] > passed_s for ends in beside.ends_s):
                beside = None
            if drains:
                free, ready = [0.0] * len(free), [0.0] * many
            each, begun = work[:, :, turn].tolist(), free
            ends, free = flow(each, sends, begun, ready, beside, passed_s)
            total[turn] = last = ends[-1]
            alone_s = 0.0 if beside is None else flow(each, sends, begun, ready)[0][-1]
            passed_s += last
            free, ready = [at - last for at in free], [at - last for at in ends]
            self._next.append((free, ready, last, float(busy[turn]), alone_s))
        return total

    def passed(self, rounds: int) -> None:
        """So many of the steps that `times` was last asked for are done."""
        self._free, self._ready = self._next[rounds - 1][:2]
        self._ahead = []
        self.steps += rounds
        self.parts += rounds * len(self._ready)
        self.seconds += sum(each[2] for each in self._next[:rounds])
        self.longer += [each[2] / each[4] - 1 for each in self._next[:rounds] if each[4]]
        self.busy_s += sum(each[3] for each in self._next[:rounds]) / len(self._stages)

    def figures(self) -> dict[str, float]:
        """Stages, micro-batches a step, and the share of the steps in which a stage is idle."""
        return {
            "stages": len(self._stages),
            "micro_batches": self.parts / max(self.steps, 1),
            "idle_share": 1 - self.busy_s / self.seconds if self.seconds else 0.0,
        }
