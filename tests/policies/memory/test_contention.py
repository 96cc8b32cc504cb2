"""What do transfers beside a step take from it, as the cycle model has it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.kv_layout import KvLayout, Units
from policies.memory.contention import Moving, accesses, runs
from tests.policies.serving.test_pools import pools
from tests.policies.serving.test_sessions import talks
from tests.policies.transfers.test_tiers import served, tiers

TOGETHER = {"fidelity": "sampled", "phases": "together", "max_probes": 2}


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
