"""How soon do a sequence's blocks lie apart, and how much of what paging reserves holds tokens?"""

from __future__ import annotations

import csv
import gzip
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.predictors.predictor import Prediction
from policies.requests.requests import FloatArray, IntArray

AZURE = Path(__file__).parents[4] / "shared" / "data" / "azure2023_conv.csv.gz"
BLOCKS = 8000
REQUESTS = 2600

needs_azure = pytest.mark.skipif(not AZURE.is_file(), reason=f"{AZURE} is not there")


class Churn(NamedTuple):
    ended: IntArray
    """Requests that had ended before each step."""
    run_blocks: FloatArray
    """Mean run of physically contiguous blocks of those that ran then."""
    stored_share: float
    """Stored of reserved slots, weighted by time."""

    def run(self, ended: int, within: int = 100) -> float:
        near = abs(self.ended - ended) <= within
        return float(self.run_blocks[near].mean())


def churn(prompt: IntArray, output: IntArray, **options: object) -> Churn:
    """Everybody waits from the start; the device is kept full, the last one is preempted."""
    spec = PagedOptions.model_validate(options)
    layout = KvLayout(0, BLOCKS * 16, 1, 1, 16)
    allocator = PagedAllocator(layout, len(prompt), Limits(8192, 16384), spec)
    left, waiting = output.copy(), deque(range(len(prompt)))
    running = np.zeros(0, np.int64)
    ended, samples, stored, reserved = 0, [], 0, 0
    while waiting or len(running):
        admitted = admit(allocator, prompt, output - left, waiting)
        running = np.concatenate((running, np.array(admitted, np.int64)))
        while not (rounds := allocator.headroom(running, int(left[running].min()))):
            allocator.release(int(running[-1]))
            waiting.appendleft(int(running[-1]))
            running = running[:-1]
        held = int(allocator.reserved[running].sum())
        samples.append((ended, held / allocator.block / allocator.extent_count(running)))
        allocator.advance(running, rounds)
        stored += int(allocator.stored[running].sum()) * rounds
        reserved += int(allocator.reserved[running].sum()) * rounds
        left[running] -= rounds
        for request in running[left[running] == 0].tolist():
            allocator.release(request)
            allocator.caching.finished(request, int(prompt[request]), int(output[request]))
            ended += 1
        running = running[left[running] > 0]
    at, mean = np.array(samples).T
    return Churn(at, mean, stored / reserved)


def admit(
    allocator: PagedAllocator, prompt: IntArray, made: IntArray, waiting: deque[int]
) -> list[int]:
    """From the head of the line, as long as there is room for all they stored before."""
    admitted = []
    while waiting:
        tokens = int(prompt[waiting[0]] + made[waiting[0]])
        demand = Demand(int(prompt[waiting[0]]), int(made[waiting[0]]), Prediction(1.0))
        if not allocator.fits(tokens):
            break
        assert allocator.reserve(waiting[0], demand, tokens)
        admitted.append(waiting.popleft())
    return admitted


def azure(order: str) -> Churn:
    with gzip.open(AZURE, "rt", newline="") as file:
        rows = list(csv.DictReader(file))[:REQUESTS]
    prompt = np.array([int(row["prompt_tokens"]) for row in rows])
    output = np.array([int(row["output_tokens"]) for row in rows])
    return churn(prompt, output, free_list=order)


@needs_azure
def test_a_queue_scatters_soonest_and_nearly_all_that_paging_reserves_holds_tokens() -> None:
    """Within 2,000 conversations; the lowest address keeps some runs."""
    queue, stack, lowest = azure("fifo"), azure("lifo"), azure("sorted")
    assert queue.run_blocks[0] > 28
    assert queue.run(1000) < 1.1 and queue.run(2000) < 1.02
    assert stack.run(200) > 2 * queue.run(200) and lowest.run(200) > 2 * queue.run(200)
    assert 1.05 < stack.run(1500, within=300) < 1.15
    assert 1.06 < lowest.run(2000) < 1.25
    assert queue.stored_share >= 0.96


@pytest.mark.parametrize(("block", "low", "high"), [(1, 1, 1), (16, 0.96, 0.99), (256, 0.6, 0.85)])
def test_larger_blocks_hold_less(block: int, low: float, high: float) -> None:
    rng = np.random.default_rng(1)
    prompt = np.clip(rng.lognormal(5.0, 1.0, 500), 1, 2000).astype(np.int64)
    output = np.clip(rng.lognormal(5.0, 0.8, 500), 1, 1000).astype(np.int64)
    assert low <= churn(prompt, output, block=block).stored_share <= high
