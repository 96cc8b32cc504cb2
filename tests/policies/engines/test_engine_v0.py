"""Does v0 do what vLLM 0.6 does: prefill first, whole prompts, watermark, recompute or swap?"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.engines.engine import Engine
from policies.engines.engine_requests import Offered
from policies.engines.engine_v0 import EngineV0, EngineV0Spec
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.predictors.prediction import LognormalPredictions
from policies.requests.requests import Requests
from policies.serving.serving import serve
from policies.transfers.kv_connector import Site
from policies.transfers.swap_space import SwapSpace
from tests.policies.small import MODEL, device, requests, spec

V0 = {"name": "v0", "max_model_len": 1024}
ALIKE = {"watermark": 0.0, "cached_recompute": False, "free_list": "lifo"}


class Scene:
    """An engine, a step at a time."""

    def __init__(
        self, slots: int, lengths: list[tuple[int, int]], samples: int = 1, **options: Any
    ):
        prompts, outputs = (np.array(column, np.int64) for column in zip(*lengths, strict=True))
        count = len(lengths)
        stream = Requests(
            np.zeros(count), prompts, outputs, samples=np.full(count, samples, np.int64)
        )
        paged = {**ALIKE, **options.pop("paged", {})}
        layout = KvLayout(0, slots, MODEL.layers, MODEL.kv_heads, MODEL.kv_head_bytes)
        self.allocator = PagedAllocator(
            layout, count, Limits(1024, 1024), PagedOptions.model_validate(paged)
        )
        self.engine = Engine(EngineV0,
            EngineV0Spec.model_validate({"max_num_batched_tokens": 2048, **options}),
            self.allocator,
            Offered(stream, outputs, LognormalPredictions(outputs.astype(np.float64))),
        )  # fmt: skip
        self.engine.waiting.extend(range(count))
        card = device(slots)
        if (swapping := self.engine.spec.swapping) is not None:
            site = Site(card, MODEL, self.allocator, StepModel(card, MODEL), 1)
            self.swaps = SwapSpace(swapping, site)
            self.engine.connect(self.swaps)

    def step(self) -> Step:
        step = self.engine.schedule()
        self.engine.complete(step, 1)
        return step

    @property
    def running(self) -> list[int]:
        return [int(request) for request in self.engine.running]


def prefilled(step: Step) -> list[tuple[int, int, int]]:
    return [(chunk.request, chunk.start, chunk.tokens) for chunk in step.chunks]


def test_a_prompt_is_never_cut() -> None:
    scene = Scene(8192, [(1000, 2), (1000, 2), (900, 2)], max_num_batched_tokens=2048)
    assert prefilled(scene.step()) == [(0, 0, 1000), (1, 0, 1000)]
    assert prefilled(scene.step()) == [(2, 0, 900)]


def test_least_waste_is_inferceps_sum_of_what_a_copy_and_a_prompt_hold_up() -> None:
    found = {}
    for rate in ("1MB/s", "100GB/s"):
        found[rate] = serve(
            device(64, f"host.bandwidth={rate}"), MODEL,
            spec(engine={**V0, "preemption": "least"}, policy={"name": "paged", **ALIKE}),
            requests([0.0, 0.0], 31, 20), seed=1,
        ).metrics  # fmt: skip
    assert found["1MB/s"]["swapped_tokens"] == 0 < found["100GB/s"]["swapped_tokens"] == 64
    assert found["100GB/s"]["phase_share"]["swap"] == 0  # both ways hide behind a step


def test_a_copy_behind_a_step_takes_its_bytes_from_what_the_memory_gives() -> None:
    """The step has the rest of the bandwidth: memory_s x taken / (bandwidth - taken) longer."""
    stalls, made = {}, StepTimes.delayed
    for contention in (True, None, False):
        seen: list[tuple[StepTimes, float]] = []

        def delayed(times: StepTimes, stall_s: Any, seen: Any = seen) -> StepTimes:
            seen.append((times, float(stall_s[0])))
            return made(times, stall_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StepTimes, "delayed", delayed)
            engine = {**V0, "preemption": "least", "contention": contention}
            card = device(64, "host.bandwidth=100GB/s")
            metrics = serve(
                card, MODEL, spec(engine=engine, policy={"name": "paged", **ALIKE}),
                requests([0.0, 0.0], 31, 20), seed=1,
            ).metrics  # fmt: skip
        assert metrics["swapped_tokens"] == 64
        stalls[contention] = seen
    assert not stalls[False] and len(stalls[True]) == len(stalls[None]) == 2  # out, and back
    gives = card.peak_gbps * 1e9 * Efficiency().attention
    for times, stall_s in stalls[True]:
        taken = 32 * MODEL.kv_token_bytes / float(times.total_s[0])
        assert stall_s == pytest.approx(float(times.memory_s[0]) * taken / (gives - taken))
        assert stall_s > 0


def test_a_preempted_chunk_is_found_again_as_far_as_it_was_computed() -> None:
    # 8 blocks: 2 for the first, 6 for all of the second, of which 2 + 32 tokens are computed when
    # the first wants its third block
    paged = {"cached_recompute": True, "free_list": "fifo"}
    scene = Scene(
        128, [(31, 5), (90, 3)], paged=paged, chunked_prefill=True, max_num_batched_tokens=33,
        max_num_seqs=8,
    )  # fmt: skip
    assert prefilled(scene.step()) == [(0, 0, 31), (1, 0, 2)]
    assert prefilled(scene.step()) == [(1, 2, 32)]
    assert scene.step().preempted == 1 and scene.running == [0]
    # five of its blocks are full of slots, and 34 tokens computed: two blocks
    findable, caching = scene.engine.scheduler.findable, scene.allocator.caching
    assert (findable(1, 90), caching.cached(1, 89), caching.cached(1, findable(1, 90))) == (
        34,
        80,
        32,
    )
    assert findable(0, 31) == 30  # of one that was never cut all but what is always computed
    while not (step := scene.step()).chunks:
        pass
    # two full blocks; the other three that it held were never filled
    assert prefilled(step) == [(1, 32, 33)] and step.cached == 32
    assert prefilled(scene.step()) == [(1, 65, 25)]


def test_swapping_needs_a_link_to_the_host() -> None:
    bare = copy(device(1024))
    assert bare.accelerator is not None
    object.__setattr__(bare, "accelerator", bare.accelerator.model_copy(update={"host": None}))
    with pytest.raises(DescriptionError, match=r"has no host.bandwidth, which swapping needs"):
        swaps = spec(engine={**V0, "preemption": "swap"})
        serve(bare, MODEL, swaps, requests([0.0], 10, 2), seed=1)
    recomputed = spec(engine=V0)
    assert serve(bare, MODEL, recomputed, requests([0.0], 10, 2), seed=1).metrics["finished"] == 1
