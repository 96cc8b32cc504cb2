"""Do requests that migrate, and cards that drop their copies, go with faults, tiers, windows and
states?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.specs.link import load_link
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.serving.drop_groups import (
    exchanged,
    lacking_bytes,
    most_stages,
    moved_layers,
    pipeline_order,
)
from policies.serving.dropping import Dropping
from policies.serving.migration import Migrating
from policies.serving.serving import serve
from policies.transfers.tier_store import TierStore
from policies.transfers.tiers import Tiers
from policies.transfers.transfer import states
from tests.policies.serving.features import HYBRID, WINDOWS, Setting, patience, run_of, stream
from tests.policies.serving.test_moving import (
    DROPPING,
    HIDDEN,
    LINK,
    MIGRATION,
    SHAPE,
    TIER,
    Watched,
    burst,
    card,
)
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


def test_tiers_of_cards_that_drop_begin_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[int] = []
    retire = Tiers.retire

    def retiring(tiers: Tiers) -> None:
        held = len(tiers.store.host)
        retire(tiers)
        assert not len(tiers.store.host) and not tiers.store.loads and not tiers.store.coming
        emptied.append(held)

    monkeypatch.setattr(Tiers, "retire", retiring)
    given = spec(cluster=DROPPING, tiers=TIER)
    node = serve(card(2048), SHAPE, given, burst(COUNT), seed=1).metrics["node"]["dropping"]
    assert len(emptied) >= 2 * node["drops"] + node["restores"] and max(emptied) > 0


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


def test_do_cards_not_drop_again_what_has_just_come_back() -> None:
    options = {"link": LINK, "every_s": 0.002, "frame": "64KiB", "restore_below": 0.95}
    changes = {"cluster": {"cards": 2, "dropping": options}}
    with patience():
        metrics = run_of((), [], Setting(stream(), tokens=1024, changes=changes)).metrics
    dropping = metrics["node"]["dropping"]
    assert 1 <= dropping["restores"] <= dropping["drops"] <= 4


def migrated(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], **beside: Any
) -> dict[str, Any]:
    """The metrics of a run that is looked at between any two steps."""
    watched = Watched(monkeypatch)
    shape: TransformerSpec = SHAPE.model_copy(update=model)
    capacity = card(1536 + (shape.weight_bytes - SHAPE.weight_bytes) // SHAPE.kv_token_bytes)
    given = spec(cluster=MIGRATION, **beside)
    metrics = serve(capacity, shape, given, burst(60, rate=6000.0), seed=1).metrics
    assert metrics["finished"] == 60 < watched.looks
    return metrics


def test_a_state_goes_whole_with_the_last_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[bool] = []
    copy = Migrating.copy

    def watched(control: Migrating, move: Any, tokens: int, last: bool = False) -> Any:
        found = copy(control, move, tokens, last)
        plain = copy(control, move, tokens)
        beside.append(last)
        state = states(control._model)
        assert state is not None and found.bytes - plain.bytes == last * state.bytes
        return found

    monkeypatch.setattr(Migrating, "copy", watched)
    metrics = migrated(monkeypatch, HYBRID)
    assert sum(beside) == metrics["node"]["migration"]["moved"] < len(beside)


def test_hidden_states_are_kept_where_they_were_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    came: set[tuple[int, int]] = set()
    joined, store = Tiers.joined, TierStore.store

    def joining(tiers: Tiers, request: int) -> None:
        came.add((id(tiers.store), request))
        joined(tiers, request)

    def storing(own: TierStore, request: int, *given: Any) -> bool:
        assert (id(own), request) not in came
        return store(own, request, *given)

    monkeypatch.setattr(Tiers, "joined", joining)
    monkeypatch.setattr(TierStore, "store", storing)
    metrics = migrated(monkeypatch, {}, tiers=HIDDEN)
    assert came and metrics["tiers"]["store"]["transfers"]
