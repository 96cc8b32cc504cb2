"""Schedules of the real vLLM v1 scheduler, and ours on the same requests, step for step.

A file is JSON, plain or gzip: a list of cases, or a mapping with `cases` (docs/vllm-schedules.md
has the form and an example). A clock of steps takes the place of time: a request arrives before a
step.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic import Strict as Exactly

from hwmodel.description.description import DescriptionError, Document, Strict, nearest
from hwmodel.description.packed import open_text
from policies.allocators.allocator import Limits, Lookahead
from policies.allocators.free_lists.free_list_registry import FreeListName
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import build
from policies.engines.admission import Offered
from policies.engines.engine_options import Count
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.engines.speculation import Drawn, Method, SpeculationSpec
from policies.engines.verifier import Verifier
from policies.engines.vllm_version import VERSIONS
from policies.predictors.prediction import LognormalPredictions
from policies.requests.requests import IntArray, Requests

TWINS = {"0.28": "0.33"}
"""Versions that schedule as another one does: 31 of 32 schedules of 0.28 were those of 0.33."""
LARGEST = 1 << 62


class Speculation(Strict):
    """Drafts of each step; how many hold says the trace."""

    method: Method
    tokens: Annotated[int, Field(ge=1, le=9)]


class Config(Strict):
    """Options of vLLM. `blocks`: those that are handed out, without the null block. `groups`: of
    layers, the window of each (None: full attention); not given: one group without a window.
    `states`: groups of layers that keep a state, which come before; `drafter`: those of a drafter
    with KV of its own, which come after, and tokens of a block there."""

    blocks: Count
    block_size: Annotated[int, Field(ge=1, le=2048)] = 16
    groups: Annotated[list[Count | None], Field(min_length=1)] = [None]
    states: Annotated[int, Field(ge=0)] = 0
    drafter: Annotated[tuple[Count, Count], Exactly(False)] | None = None
    max_num_batched_tokens: Count
    max_num_seqs: Count
    prefix_caching: bool
    reserve_full_isl: bool
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    async_scheduling: Annotated[bool, Field(alias="async")] = False
    ends: Literal["stop", "length"] = "length"
    speculation: Speculation | None = None

    @model_validator(mode="after")
    def _budget_covers_running(self) -> Config:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")
        if self.groups != [None] and not any(self.groups):
            raise ValueError("groups: expected [null], or a window in some")
        if self.states and (self.prefix_caching or self.groups != [None]):
            raise ValueError("states: only with groups [null] and without prefix_caching")
        if self.drafter and not (self.states and self.speculation):
            raise ValueError("drafter: only with states and speculation")
        return self

    @property
    def layout(self) -> KvLayout:
        """Of groups of one layer; vLLM's block 0 is the null block."""
        plain = KvLayout(0, (self.blocks + 1) * self.block_size, 1, 1, 16)
        if self.groups == [None]:
            return plain
        places = tuple((group, 0) for group in range(len(self.groups)))
        kept = tuple(self.groups)
        return replace(plain, groups=KvGroups("blocks", kept, 1, kept, places))


class Trace(Strict):
    """Columns of the requests. `arrival`: the first step that sees it."""

    arrival: list[int]
    prompt: list[int]
    output: list[int]
    prefix_id: list[int] | None = None
    prefix_tokens: list[int] | None = None
    held: list[str] | None = None
    """With speculation: a digit for each output token, how many of its drafts hold."""

    def drawn(self) -> Drawn:
        """Raises ValueError where a request has fewer digits than output tokens."""
        digits = self.held or []
        enough = [
            text.isdigit() and len(text) >= n for text, n in zip(digits, self.output, strict=False)
        ]
        if not all(enough) or len(digits) != len(self.output):
            raise ValueError("held: expected a digit for each output token of each request")
        rows = [text[:n] + "0" for text, n in zip(digits, self.output, strict=True)]
        ends = np.cumsum([len(row) for row in rows])
        held = np.array([int(digit) for digit in "".join(rows)], np.uint8)
        return Drawn(held, ends - [len(row) for row in rows])


_JSON = Exactly(False)
"""JSON has lists where there are tuples here."""
_Pair = Annotated[tuple[int, int], _JSON]
_Tables = list[Annotated[tuple[int, list[int]], _JSON]]


class Scheduler(Strict):
    """Options of vLLM's `SchedulerConfig` that are not in `Config`."""

    policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    prefill_schedule_interval: Count = 1
    max_num_active_seqs: Count | None = None
    max_num_partial_prefills: Count = 1
    max_long_partial_prefills: Count = 1
    """No rule here: v1 reads neither (its PR 49075)."""


class Further(BaseModel):
    """Of `bankwise`, which may hold notes besides: columns of requests that vLLM has no names for,
    and further options of its scheduler. `session`: -1 or that of which the request is a turn;
    `tree`: of each prefix id the one that it begins with (-1: none) and how many tokens of it."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    session: list[int] | None = None
    tree: list[_Pair] | None = None
    priority: list[int] | None = None
    scheduler: Scheduler = Scheduler()
    free_list: FreeListName | None = None
    """In a pool whose queue of free blocks was replaced: its order (None: the version's own)."""


class Scheduled(NamedTuple):
    """What one step did, and the state that it left."""

    clock: int
    tokens: list[_Pair]
    """(request, tokens), in the order of scheduling."""
    preempted: list[int]
    cached: int
    """Prefix tokens found by those admitted."""
    running: int
    waiting: int
    free: int
    """Blocks."""
    digest: int
    """crc32 of little-endian int32s: request, number of blocks, blocks, of each running request."""


class Case(Strict):
    """A schedule of one version. `tables`: by step, blocks of each running request."""

    name: str
    about: str = ""
    vllm: str
    config: Config
    trace: Trace
    steps: list[Scheduled]
    tables: dict[str, _Tables] = {}
    bankwise: Further = Further()

    def requests(self) -> Requests:
        """Raises ValueError where columns are not those of requests."""
        columns = (getattr(self.trace, name) for name in Trace.model_fields if name != "held")
        arrival, *rest = (None if each is None else np.array(each, np.int64) for each in columns)
        made = Requests(arrival.astype(np.float64), *rest)  # type: ignore[union-attr, arg-type]
        if self.config.speculation is not None:
            self.trace.drawn()
        further = self.bankwise
        if further.scheduler.policy == "priority" and len(further.priority or ()) != len(made):
            raise ValueError("policy: priority needs bankwise.priority, one of each request")
        tree = None if further.tree is None else np.array(further.tree, np.int64)
        if further.session is None:
            return replace(made, tree=tree)
        session = np.array(further.session, np.int64)
        # arrivals say when turns are sent; 0: after the one before
        first = np.isin(np.arange(len(session)), np.unique(session, return_index=True)[1])
        think = np.where(first | (session < 0), np.nan, 0.0)
        return replace(made, session=session, context=session, think_s=think, tree=tree)


class Difference(NamedTuple):
    """The first step that comes out differently."""

    step: int
    what: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}: expected {self.expected}, found {self.found}"


class Agreement(NamedTuple):
    """Of a case: its steps, those before the first difference, and that."""

    name: str
    vllm: str
    steps: int
    agreeing: int
    difference: Difference | None


def read_cases(path: str | Path) -> list[Case]:
    """The cases of a file. Raises DescriptionError for the first mistake in it."""
    path = Path(path)
    try:
        with open_text(path) as file:
            data = json.load(file)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DescriptionError(f"damaged or unreadable: {error}", path) from None
    inside = isinstance(data, dict)
    cases = data.get("cases") if inside else data
    if not isinstance(cases, list) or not cases:
        raise DescriptionError("expected a list of cases, or a mapping with `cases`", path)
    if inside and (unknown := sorted(set(data) - {"cases", "fields"})):
        raise DescriptionError(
            f"unknown key; {nearest(unknown[0], ['cases'])}", path, None, unknown[0]
        )
    return [_case(path, at, data) for at, data in enumerate(cases)]


def _case(path: Path, at: int, data: Any) -> Case:
    place = f"cases[{at}]"
    if not isinstance(data, dict):
        raise DescriptionError("expected a mapping", path, None, place)
    if "version" in data and "vllm" not in data:
        data = {"vllm": data["version"], **{k: v for k, v in data.items() if k != "version"}}
    try:
        case = Document(data, str(path)).build(Case)
        case.requests()
    except DescriptionError as error:
        first = getattr(error, "errors", [error])[0]
        raise DescriptionError(first.message, path, None, f"{place}.{first.path}") from None
    except ValueError as error:
        raise DescriptionError(str(error), path, None, f"{place}.trace") from None
    if version_of(case) not in VERSIONS:
        hint = f"vLLM {case.vllm} is not modelled; {nearest(version_of(case), [*VERSIONS])}"
        raise DescriptionError(hint, path, None, f"{place}.vllm")
    return case


def version_of(case: Case) -> str:
    """0.33 of 0.33.0, and of 0.28.0, which schedules alike."""
    version = ".".join(case.vllm.split(".")[:2])
    return TWINS.get(version, version)


class Driven:
    """Our engine and its paged allocator on the requests of a case."""

    def __init__(self, case: Case) -> None:
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
        self.allocator = build(config.layout, len(requests), limits, policy)
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
        self.engine = EngineV1(*given, priority)
        if speculation is not None:
            drawn = case.trace.drawn()
            self.engine.drafts = Verifier(speculation, drawn, self.allocator, output)
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
            told = dict(zip(step.decode.tolist(), engine.rows_of(step).tolist(), strict=True))
            told |= {chunk.request: engine.chunk_rows(chunk) for chunk in step.chunks}
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

    def tables(self) -> _Tables:
        """(request, its blocks in token order), in running order; vLLM's numbers less 1."""
        return [(one, self._blocks(one).tolist()) for one in self.engine.running.tolist()]

    def _blocks(self, request: int) -> IntArray:
        layout = self.allocator.layout
        groups = [self.allocator.layer_units(request, group) for group in range(layout.parts)]
        none = np.zeros(0, np.int64)
        states, own = (
            getattr(self.allocator, name, {}).get(request, none) for name in ("states", "drafter")
        )
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


def check(case: Case) -> Agreement:
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
    tables: _Tables | None,
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
