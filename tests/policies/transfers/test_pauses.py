"""What becomes of KV while its session pauses: does each way cost what it should?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from policies.transfers.pausing import BesideBatch, Pauses, StepCost, drop_waste
from tests.policies.small import MODEL, run

ENGINE = {"name": "v1", "max_model_len": 1024}
LINK = "pcie5-h100-batched"
WAYS: dict[str, dict[str, Any]] = {
    "keep": {"policy": "keep"},
    "drop": {"policy": "drop"},
    "swap": {"policy": "swap"},
    "least, known": {"policy": "least", "known": True},
    "least": {"policy": "least"},
}


def served(stream: Requests, slots: int, pauses: dict[str, Any], **changes: Any) -> ServingResult:
    host = {"link": LINK, "cpu_bytes_to_use": "4MiB"}
    tiers = {"host": host, "pauses": pauses, **changes.pop("tiers", {})}
    return run(slots, stream, **{"engine": ENGINE, **changes}, tiers=tiers)


ENGINES = [
    ENGINE, {**ENGINE, "async_scheduling": True},
    {**ENGINE, "async_scheduling": True, "ends": "length"},
]  # fmt: skip


def two_turns(pause_s: float = 0.01) -> Requests:
    """160 + 17 tokens, of which 176 are stored, 11 blocks; the next turn begins with them. Between
    them others fill a device of 512 slots."""
    return Requests(
        np.array([0.0, 0.0, 0.001]), np.array([160, 200, 496]), np.array([17, 2, 2]),
        session=np.array([0, 0, 1]), think_s=np.array([np.nan, pause_s, np.nan]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("way", "slots", "computed", "loads"),
    [
        ("keep", 2048, 160 + 496 + 24, 0),
        ("drop", 2048, 160 + 496 + 200, 0),
        ("swap", 2048, 160 + 496 + 24, 0),  # its blocks are still there
        ("swap", 512, 160 + 496 + 24, 1),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_turn_finds_what_the_way_left(
    way: str, slots: int, computed: int, loads: int, engine: dict[str, Any]
) -> None:
    """With asynchronous scheduling as well, though a token too many is decoded."""
    metrics = served(two_turns(), slots, WAYS[way], engine=engine).metrics
    assert metrics["prefill_tokens"] == computed
    assert metrics["tiers"].get("load", {"transfers": 0})["transfers"] == loads
    assert metrics["tiers"]["pauses"][way] == 1
    if way == "swap":  # the turn that pauses, and not the last ones
        assert metrics["tiers"]["store"]["bytes"] == 176 * MODEL.kv_token_bytes


COST, BATCH = StepCost(0.0463e-3, 10e-3, 384), BesideBatch(20, 5000)


def test_least_waste_keeps_up_to_the_pause_at_which_another_way_wastes_as_much() -> None:
    even_s = drop_waste(1000, COST, BATCH) / 1000
    known = Pauses("least", True, lambda batch: COST)
    ways = [known.begins(0, 0.0, f * even_s, 1000, BATCH, 10.0) for f in (0.99, 1.01)]
    assert ways == ["keep", "drop"]
    assert known.begins(0, 0.0, even_s, 1000, BATCH, even_s / 2) == "swap"
    assert known.due_s == np.inf


def test_a_pause_that_is_not_known_is_kept_for_half_of_that() -> None:
    even_s = drop_waste(1000, COST, BATCH) / 1000
    unknown = Pauses("least", False, lambda batch: COST)
    assert unknown.begins(0, 1.0, 0.0, 1000, BATCH, 10.0) == "keep"
    assert unknown.due_s == pytest.approx(1.0 + even_s / 2)
    assert unknown.over(1.0) == {}
    assert unknown.over(unknown.due_s) == {0: "drop"}
    assert unknown.begins(1, 1.0, 0.0, 1000, BATCH, 10.0) == "keep"
    unknown.ends(1)
    assert unknown.due_s == np.inf
