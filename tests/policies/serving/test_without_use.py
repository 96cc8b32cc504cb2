"""Is what is accepted and has no effect named, and nothing else?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.specs.accelerator import AttentionWork
from policies.serving.combinations import unjoined, without_use
from tests.policies.small import EXPERTS, MODEL, mixed, run, spec

LINK = "mooncake-rdma-400"
TWO = {"cards": 2}
ODMA = {"name": "odma"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cluster": {**TWO, "compute_weight": 0.1}}, "cluster.compute_weight"),
        ({"cluster": {**TWO, "cache_threshold": 0.1}}, "cluster.cache_threshold"),
        ({"cluster": {**TWO, "bounds": "own"}}, "cluster.bounds"),
        ({"cluster": {"bounds": "own"}, "policy": ODMA}, "cluster.bounds"),
        ({"cluster": {"placement": "session"}}, "cluster.placement"),
        ({"pools": {"prefill": {"placement": "pressure"}, "decode": {}, "link": LINK}},
         "cluster.placement"),
        ({"routing": {"skew": 1.0}}, "routing.skew"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_named(changes: dict[str, Any], named: str) -> None:
    (said,) = without_use(spec(**changes), MODEL)
    assert said.startswith(f"{named}: nothing to do")
    stream, metrics = mixed(8), run(2048, mixed(8), **changes).metrics
    assert metrics.pop("without_use") == [said]
    if not {"policy", "pools"} & set(changes):
        cards = changes.get("cluster", {}).get("cards", 1)
        assert metrics == run(2048, stream, cluster={"cards": cards}).metrics


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cluster": {**TWO, "placement": "pressure", "compute_weight": 0.1}},
        {"cluster": {**TWO, "bounds": "own"}, "policy": ODMA},
        {"cluster": {**TWO, "placement": "prefix", "cache_threshold": 0.0}},
        {"pools": {"prefill": {"replicas": 2, "placement": "pressure"}, "decode": {}, "link": LINK},
         "cluster": {"compute_weight": 0.1}},
    ],
)  # fmt: skip
def test_what_is_read_is_not(changes: dict[str, Any]) -> None:
    assert not without_use(spec(**changes), MODEL)


def test_a_model_with_experts_has_a_use_for_their_skew() -> None:
    assert not without_use(spec(routing={"skew": 1.0}), EXPERTS)


@pytest.mark.parametrize(
    ("read", "order", "kind", "said"),
    [
        ("head", "layer_kv_block_head", "spread", True),
        ("head", "LHBNC", "spread", False),
        ("head", "layer_kv_block_head", "fifo", False),
        ("slice", "layer_kv_block_head", "spread", False),
    ],
)
def test_blocks_that_no_core_reads_as_one_are_named(
    read: Any, order: str, kind: str, said: bool
) -> None:
    found = spec(policy={"name": "paged", "free_list": kind}, kv_layout=order)
    device: Any = SimpleNamespace(accelerator=SimpleNamespace(work=AttentionWork(spread=read)))
    assert len([*unjoined(found, device)]) == said
