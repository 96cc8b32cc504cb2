"""Sliding windows in the allocators: groups of layers, what they keep, and where it lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_groups import KvGroups, kv_groups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES, build
from policies.predictors.prediction import Prediction
from tests.policies.small import WINDOWS


def groups_of(model: Any, kind: Any) -> KvGroups:
    found = kv_groups(model, kind)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "size", "kept", "ring"),
    [
        ("gemma-3-12b", 8, [1024] * 5 + [None], (8, 6)),
        ("gemma-3-27b", 10, [1024] * 6 + [None], (2, 31)),  # 52 and 10 layers; 8 are padding
        ("gpt-oss-20b", 12, [128, None], (12, 2)),
        ("mistral-7b-v0.1", 32, [4096], (32, 1)),
    ],
)
def test_groups_are_vllms_and_rings_have_no_padding(
    name: str, size: int, kept: list[int | None], ring: tuple[int, int]
) -> None:
    model = load_model(name)
    found = groups_of(model, "blocks")
    assert (found.size, list(found.kept)) == (size, kept)
    exact = groups_of(model, "ring")
    assert (exact.size, len(exact.kept)) == ring and exact.size * ring[1] == model.layers
    for groups in (found, exact):
        assert len(set(groups.place)) == model.layers
        for layer, (group, place) in enumerate(groups.place):
            assert groups.kept[group] == groups.windows[layer] and place < groups.size
        assert groups.place[0][0] == 0  # in the order of their first layer
    # a kind's layers are dealt to its groups in turn
    near = [layer for layer, window in enumerate(found.windows) if window]
    many = sum(found.near.values())
    assert [found.place[layer][0] for layer in near[: 2 * many]] == list(range(many)) * 2


def test_layers_are_grouped_as_vllm_groups_them() -> None:
    """But for 0.11, which pads nothing where one kind has less than half more than the other."""
    file = Path(__file__).parents[2] / "reference" / "vllm_window_groups.json"
    apart = set()
    for version, models in json.loads(file.read_text()).items():
        for name, facts in models.items():
            kinds = ["window" if window else "full" for window in facts["pattern"]]
            tokens = next(window for window in facts["pattern"] if window)
            window = AttentionWindow(tokens=tokens, pattern=kinds)
            model = WINDOWS.model_copy(update={"layers": facts["layers"], "window": window})
            found = groups_of(model, "blocks")
            ours: list[list[int]] = [[] for _ in found.kept]
            for layer, (group, place) in enumerate(found.place):
                assert place == len(ours[group])
                ours[group].append(layer)
            if ours != facts["groups"]:
                apart.add((version, name))
    assert apart == {("0.11.2", "5 and 4"), ("0.11.2", "7 and 6")}


@pytest.mark.parametrize("name", ["gemma-3-12b", "gpt-oss-20b", "mistral-7b-v0.1"])
def test_blocks_in_use_are_the_closed_form_at_every_length(name: str) -> None:
    model = load_model(name)
    groups = groups_of(model, "blocks")
    layout = KvLayout(0, 1 << 20, groups.size, 1, 16, groups=groups)
    # the chunk is such that a token less than the window would be a block less
    chunk = 514
    ((window, near),) = groups.near.items()
    limits = Limits(10_000, 20_000, step=chunk)
    allocator: Any = build(layout, 1, limits, POLICIES["paged"].Options(name="paged"))
    demand = Demand(2048, 0, Prediction(1.0), output=4000)
    assert allocator.reserve(0, demand, chunk)
    cap = -(-(window - 1 + chunk) // 16) + 1
    stored = chunk
    while stored < 2048 + 4000:
        more = chunk if stored < 2048 else 1
        assert allocator.grow(0, more)
        gone = max(stored - window + 1, 0) // 16  # at the last growth
        stored += more
        blocks = -(-stored // 16)
        held = len(groups.kept) * blocks - near * gone
        assert allocator.reserved[0] == held * 16
        assert allocator.slots - allocator.free_slots == held * 16 == allocator.reserved_total
        assert held <= (len(groups.kept) - near) * blocks + near * min(blocks, cap)
    blocks = -(-(2048 + 4000) // 16)
    most = (len(groups.kept) - near) * blocks + near * min(blocks, cap)
    assert allocator.needs(np.array([2048]), np.array([4001])).tolist() == [most * 16]
