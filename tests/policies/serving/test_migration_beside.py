"""Do requests that migrate keep every byte once beside what else serving has?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.specs.transformer import TransformerSpec
from policies.serving.migration import Migrating
from policies.serving.serving import serve
from policies.transfers.tier_store import TierStore
from policies.transfers.tiers import Tiers
from policies.transfers.transfer import states
from tests.policies.serving.features import HYBRID
from tests.policies.serving.test_moving import LINK, SHAPE, Watched, burst, card
from tests.policies.small import spec

CLUSTER = {
    "cards": 3, "migration": {"link": LINK, "every_s": 0.002, "last_blocks": 3, "freeness": 16},
}  # fmt: skip
TIER: dict[str, Any] = {"host": {"link": "nvme-pcie4", "cpu_bytes_to_use": "64MiB"}}
HIDDEN = {"host": {**TIER["host"], "hcache": {}}}


def found(monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], **beside: Any) -> dict[str, Any]:
    """The metrics of a run that is looked at between any two steps."""
    watched = Watched(monkeypatch)
    shape: TransformerSpec = SHAPE.model_copy(update=model)
    capacity = card(1536 + (shape.weight_bytes - SHAPE.weight_bytes) // SHAPE.kv_token_bytes)
    given = spec(cluster=CLUSTER, **beside)
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
    metrics = found(monkeypatch, HYBRID)
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
    metrics = found(monkeypatch, {}, tiers=HIDDEN)
    assert came and metrics["tiers"]["store"]["transfers"]
