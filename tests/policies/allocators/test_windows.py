"""Sliding windows in the allocators: groups of layers, what they keep, and where it lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.transformer import load_model
from policies.allocators.kv_groups import KvGroups, kv_groups
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
