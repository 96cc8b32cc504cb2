"""Files of schedules of the real vLLM v1 scheduler, and what their cases say.

A file is JSON, plain or gzip: a list of cases, or a mapping with `cases` (docs/engines.md
has the form and an example). A clock of steps takes the place of time: a request arrives before a
step.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic import Strict as Exactly

from hwmodel.description.description import DescriptionError, Document, Strict, nearest
from hwmodel.description.packed import open_text
from policies.allocators.free_lists.free_list_registry import FreeListName
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine_options import Count
from policies.engines.speculation import DrawnDrafts, Method
from policies.engines.vllm_version import VERSIONS
from policies.requests.requests import Requests

TWINS = {"0.28": "0.33"}
"""Versions that schedule as another one does: 31 of 32 schedules of 0.28 were those of 0.33."""
LARGEST = 1 << 62
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
"""A whole number that an array holds."""


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


class ScheduleTrace(Strict):
    """Columns of the requests. `arrival`: the first step that sees it."""

    arrival: list[Number]
    prompt: list[Number]
    output: list[Number]
    prefix_id: list[Number] | None = None
    prefix_tokens: list[Number] | None = None
    held: list[str] | None = None
    """With speculation: a digit for each output token, how many of its drafts hold."""

    def drawn(self) -> DrawnDrafts:
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
        return DrawnDrafts(held, ends - [len(row) for row in rows])


_JSON = Exactly(False)
"""JSON has lists where there are tuples here."""
_Pair = Annotated[tuple[Number, Number], _JSON]
Tables = list[Annotated[tuple[int, list[int]], _JSON]]


class SchedulerOptions(Strict):
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

    session: list[Number] | None = None
    tree: list[_Pair] | None = None
    priority: list[Number] | None = None
    scheduler: SchedulerOptions = SchedulerOptions()
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


class ScheduleCase(Strict):
    """A schedule of one version. `tables`: by step, blocks of each running request."""

    name: str
    about: str = ""
    vllm: str
    config: Config
    trace: ScheduleTrace
    steps: list[Scheduled]
    tables: dict[str, Tables] = {}
    bankwise: Further = Further()

    def requests(self) -> Requests:
        """Raises ValueError where columns are not those of requests."""
        columns = (
            getattr(self.trace, name) for name in ScheduleTrace.model_fields if name != "held"
        )
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


def read_cases(path: str | Path) -> list[ScheduleCase]:
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


def _case(path: Path, at: int, data: Any) -> ScheduleCase:
    place = f"cases[{at}]"
    if not isinstance(data, dict):
        raise DescriptionError("expected a mapping", path, None, place)
    if "version" in data and "vllm" not in data:
        data = {"vllm": data["version"], **{k: v for k, v in data.items() if k != "version"}}
    try:
        case = Document(data, str(path)).build(ScheduleCase)
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


def version_of(case: ScheduleCase) -> str:
    """0.33 of 0.33.0, and of 0.28.0, which schedules alike."""
    version = ".".join(case.vllm.split(".")[:2])
    return TWINS.get(version, version)
