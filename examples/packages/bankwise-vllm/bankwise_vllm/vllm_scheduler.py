"""The installed vLLM decides who runs in each step and in which blocks; bankwise says how long the
step takes in which memory.

`engine: {name: vllm}` is vLLM's `Scheduler` (or `AsyncScheduler`), `policy: vllm` the blocks that
its `KVCacheManager` gave (`vllm_blocks`): one goes with the other. A step is scheduled by vLLM, its
outputs are made up, and what vLLM says of requests and blocks is copied into what bankwise asks of
an engine and an allocator. Nothing here chooses anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from bankwise_vllm.installed_vllm import (
    RULES,
    InstalledVllm,
    Wanted,
    rules_here,
    rules_of,
    vllm_version,
)
from bankwise_vllm.mirrored_blocks import MirroredBlocks
from bankwise_vllm.texts import STOP, Texts
from hwmodel.description.description import DescriptionError, checked
from policies.allocators.allocator import Demand
from policies.engines.connector import Connector
from policies.engines.engine_requests import EngineRequests
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.scheduler import Scheduler
from policies.requests.requests import IntArray

_the_installed = cache(InstalledVllm)


class VllmSpec(EngineV1Spec):
    """Options of `engine: vllm`: those of v1, whose defaults are the installed version's."""

    name: Literal["vllm"] = "vllm"  # type: ignore[assignment]
    installed: str | None = None
    """Version of the vLLM that decides, as 0.23.0; a run is repeated with the same one. None: the
    one that is installed."""

    @model_validator(mode="before")
    @classmethod
    def of_the_installed(cls, data: Any) -> Any:
        """`data` with the version filled in, and the rules that its defaults follow."""
        if not isinstance(data, dict):
            return data
        own, wanted = vllm_version(), data.get("installed")
        if own is None:
            raise ValueError("vLLM is not installed here; expected pip install vllm (0.19 to 0.33)")
        if wanted not in (None, own):
            raise ValueError(f"vLLM {own} is installed here; expected {wanted}")
        if (rules := rules_of(own)) is None:
            raise ValueError(f"vLLM {own} is older than {RULES[0]}, the first that can be driven")
        if data.get("like") not in (None, rules):
            raise ValueError(f"like: {data['like']}: vLLM {own} decides; leave like out")
        return {**data, "like": rules, "installed": own}

    @checked
    def _as_vllm(self) -> None:
        if self.batching != "any" or self.packing != "arrival":
            raise ValueError("batching, packing: vLLM has neither; leave them out")

    @classmethod
    def policy_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        return {}

    @classmethod
    def serving_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return super().serving_defaults({**given, "like": rules_here()})


class VllmScheduler(Scheduler):
    """vLLM's scheduler. Under asynchronous scheduling the outputs of a step are told to it behind
    the schedule of the next one, as vLLM's engine does."""

    Options = VllmSpec
    spec: VllmSpec

    def __init__(self, engine: EngineRequests) -> None:
        super().__init__(engine)
        options, limits = engine.allocator.options, engine.allocator.limits
        if (blocks := engine.allocator.able(MirroredBlocks)) is None:
            raise DescriptionError(f"engine vllm: policy {options.name}; expected policy: vllm")
        spec, self._blocks = self.spec, blocks
        self._vllm: InstalledVllm = _the_installed()
        names = ["max_num_seqs", "max_num_batched_tokens"]
        names += [name for name in ("long_prefill_token_threshold", "prefill_schedule_interval")
                  if getattr(spec, name) != type(spec).model_fields[name].default]  # fmt: skip
        self._own = self._vllm.scheduler(Wanted(
            self._blocks.blocks, self._blocks.block, self._blocks.windows,
            limits.max_model_len + 1, options.prefix_caching, options.watermark,
            spec.async_scheduling, spec.admit_on == "input",
            {name: getattr(spec, name) for name in names},
        ))  # fmt: skip
        engine.late = spec.async_scheduling
        self._stops = spec.ends == "stop"
        self._texts = Texts(engine.requests, engine.output, self._stops)
        self._flying: deque[tuple[Any, list[str]]] = deque()
        """Steps whose outputs vLLM does not know: what it scheduled, and whose tokens they make."""
        self._filling: set[int] = set()
        """Running requests that are in their prefill."""
        self._answers: dict[int, list[int]] = {}
        """Ids of the answers of those that are here."""

    # which step is next

    def schedule(self) -> Step:
        """See `Scheduler.schedule`. A turn of a session that comes with the answer before it is
        told to vLLM a step later, when vLLM knows that answer."""
        engine = self.engine
        engine.cached_tokens = 0
        ending = set(engine.sessions[engine.ending].tolist()) - {-1}
        early = [each for each in engine.waiting if int(engine.sessions[each]) in ending]
        for request in engine.waiting:
            if str(request) not in self._own.requests and request not in early:
                self._own.add_request(self._request(request))
        ran = {int(each.request_id): each.num_preemptions for each in self._own.running}
        scheduled = self._own.schedule()
        tokens = {int(name): count for name, count in scheduled.num_scheduled_tokens.items()}
        known = self._own.requests
        lost = [each for each, times in ran.items() if known[str(each)].num_preemptions > times]
        for request in reversed(lost):
            self._filling.discard(request)
            engine.loads.release(request)
            engine.was_preempted(request)
        decode, chunks = self._parted(tokens, ran)
        self._mirrored()
        engine.waiting.extend(early)
        if tokens:
            samples = [str(each) for each in tokens if not known[str(each)].is_prefill_chunk]
            self._flying.append((scheduled, samples))
        limit = self._limit(sum(tokens.values()), len(lost))
        while len(self._flying) > 1:
            self._tell()
        step = engine.step(decode, chunks, [], len(lost), limit)
        if not engine.ending:
            return step
        return step._replace(overrun=int((engine.left[decode] == 0).sum()))

    def _request(self, request: int) -> Any:
        self._answers[request] = self._texts.answer(request)
        answer = int(self.engine.output[request])
        allocator = self.engine.allocator
        again = self._blocks.block if allocator.options.prefix_caching else None
        stop = STOP if self._stops else None
        longest = allocator.limits.max_model_len if self._stops else answer
        return self._vllm.request(str(request), self._texts.prompt(request), longest, stop, again)

    def _parted(self, tokens: dict[int, int], ran: dict[int, int]) -> tuple[IntArray, list[Chunk]]:
        """Of what vLLM scheduled: those that decode, in running order, and chunks of prompts."""
        decode, chunks = [], []
        for request, count in tokens.items():
            start = int(self._own.requests[str(request)].num_computed_tokens) - count
            if request in self.engine.waiting:
                self.engine.waiting.remove(request)
                self.engine.cached_tokens += start
                self._filling.add(request)
            if request not in self._filling:
                decode.append(request)
                continue
            last = start + count == self.engine.total(request)
            chunks.append(Chunk(request, start, count, last))
            if last:
                self._filling.discard(request)
        return np.array(decode, np.int64), chunks

    def _mirrored(self) -> None:
        """What vLLM says of who runs and waits, and of the blocks."""
        manager = self._own.kv_cache_manager
        for each in self._own.running:
            held = manager.get_blocks(each.request_id).blocks
            self._blocks.mirror(int(each.request_id), int(each.num_computed_tokens), held)
        self._counted()
        self.engine.running = np.array(
            [int(each.request_id) for each in self._own.running], np.int64
        )
        self.engine.waiting.clear()
        skipped = ("kv_holding_waiting", "skipped_waiting")  # by version
        for line in (self._own.waiting, *(getattr(self._own, name, ()) for name in skipped)):
            self.engine.waiting.extend(int(each.request_id) for each in line)

    def _counted(self) -> None:
        self._blocks.count(self._own.kv_cache_manager.block_pool.get_num_free_blocks())

    def _limit(self, computed: int, lost: int) -> str:
        """What held back those that wait, as far as it is seen from outside."""
        engine = self.engine
        if engine.waiting and str(engine.waiting[0]) not in self._own.requests:
            return "batching"
        if lost or not engine.waiting:
            return "kv_memory" if lost else "offered_load"
        if len(engine.running) >= self.spec.sequence_cap:
            return "sequence_cap"
        in_turn = self.spec.long_prefill_token_threshold or self.spec.prefill_schedule_interval > 1
        full = computed >= engine.budget or (self._filling and not in_turn)
        return "token_budget" if full else "kv_memory"

    def _tell(self) -> None:
        """Tell vLLM the outputs of the oldest step that it does not know."""
        scheduled, samples = self._flying.popleft()
        made: dict[str, list[int]] = {name: [] for name in scheduled.num_scheduled_tokens}
        for name in samples:
            if (request := self._own.requests.get(name)) is not None:
                made[name] = [self._answers[int(name)][request.num_output_tokens]]
        self._own.update_from_output(scheduled, self._vllm.outputs(made))

    @property
    def repeats(self) -> bool:
        return False  # vLLM is asked for every step

    # what it is told

    def retires(self) -> None:
        if any(str(each) in self._own.requests for each in self.engine.ending):
            self._tell_all()

    def completed(self, ended: list[int]) -> None:
        if not self.spec.async_scheduling:
            self._tell_all()
        self._counted()

    def connected(self, connector: Connector) -> None:
        raise DescriptionError(
            f"engine vllm: {type(connector).__name__} moves KV, which vLLM's scheduler is not told "
            "of; expected engine v1 with like"
        )

    def _tell_all(self) -> None:
        while self._flying:
            self._tell()
        self._counted()

    # who runs

    @property
    def runs(self) -> bool:
        ended = [] if self._stops else self.engine.ending  # those are known to end
        return len(self.engine.running) > len(ended)

    def to_decode(self) -> IntArray:
        running = self.engine.running
        return running[[int(each) not in self._filling for each in running]]

    @property
    def prefilling(self) -> bool:
        return bool(self._filling)

    # what vLLM decides

    def first_chunk(self, rest: int, budget: int) -> int:
        raise self._decided()

    def reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        raise self._decided()

    def reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        raise self._decided()

    def preempt(self, request: int) -> None:
        raise self._decided()

    @staticmethod
    def _decided() -> DescriptionError:
        return DescriptionError(
            "engine vllm: vLLM decides, and is not told of cards that fail or KV that moves; "
            "expected engine v1 with like"
        )
