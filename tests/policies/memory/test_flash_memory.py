"""Does flash take whole pages, as a count of them by hand says?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import Device, load_device
from policies.memory.flash_memory import FlashMemory
from policies.memory.traffic import Extents
from policies.requests.requests import Requests
from policies.serving.serving import serve
from tests.policies.memory.test_placed_memory import SHAPE
from tests.policies.small import FakeMemory, spec

FLASH = (
    "memory: given, capacity: {capacity}, given: {{bandwidth: 100GB/s, efficiency: 1.0, flash: {{"
    "page: {page}, planes: {planes}, read_latency: 10us, write_bandwidth: 10GB/s, endurance: 1000"
    "}}}}"
)


def device(page: str = "4KiB", planes: int = 1024, capacity: str = "1GiB") -> Device:
    return load_device(
        "rtx-pro-6000",
        ["given={bandwidth: 100GB/s, efficiency: 1.0}", "capacity=1GiB",
         f"memories.far={{{FLASH.format(page=page, planes=planes, capacity=capacity)}}}"],
    )  # fmt: skip


def share(
    start: list[int], size: list[int], write: list[bool], page: str = "4KiB", base: int = 0
) -> float:
    """Share of the peak at which such extents are moved, where KV begins at `base`."""
    memory = FlashMemory(device(page).memories["far"], SHAPE, 1.0, base)
    numbers = (np.array(each, np.int64) for each in (start, size))
    owner = np.zeros(len(start), np.int64)
    return memory._share("attention", Extents(*numbers, np.array(write, np.bool_), owner))


def test_pages_are_read_whole_and_once() -> None:
    assert share([0], [4096], [False]) == share([0], [0], [False]) == 1.0
    assert share([0], [1024], [False]) == 0.25
    assert share([2048], [4096], [False]) == 0.5  # over an edge
    assert share([0, 1024], [1024, 1024], [False, False]) == 0.5  # of one page
    assert share([0, 8192], [1024, 1024], [False, False]) == 0.25
    assert share([0], [4096], [False], "16KiB") == 0.25
    assert share([1024], [4096], [False], base=1024) == 1.0  # pages begin where KV does


def test_what_has_nothing_here_goes_at_the_rate_of_before() -> None:
    assert share([], [], []) == 1.0
    assert share([0], [0], [False]) == 1.0


def test_what_has_not_run_wears_nothing_out() -> None:
    found = FlashMemory(device().memories["far"], SHAPE, 1.0, 0).report(0)
    assert (found["page_use"], found["writes_a_day"], found["years"]) == ({}, 0.0, None)


def test_writes_have_a_rate_of_their_own() -> None:
    assert share([0], [4096], [True]) == pytest.approx(0.1)
    assert share([0, 4096], [4096, 4096], [False, True]) == pytest.approx(2 / 11)


def test_what_is_copied_within_it_is_read_and_written_and_what_ages_is_written() -> None:
    memory = FlashMemory(device().memories["far"], SHAPE, 1.0, 0)
    assert memory.efficiency.migration == pytest.approx(2 / 11)
    recent = {"name": "recent", "kv": "far", "tokens": 100, "moves": True}
    found = metrics("4KiB", {"name": "paged"}, memories=recent)
    copies_s = found["phase_share"]["copy"] * found["steps"] * found["step_s"]
    size = found["memory"]["moved_tokens"] * SHAPE.kv_token_bytes
    assert size >= 8 * 63 * SHAPE.kv_token_bytes
    assert copies_s == pytest.approx(size / 10e9, rel=0.01)
    written = 8 * (500 + 63) * SHAPE.kv_token_bytes  # each token once, the last ones as well
    days = found["memory"]["writes_a_day"] * found["steps"] * found["step_s"] / 86400
    assert days * (1 << 30) == pytest.approx(written, rel=0.01)


def test_planes_bound_the_rate() -> None:
    slow = device(planes=61).memories["far"]  # 61 x 4 KiB in 10 us: 25 GB/s
    assert FlashMemory(slow, SHAPE, 1.0, 0).efficiency.weights == pytest.approx(0.25, rel=0.01)


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
    reads = [False] * 64
    blocks = share([8192 * place for place in places], [8192] * 64, reads, "64KiB")
    run = share([8192 * 100], [8192 * 64], [False], "64KiB")
    assert blocks < 0.3 < 0.85 < run
    assert share([8192 * place for place in places], [8192] * 64, reads) == 1.0
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


def test_how_soon_it_is_worn_out() -> None:
    memory = metrics("4KiB", {"name": "paged"})["memory"]
    found = memory["memories"]["far"]
    assert memory["writes_a_day"] == found["writes_a_day"] > 0
    assert memory["years"] == found["years"]
    assert found["years"] == pytest.approx(1000 / found["writes_a_day"] / 365.25)
