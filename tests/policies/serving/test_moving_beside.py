"""Do requests that migrate, and cards that drop their copies, go with faults, tiers, windows and
states?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.specs.link import load_link
from hwmodel.specs.stages import stages_of
from policies.serving.drop_groups import (
    exchanged,
    lacking_bytes,
    most_stages,
    moved_layers,
    pipeline_order,
)
from policies.serving.dropping import Dropping
from policies.serving.serving import serve
from tests.policies.serving.features import HYBRID, WINDOWS
from tests.policies.serving.test_moving import DROPPING, LINK, SHAPE, burst, card
from tests.policies.small import spec

COUNT = 120
FAULTS = [{"replica": at % 4, "at_s": 0.02 + 0.017 * at, "down_s": 0.01} for at in range(9)]


def test_a_group_ends_with_the_first_of_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[float, dict[int, float]]] = []
    broken = Dropping._break

    def breaking(control: Dropping, group: Any, lost: int, at_s: float) -> None:
        broken(control, group, lost, at_s)
        own = {each: control.node.own[each].now_s - at_s for each in group if each != lost}
        assert list(own.values()) == pytest.approx([control.pull_s(len(group))] * len(own))
        assert all(control.replica(each) is control.node.own[each] for each in group)
        ended.append((at_s, own))

    monkeypatch.setattr(Dropping, "_break", breaking)
    given = spec(cluster=DROPPING, faults=FAULTS)
    metrics = serve(card(2048), SHAPE, given, burst(COUNT), seed=1).metrics
    assert len(ended) == metrics["node"]["dropping"]["broken"] > 0


def test_replicas_in_stages_merge_stage_by_stage() -> None:
    pair = pipeline_order((0, 1), 2)
    assert pair == [(0, 0), (1, 0), (0, 1), (1, 1)]
    alone = pipeline_order((0,), 2)
    assert moved_layers(8, alone, pair) == [2, 3]  # the other half of the first stage's layers
    assert moved_layers(8, pair, alone) == [2, 3]
    assert moved_layers(8, pair, pipeline_order((1,), 2)) == [0, 1]
    whole, parts = stages_of(SHAPE, 2), stages_of(SHAPE, 4)
    lost = max(whole[at // 2].weight_bytes - part.weight_bytes for at, part in enumerate(parts))
    assert lacking_bytes(SHAPE, 2, 2) == lost < lacking_bytes(SHAPE, 2, 1)


def test_a_request_leaves_with_what_its_layers_keep() -> None:
    link = load_link(LINK)
    hybrid, windowed = (SHAPE.model_copy(update=each) for each in (HYBRID, WINDOWS))
    plain = exchanged(link, SHAPE, 512, range(2), 256)
    with_state = exchanged(link, hybrid, 512, range(4), 256)
    state = next(kind.state.bytes() for kind in hybrid.kinds if kind.state is not None)
    assert with_state[1] - plain[1] == 2 * state and with_state[0] > plain[0]
    near = exchanged(link, windowed, 512, range(4), 256)
    assert near[1] == (2 * 512 + 2 * 64) * SHAPE.kv_layer_bytes
    assert most_stages(SHAPE) == 8 and most_stages(hybrid) == 4
