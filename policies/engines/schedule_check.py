"""Schedules of the real vLLM v1 scheduler, and ours on the same requests, step for step."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Limits, Lookahead
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.engines.engine import Engine
from policies.engines.engine_requests import Offered
from policies.engines.engine_v1 import EngineV1
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.schedule_cases import LARGEST, ScheduleCase, Scheduled, Tables, version_of
from policies.engines.speculation import SpeculationSpec
from policies.engines.verifier import Verifier
from policies.engines.vllm_version import VERSIONS
from policies.predictors.prediction import LognormalPredictions
from policies.requests.requests import IntArray


class Difference(NamedTuple):
    """The first step that comes out differently."""

    step: int
    what: str
    expected: Any
    ours: Any

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}: expected {self.expected}, found {self.ours}"


class Agreement(NamedTuple):
    """Of a case: its steps, those before the first difference, and that."""

    name: str
    vllm: str
    steps: int
    agreeing: int
    difference: Difference | None


class Driven:
    """Our engine and its paged allocator on the requests of a case."""

    def __init__(self, case: ScheduleCase) -> None:
        config, requests = case.config, case.requests()
        paged = dict(VERSIONS[version_of(case)].paged)
        if case.bankwise.free_list is not None:
            paged["free_list"] = case.bankwise.free_list
        self._block = config.block_size
        longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1))
        policy = PagedOptions(
            **paged,
            block=self._block,
            watermark=config.watermark,
            cached_recompute=config.prefix_caching,
            prefix_caching=config.prefix_caching,
        )
        further = case.bankwise.scheduler
        ahead = int(config.async_scheduling)
        speculation, lookahead = None, Lookahead()
        if config.speculation is not None:
            own = config.speculation
            table = [1.0] * own.tokens
            speculation = SpeculationSpec.model_construct(
                method=own.method, tokens=own.tokens, acceptance=table
            )
            lookahead = speculation.slots(ahead, version_of(case))
            longest = LARGEST
        kept = 1 if speculation is None else 1 + speculation.tokens
        limits = Limits(
            longest, longest, config.max_num_batched_tokens, ahead, lookahead,
            config.states * self._block, kept, config.drafter or (0, 1),
        )  # fmt: skip
        self.allocator = PagedAllocator(config.layout, len(requests), limits, policy)
        spec = EngineV1Spec(
            like=version_of(case),  # type: ignore[arg-type]
            max_num_seqs=min(config.max_num_seqs, further.max_num_active_seqs or LARGEST),
            max_num_batched_tokens=config.max_num_batched_tokens,
            admit_on="input" if config.reserve_full_isl else "chunk",
            async_scheduling=config.async_scheduling,
            ends=config.ends,
            long_prefill_token_threshold=further.long_prefill_token_threshold,
            prefill_schedule_interval=further.prefill_schedule_interval,
        )
        output = requests.output_tokens
        predicted = LognormalPredictions(output.astype(np.float64))
        ranked = further.policy == "priority"
        priority = np.array(case.bankwise.priority, np.int64) if ranked else None
        given = spec, self.allocator, Offered(requests, output, predicted)
        self.engine = Engine(lambda engine: EngineV1(engine, priority), *given)
        if speculation is not None:
            drawn = case.trace.drawn()
            self.engine.growth = Verifier(self.engine, speculation, drawn)
        self._to_come = deque(enumerate(case.trace.arrival))
        self._entries: dict[int, tuple[tuple[int, int], bytes]] = {}

    def steps(self) -> Iterator[Scheduled]:
        """The steps in which something is computed."""
        clock, engine = 0, self.engine
        while self._to_come or engine.busy:
            if not engine.busy and clock < self._to_come[0][1]:
                engine.retire()
                clock = self._to_come[0][1]
            while self._to_come and self._to_come[0][1] <= clock:
                engine.waiting.append(self._to_come.popleft()[0])
            ran = engine.running.tolist()
            step = engine.schedule()
            told = dict(
                zip(step.decode.tolist(), engine.growth.rows_of(step).tolist(), strict=True)
            )
            told |= {chunk.request: engine.growth.chunk_rows(chunk) for chunk in step.chunks}
            tokens = [(one, told[one]) for one in engine.running.tolist() if one in told]
            left = set(ran) - set(engine.running.tolist())
            preempted = [one for one in reversed(ran) if one in left]
            for request in preempted:
                self._entries.pop(request, None)
            if not step.empty:
                yield Scheduled(
                    clock, tokens, preempted, step.cached, len(engine.running),
                    len(engine.waiting), self.allocator.free_slots // self._block, self._digest(),
                )  # fmt: skip
                clock += 1
            engine.complete(step, 1)
        engine.retire()

    def tables(self) -> Tables:
        """(request, its blocks in token order), in running order; vLLM's numbers less 1."""
        return [(one, self._blocks(one).tolist()) for one in self.engine.running.tolist()]

    def _blocks(self, request: int) -> IntArray:
        layout = self.allocator.layout
        groups = [self.allocator.layer_units(request, group) for group in range(layout.parts)]
        none = np.zeros(0, np.int64)
        beside = self.allocator.state_blocks, self.allocator.drafter_blocks
        states, own = (each.held.get(request, none) for each in beside)
        held = [states, *(units.start // self._block for units in groups), own.ravel()]
        return np.concatenate(held) - 1

    def _digest(self) -> int:
        return zlib.crc32(b"".join(self._entry(one) for one in self.engine.running.tolist()))

    def _entry(self, request: int) -> bytes:
        """What the digest takes of a request; made again when it has other slots, or more tokens
        with windows, which may give up as many as they get."""
        tokens = self.allocator.layout.groups is not None or self.allocator.limits.drafter[0] > 0
        now = int(self.allocator.reserved[request]), int(self.allocator.stored[request]) * tokens
        known, entry = self._entries.get(request, (None, b""))
        if known != now:
            blocks = self._blocks(request)
            entry = np.array([request, len(blocks), *blocks], "<i4").tobytes()
            self._entries[request] = now, entry
        return entry


_NAMES = (
    "clock", "tokens, [request, tokens]", "preemption", "prefix tokens found", "running requests",
    "waiting requests", "free blocks", "block ids (crc32)",
)  # fmt: skip
"""Of the fields of a step, as a difference names them."""
_ENDED = "the schedule has ended"


def check(case: ScheduleCase) -> Agreement:
    """Drive our engine on the requests of a case up to the first step that differs."""
    driven, count = Driven(case), len(case.steps)
    steps, at = driven.steps(), -1
    difference = None
    try:
        for at, (expected, ours) in enumerate(zip_longest(case.steps, steps)):
            tables = case.tables.get(str(at))
            if difference := _difference(at, expected, ours, tables, driven):
                break
    except DescriptionError as error:
        at += 1
        difference = Difference(at, "admission", "a step", error.message)
    return Agreement(case.name, case.vllm, count, count if difference is None else at, difference)


def _difference(
    at: int,
    expected: Scheduled | None,
    ours: Scheduled | None,
    tables: Tables | None,
    driven: Driven,
) -> Difference | None:
    if expected is None or ours is None:
        step = "a further step"
        ends = (_ENDED, step) if expected is None else (step, _ENDED)
        return Difference(at, "length", *ends)
    if tables is not None and ours == expected and tables != driven.tables():
        return Difference(at, "block ids", tables, driven.tables())
    for name, mine, theirs in zip(_NAMES, ours, expected, strict=True):
        if mine == theirs:
            continue
        if mine is not ours.tokens:
            return Difference(at, name, theirs, mine)
        pairs = zip_longest(expected.tokens, ours.tokens)
        first = next(pair for pair in pairs if pair[0] != pair[1])
        return Difference(at, name, *map(_listed, first))
    return None


def _listed(pair: tuple[int, int] | None) -> list[int] | str:
    return "no more" if pair is None else list(pair)
