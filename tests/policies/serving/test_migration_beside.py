"""Do requests that migrate keep every byte once beside what else serving has?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.transformer import TransformerSpec
from policies.serving.migration import Migrating
from policies.serving.serving import serve
from policies.transfers.tier_store import TierStore
from policies.transfers.tiers import Tiers
from policies.transfers.transfer import states
from tests.policies.serving.features import EXPERTS, HYBRID, WINDOWS
from tests.policies.serving.test_moving import LINK, SHAPE, Watched, burst, card
from tests.policies.small import FakeMemory, spec
from tests.rotation import shared

COUNT = 60
CLUSTER = {
    "cards": 3, "migration": {"link": LINK, "every_s": 0.002, "last_blocks": 3, "freeness": 16},
}  # fmt: skip
FAULTS = [{"replica": at % 3, "at_s": 0.004 + 0.0023 * at, "down_s": 0.003} for at in range(9)] + [
    {"at_s": 0.03, "down_s": 0.002}
]
"""One after the other, then all at once."""
TIER: dict[str, Any] = {"host": {"link": "nvme-pcie4", "cpu_bytes_to_use": "64MiB"}}
HIDDEN = {"host": {**TIER["host"], "hcache": {}}}
BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{
        name: ({"policy": {"name": name}}, {})
        for name in ("static", "odma", "odma-best", "s3", "radix")
    },
    "orca": ({"policy": {"name": "orca"}, "engine": {"max_model_len": 768}}, {}),
    "vattention": ({"policy": {"name": "vattention", "frame": "4KiB"}}, {}),
    "copied prefixes": ({"policy": {"name": "s3", "prefixes": "copy"}}, {}),
    "tier": ({"tiers": TIER}, {}),
    "hidden states": ({"tiers": HIDDEN}, {}),
    "states": ({}, HYBRID),
    "windows": ({}, WINDOWS),
    "experts": ({"expert_parallel": "linear"}, EXPERTS),
    "int8": ({"kv": "oaken", "kv_layout": "layer_kv_head_block"}, {}),
}
"""What of the serving description, and of the model, is other."""


def found(
    beside: dict[str, Any], model: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    cluster: dict[str, Any] = CLUSTER,
) -> tuple[dict[str, Any], Watched]:  # fmt: skip
    """A run, and who looked at it."""
    watched = Watched(monkeypatch)
    shape: TransformerSpec = SHAPE.model_copy(update=model)
    stream = burst(COUNT, rate=6000.0)
    if "prefixes" in beside.get("policy", {}):
        stream = dataclasses.replace(
            stream, prefix_id=np.arange(COUNT) % 2, prefix_tokens=np.full(COUNT, 64),
            prompt_tokens=stream.prompt_tokens + 64,
        )  # fmt: skip
    capacity = card(1536 + (shape.weight_bytes - SHAPE.weight_bytes) // SHAPE.kv_token_bytes)
    given = spec(cluster=cluster, **beside)
    metrics = serve(capacity, shape, given, stream, seed=1, simulate=FakeMemory()).metrics
    return metrics, watched


@pytest.mark.parametrize("fails", [False, True], ids=["", "failing"])
@pytest.mark.parametrize("name", shared(list(BESIDE), every=2))
def test_every_byte_of_kv_is_in_one_place(
    name: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, model = BESIDE[name]
    metrics, watched = found(
        {**beside, **({"faults": FAULTS} if fails else {})}, model, monkeypatch
    )
    assert metrics["finished"] == COUNT and watched.looks > COUNT
    moves = metrics["node"]["migration"]
    assert moves["moved"] and moves["lost_bytes"] < moves["bytes"]
    assert bool(metrics["node"]["failures"]) == fails
    all_is_free(watched)


def all_is_free(watched: Watched) -> None:
    """But for what is stored to a tier at the end."""
    for replica in watched.node.built:
        allocator = replica.engine.allocator
        assert set(np.flatnonzero(allocator.resident).tolist()) <= set(replica.engine.held)


@pytest.mark.parametrize("seed", shared(range(8), every=8))
def test_requests_end_once_where_cards_fail_all_the_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    faults = [{"mean_up_s": 0.01 * (1 + seed), "down_s": 0.002}]
    given = spec(cluster=CLUSTER, faults=faults, tiers=TIER if seed % 2 else None)
    metrics = serve(card(1536), SHAPE, given, burst(COUNT, seed, 6000.0), seed=seed).metrics
    assert metrics["finished"] == COUNT and metrics["node"]["failures"] > 3
    assert metrics["node"]["migration"]["lost_bytes"]
    all_is_free(watched)


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
    metrics, _ = found({}, HYBRID, monkeypatch)
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
    metrics, _ = found({"tiers": HIDDEN}, {}, monkeypatch)
    assert came and metrics["tiers"]["store"]["transfers"]
