"""Does flash take whole pages, as a count of them by hand says?"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import Device, load_device
from policies.engines.scheduled_step import Chunk
from policies.memory import traffic
from policies.memory.flash_memory import FlashMemory
from policies.memory.step_times import Efficiency
from policies.memory.traffic import Extents
from policies.requests.requests import Requests
from policies.serving.serving import serve
from tests.policies.memory.test_placed_memory import SHAPE
from tests.policies.memory.test_step import decode
from tests.policies.small import FakeMemory, spec

FLASH = (
    "memory: given, capacity: {capacity}, given: {{bandwidth: 100GB/s, efficiency: 1.0, flash: {{"
    "page: {page}, planes: {planes}, read_latency: 10us, write_bandwidth: {write}, endurance: 1000"
    "}}}}"
)


def device(
    page: str = "4KiB", planes: int = 1024, capacity: str = "1GiB", write: str = "10GB/s"
) -> Device:
    far = FLASH.format(page=page, planes=planes, capacity=capacity, write=write)
    return load_device(
        "rtx-pro-6000",
        ["given={bandwidth: 100GB/s, efficiency: 1.0}", "capacity=1GiB",
         f"memories.far={{{far}}}"],
    )  # fmt: skip


def share(start: list[int], size: list[int], page: str = "4KiB") -> float:
    """Share of the peak at which such extents are read."""
    memory, many = FlashMemory(device(page).memories["far"], SHAPE, 1.0, 0), len(start)
    where = np.array(start, np.int64), np.array(size, np.int64)
    return memory._share("attention", Extents(*where, np.zeros(many, bool), np.zeros(many, int)))


@pytest.mark.parametrize("seed", range(12))
def test_pages_are_read_whole_and_once_and_bytes_are_written(seed: int) -> None:
    """Where KV begins is where a page does; two phases have counts of their own."""
    rng = np.random.default_rng(seed)
    planes, even, base = int(rng.integers(20, 400)), rng.uniform(0.5, 1), int(rng.integers(9999))
    rate, writes = (("10GB/s", 0.1), ("200GB/s", 1.0))[seed % 2]
    card = device(planes=planes, write=rate)
    memory = FlashMemory(card.memories["far"], SHAPE, even, base)
    reads = even * min(planes * 4096 / 10e-6 / 100e9, 1.0)
    assert memory.efficiency == Efficiency(reads, reads, reads, 2 / (1 / reads + 1 / writes))
    uses = {}
    for phase in ("attention", "prefill"):
        wanted = touched = 0
        for _ in range(2):
            many = int(rng.integers(1, 12))
            start, end = rng.integers(0, 16, many), rng.integers(16, 32, many)
            start, end = (1024 * at + rng.integers(-1, 2, many) for at in (start + 1, end + 1))
            size, write = end - start, rng.random(many) < 0.3
            pages = {
                page
                for first, last in zip(start[~write], end[~write], strict=True)
                for page in range(first // 4096, (last - 1) // 4096 + 1)
            }
            at_peak = len(pages) * 4096 / reads + size[write].sum() / writes
            extents = Extents(start + base, size, write, np.zeros(many, np.int64))
            assert memory._share(phase, extents) == pytest.approx(size.sum() / at_peak)
            wanted, touched = wanted + size[~write].sum(), touched + 4096 * len(pages)
        uses[phase] = wanted / touched
    assert memory.report(0)["page_use"] == pytest.approx(uses)
    memory.mark()
    assert memory.report(0)["page_use"] == {}
    memory._share("prefill", Extents(*(np.array([n]) for n in (base, 1024, False, 0))))  # type: ignore[arg-type]
    assert memory.report(0)["page_use"] == {"prefill": 0.25}


def test_what_has_nothing_here_goes_at_the_rate_of_before() -> None:
    assert share([], []) == share([0], [0]) == 1.0


def test_what_has_not_run_wears_nothing_out() -> None:
    found = FlashMemory(device().memories["far"], SHAPE, 1.0, 0).report(0)
    assert (found["page_use"], found["writes_a_day"], found["years"]) == ({}, 0.0, None)


def test_pages_are_counted_again_when_a_phase_is_due_and_copies_are_written_where_kv_ages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, asked = FlashMemory(device().memories["far"], SHAPE, 1.0, 0), Counter[str]()

    def extents(phase: str) -> Extents:
        asked[phase] += 1
        return Extents(*(np.array([n]) for n in (0, 4096 // asked[phase], False, 0)))  # type: ignore[arg-type]

    for phase in ("attention", "prefill"):
        monkeypatch.setattr(traffic, phase, lambda *_, phase=phase: extents(phase))
    engine: Any = SimpleNamespace(allocator=None)
    prompts = decode(0, 0)._replace(chunks=[Chunk(0, 0, 9, True)])
    passed = 0
    for steps in (1, 62, 1, 64):
        both = memory.observe(decode(4, 400), engine), memory.observe(prompts, engine)
        due = 1 + (passed >= 64)
        assert asked == {"attention": due, "prefill": due}
        assert (both[0].attention, both[1].prefill) == (1 / due, 1 / due)
        memory.passed(steps)
        passed += steps
        assert memory.rounds_to_probe == max(64 * due - passed, 1)
    aged, copied = (memory.observe(prompts._replace(aged=n), engine).migration for n in (3, 0))
    assert (aged, copied) == (0.1, pytest.approx(2 / 11))


def metrics(
    page: str, policy: dict[str, Any], capacity: str = "1GiB", memories: Any = None
) -> dict[str, Any]:
    many = 8
    stream = Requests(np.zeros(many), np.full(many, 500), np.full(many, 64))
    own = spec(memories=memories or {"kv": "far"}, policy=policy)
    card = device(page, 4096, capacity)
    return serve(card, SHAPE, own, stream, seed=1, simulate=FakeMemory()).metrics


def test_runs_waste_less_of_large_pages_than_blocks() -> None:
    """Of 512 KiB in a region eight times as large: one run, or blocks of 8 KiB anywhere."""
    rng = np.random.default_rng(0)
    places = sorted(rng.choice(512, 64, replace=False).tolist())
    blocks = share([8192 * place for place in places], [8192] * 64, "64KiB")
    run = share([8192 * 100], [8192 * 64], "64KiB")
    assert blocks < 0.3 < 0.85 < run
    assert share([8192 * place for place in places], [8192] * 64) == 1.0
    small = metrics("4KiB", {"name": "paged"})["memory"]["memories"]["far"]
    assert small["page_use"]["attention"] == pytest.approx(1.0, rel=0.01)


def test_keys_and_values_begin_where_a_page_does() -> None:
    """In planes of 512 B a slot 128 KiB are 256 slots: half a page more is no use to blocks of as
    many, and moves no values into the middle of a page."""
    policy = {"name": "paged", "block": 256}
    even, more = (
        metrics("128KiB", policy, f"{slots * SHAPE.kv_token_bytes}B") for slots in (2048, 2176)
    )
    assert even["kv_capacity_tokens"] == more["kv_capacity_tokens"] == 2048
    uses = [each["memory"]["memories"]["far"]["page_use"] for each in (even, more)]
    assert uses[0] == uses[1]
