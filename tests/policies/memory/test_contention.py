"""What do transfers beside a step take from it, as the cycle model has it?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hwmodel.kernel.memory import Descriptors
from hwmodel.measure.paced import write_queue_bytes
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.kv_layout import KvLayout, Units
from policies.memory.contention import Contention, Moving, Slowdown, accesses, runs
from policies.memory.fidelity import FidelitySpec
from policies.memory.interval import confidence_interval
from policies.placements.placement import none, whole
from policies.placements.turn import Turn
from tests.policies.serving.test_pools import pools
from tests.policies.serving.test_sessions import talks
from tests.policies.transfers.test_tiers import served, tiers

LPDDR = load_device("mlu370-x4")
TOGETHER = {"fidelity": "sampled", "phases": "together", "max_probes": 2}


def own(each_bytes: int = 128 << 10) -> Descriptors:
    """A long read by each engine."""
    engines = LPDDR.dma.engines
    engine = np.repeat(np.arange(engines), each_bytes >> 14)
    start = np.arange(len(engine)) << 14
    return Descriptors(engine, start, np.full(len(start), 1 << 14), np.zeros(len(start), bool))


@pytest.mark.parametrize("layout", ["layer_kv_token", "block_layer_kv_token"])
def test_the_stream_is_the_transfer_s_bytes_each_once_in_the_layout_s_order(layout: str) -> None:
    kv = KvLayout(1 << 21, 1024, 3, 2, 64, LAYOUTS[layout])
    blocks = np.array([5, 2, 9])
    moving = Moving(1.0, True, Units(blocks * 16, np.full(3, 16), np.full(3, 16)), 0.0)
    whole = 48 * kv.token_bytes
    *extents, share = runs(kv, moving)
    assert share == 1.0
    start, size = accesses(*extents, 0.0, whole - 1, 512)
    assert size.sum() == whole
    each = [kv.extents(moving.units, layer, half) for layer in range(3) for half in kv.passes]
    asked = {at for e in each for s, n in zip(*e, strict=True) for at in range(s, s + n, 64)}
    moved = {at for s, n in zip(start, size, strict=True) for at in range(s, s + n, 64)}
    assert moved == asked
    unit = (start - kv.base) // (16 * kv.token_bytes) if "block" in layout[:5] else None
    if unit is not None:  # whole blocks one after another
        assert unit.tolist() == np.repeat(blocks, 16 * kv.token_bytes // 512).tolist()
    half = accesses(*extents, 0.5, whole - 1, 512)
    assert (half[0] == np.roll(start, -(len(start) // 2))).all()


@pytest.mark.parametrize("layout", ["layer_kv_token", "block_layer_kv_token"])
def test_of_a_transfer_each_memory_has_what_lies_in_it(layout: str) -> None:
    """Pages of 1 KiB, two in one memory and the next in the other, in the transfer's order."""
    kv = KvLayout(0, 1024, 3, 2, 64, LAYOUTS[layout])
    blocks = np.array([5, 2, 9])
    moving = Moving(1.0, True, Units(blocks * 16, np.full(3, 16), np.full(3, 16)), 0.0)
    turn, moved = Turn(np.array([0, 0, 1]), 2, 1 << 10), []
    for own in (0, 1):
        _, size, share = runs(kv, moving, lambda s, n, _, own=own: turn.part(s, n, own))
        assert share == size.sum() / (48 * kv.token_bytes)
        moved.append((int(size.sum()), share))
    assert sum(size for size, _ in moved) == 48 * kv.token_bytes
    assert sum(share for _, share in moved) == pytest.approx(1)
    alone = runs(kv, moving, lambda s, n, layer: whole(s, n) if layer else none())
    assert alone[2] == pytest.approx(2 / 3)


def test_what_is_simulated_is_longer_than_the_write_queues_hide() -> None:
    assert write_queue_bytes(LPDDR) == 24 * LPDDR.memory.controller.write_queue * 32

    class Streams:
        def at_once(self, *asked: Any) -> Descriptors:
            return own(16 << 10)

    probe = SimpleNamespace(device=LPDDR, start=lambda stream, least: stream)
    spec = FidelitySpec.model_validate(TOGETHER | {"fidelity": "full"})
    layout = KvLayout(1 << 21, 1 << 16, 3, 2, 64)
    units = Units(np.arange(4000) * 16, np.full(4000, 16), np.full(4000, 16))
    found = Contention(cast(Any, probe), cast(Any, Streams()), spec)
    step = cast(Any, SimpleNamespace(chunks=[], tokens=4))
    allocator = cast(Any, SimpleNamespace(layout=layout))
    cost = found.cost(step, allocator, [Moving(100e9, True, units, 0.3)], 0)
    assert cost > 0.5
    assert found.report() == {"cost": cost, "ci95": None, "probes": 1}


def report(probes: list[Slowdown]) -> dict[str, Any]:
    """Of a step of each kind of which so much was found."""
    spec = FidelitySpec.model_validate(TOGETHER | {"fidelity": "full"})
    found = Contention(cast(Any, None), cast(Any, None), spec)
    left = iter(probes)
    found._simulated = lambda *_: next(left)  # type: ignore[method-assign]
    step = cast(Any, SimpleNamespace(chunks=[], tokens=4))
    for at, each in enumerate(probes):
        assert found.cost(step, cast(Any, None), [], at) == pytest.approx(each.lost / each.moved)
    return found.report()


def test_the_cost_of_many_probes_is_a_ratio_with_its_interval() -> None:
    probes = [Slowdown(0.2, 0.4), Slowdown(0.1, 0.4), Slowdown(0.4, 0.4)]
    even = report(probes)
    mean, half = confidence_interval([each.lost / each.moved for each in probes])
    assert even == {"cost": pytest.approx(mean), "ci95": pytest.approx(half), "probes": 3}
    # whatever it is counted in; those that are on one line have no doubt
    uneven = [Slowdown(0.2, 0.4), Slowdown(0.3, 0.9), Slowdown(0.1, 0.1)]
    tenth = report([Slowdown(each.lost / 10, each.moved / 10) for each in uneven])
    assert tenth == pytest.approx(report(uneven))
    sure = report([Slowdown(0.3 * moved, moved) for moved in (0.1, 0.4, 0.8)])
    assert sure["cost"] == pytest.approx(0.3) and sure["ci95"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "way",
    [
        {"tiers": tiers({"block_size": 64}, layerwise=True, contention="simulated")},
        {"tiers": tiers(pauses={"policy": "swap"}, contention="simulated")},
        {"pools": pools(mode="push", transfer="layers", contention="simulated")},
        {"pools": pools(decode={"tensor_parallel": 2}, contention="simulated")},
    ],
)
def test_every_background_transfer_can_be_simulated(way: dict[str, Any]) -> None:
    stream = talks(4, 3)
    policy = {"name": "paged"}
    found = served(stream, 1024, memory=TOGETHER, policy=policy, **way).metrics
    assert found["finished"] == len(stream)
    assert found["memory"]["in_motion"]["cost"] >= 0
