"""A schedule of the real vLLM scheduler, and ours on the same requests.

tests/reference/README.md has the form of the schedules. A clock of steps takes the place of time.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.predictors.prediction import LognormalPredictions
from policies.requests.requests import Requests
from tests.policies.small import MODEL

SCHEDULES = Path(__file__).parents[2] / "reference" / "vllm_schedules.json.gz"


class Scheduled(NamedTuple):
    """What one step did, and the state that it left."""

    clock: int
    tokens: list[list[int]]
    """(request, tokens), in the order of scheduling."""
    preempted: list[int]
    cached: int
    running: int
    waiting: int
    free: int
    digest: int
    """crc32 of the block tables: request, number of blocks, blocks, of each running request."""


def schedules() -> list[dict[str, Any]]:
    with gzip.open(SCHEDULES, "rt") as file:
        cases: list[dict[str, Any]] = json.load(file)["cases"]
    return cases


class Scheduler:
    """Our engine and its paged allocator on the requests of a case."""

    def __init__(self, case: dict[str, Any]) -> None:
        trace = {name: np.array(column, np.int64) for name, column in case["trace"].items()}
        count, block = len(trace["arrival"]), case["config"]["block_size"]
        requests = Requests(
            trace["arrival"].astype(np.float64), trace["prompt"], trace["output"],
            trace["prefix_id"], trace["prefix_tokens"],
        )  # fmt: skip
        slots = case["config"]["blocks"] * block
        layout = KvLayout(0, slots, MODEL.layers, MODEL.kv_heads, MODEL.kv_head_bytes)
        longest = int(trace["prompt"].max() + trace["output"].max())
        policy = PagedOptions.model_validate(case["bankwise"]["policy"])
        self.allocator = PagedAllocator(layout, count, Limits(longest, longest), policy)
        self.engine = EngineV1(
            EngineV1Spec.model_validate(case["bankwise"]["engine"]), self.allocator, requests,
            trace["output"], LognormalPredictions(trace["output"].astype(np.float64)),
        )  # fmt: skip
        self._block = block
        self._to_come = deque(enumerate(trace["arrival"].tolist()))
        self._entries: dict[int, tuple[int, bytes]] = {}

    def steps(self) -> Iterator[Scheduled]:
        clock = 0
        while self._to_come or self.engine.busy:
            if not self.engine.busy:
                clock = max(clock, self._to_come[0][1])
            while self._to_come and self._to_come[0][1] <= clock:
                self.engine.waiting.append(self._to_come.popleft()[0])
            step = self.engine.schedule()
            waiting = self.engine.waiting
            tokens = [[request, 1] for request in step.decode.tolist()]
            tokens += [[chunk.request, chunk.tokens] for chunk in step.chunks]
            # each goes to the front of the line, and a step that preempts admits no one
            preempted = list(islice(waiting, step.preempted))[::-1]
            for request in preempted:
                del self._entries[request]
            yield Scheduled(
                clock, tokens, preempted, step.cached, len(self.engine.running), len(waiting),
                self.allocator.free_slots // self._block, self._digest(),
            )  # fmt: skip
            for request in self.engine.complete(step, 1)[1]:
                del self._entries[request]
            clock += 1

    def tables(self) -> list[list[Any]]:
        """(request, its blocks in token order), in running order."""
        return [[one, self._blocks(one).tolist()] for one in self.engine.running.tolist()]

    def _blocks(self, request: int) -> np.ndarray:
        return self.allocator.units(request).start // self._block

    def _digest(self) -> int:
        return zlib.crc32(b"".join(self._entry(one) for one in self.engine.running.tolist()))

    def _entry(self, request: int) -> bytes:
        """What the digest takes of a request; made again when its blocks became more."""
        reserved = int(self.allocator.reserved[request])
        known, entry = self._entries.get(request, (-1, b""))
        if known != reserved:
            blocks = self._blocks(request)
            entry = np.array([request, len(blocks), *blocks], "<i4").tobytes()
            self._entries[request] = reserved, entry
        return entry
