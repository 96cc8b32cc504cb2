"""Which probes count for an efficiency, and when does the next one come?"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.allocators.kv_layout import KvLayout
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import Probed
from policies.memory.sampling import SampledMemory
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency
from tests.policies.small import MODEL, device

LAYOUT = KvLayout(0, 4096, 2, 2, 16)
"""32 bytes of K a token and layer."""
STREAMS = StepStreams(device(4096, "work.spread=split"), MODEL, 4096)


class Scripted:
    """A probe that finds these shares of the peak one after the other."""

    piece_bytes, wall_s = 1024, 0.5

    def __init__(self, shares: list[float], **found: Any) -> None:
        self.device = device(4096)
        self.memory = self.device.memory
        self.simulated_bytes = 0
        self.shares, self.found = shares, found
        self.asked: list[bool] = []
        self.spreads: set[str] = set()

    def measure(self, layer: Any, layers: int, *how: Any) -> Probed:
        spread, _, calibrate, _ = how
        self.spreads.add(spread)
        self.asked.append(calibrate)
        self.simulated_bytes += 1000
        result = SimpleNamespace(
            gbps=100.0 + len(self.asked), row_hits=3, row_misses=1, row_conflicts=1, commands={},
            simulated_ns=10.0, active_ns=0.0,
        )  # fmt: skip
        plain = Probed(100.0, 100.0 / self.shares[len(self.asked) - 1], result, True)
        return plain._replace(**self.found)


def memory(probe: Scripted, **spec: Any) -> SampledMemory:
    plain = {"every_steps": 1, "spacing": 0.0, "precision": 9.0}
    return SampledMemory(
        Efficiency(), {}, FidelitySpec(**{**plain, **spec}), probe, LAYOUT, STREAMS, 1  # type: ignore[arg-type]
    )  # fmt: skip


def batch(extents: int = 10, requests: int = 2, changes: int = 0) -> tuple[Step, Any]:
    """A step that decodes, of requests in so many extents of ten tokens; its engine."""
    step = Step(np.arange(requests), 10 * extents, [], [], 0, "batch")
    allocator = SimpleNamespace(extent_count=lambda _: extents)
    return step, SimpleNamespace(allocator=allocator, changes=changes)


def probed_at(
    shares: list[float], extents: Callable[[int], int] = lambda step: 10, **spec: Any
) -> list[int]:
    """The steps at which attention was probed, of as many as there are shares; each of them has
    changed."""
    probe = Scripted(shares)
    sampled, found = memory(probe, **spec), []
    for step in range(len(shares)):
        before = len(probe.asked)
        sampled.observe(*batch(extents(step), changes=step))
        sampled.passed(1)
        found += [step] * (len(probe.asked) - before)
    return found


@pytest.mark.parametrize(
    ("spec", "extents", "expected"),
    [
        ({"every_steps": 7}, lambda step: 10, [0, 7, 14]),
        ({"every_steps": 7, "max_probes": 2}, lambda step: 10, [0, 7]),
        # after step 4 each waits for as long as it took so far
        ({"every_steps": 4, "spacing": 1.0}, lambda step: 10, [0, 4, 8, 16]),
        # placement moves by a fifth, which does not ask, and by more
        ({"every_steps": 99}, lambda step: 12 if step > 5 else 10, [0]),
        ({"every_steps": 99}, lambda step: 13 if step > 5 else 10, [0, 6]),
        ({"every_steps": 99}, lambda step: 10 if step > 5 else 13, [0, 6]),
        # near the last probe only a change to more than four times asks
        ({"every_steps": 99, "spacing": 2.0}, lambda step: 40 if step > 5 else 10, [0]),
        ({"every_steps": 99, "spacing": 2.0}, lambda step: 41 if step > 5 else 10, [0, 6]),
    ],
)
def test_when_does_the_next_probe_come(
    spec: dict[str, Any], extents: Callable[[int], int], expected: list[int]
) -> None:
    assert probed_at([0.5] * 21, extents, **spec) == expected
