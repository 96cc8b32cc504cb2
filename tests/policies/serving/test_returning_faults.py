"""Do runs whose replicas fail again and again end, with nothing lost, or say why they cannot?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from tests.policies.serving.features import LINK, Audit
from tests.policies.serving.generated import once, serving
from tests.policies.small import Audited, mixed, requests, run
from tests.rotation import shared

LAW = {"mean_up_s": 0.06, "down_s": 0.03}
SIDES = [(1, 1), (2, 2), (1, 3), (3, 1)]
WAYS = [("pull", "whole"), ("push", "whole"), ("push", "layers")]


def pools(sides: tuple[int, int], way: tuple[str, str]) -> dict[str, Any]:
    prefill, decode = ({"replicas": each} for each in sides)
    mode, transfer = way
    return {
        "prefill": prefill, "decode": decode, "link": LINK, "mode": mode, "transfer": transfer,
    }  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("seed", range(3))
def test_pools_lose_nothing(sides: tuple[int, int], way: tuple[str, str], seed: int) -> None:
    """A request comes again while a prefill side still has to learn that it ended there; and while
    one that waits for a replica is there twice."""
    policy = {"name": "paged", "prefix_caching": bool(seed % 2)}
    found = Audited(
        1024, mixed(60), seed, pools=pools(sides, way), faults=[LAW], policy=policy,
        engine={"max_model_len": 1024},
    ).metrics  # fmt: skip
    assert found["pools"]["failures"]["replicas"] > 3


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.long), 72])
def test_what_is_sent_on_by_a_second_group_comes_again_once(number: int) -> None:
    """Dropping: a card fails that sends what it was to receive."""
    drawn = serving(71, number, faults=True)
    assert {"dropping", "windows of two lengths"} <= set(drawn.names)  # else look for another
    found = once(drawn)
    assert isinstance(found, Audit) and found.breaches == []


@pytest.mark.parametrize("number", shared(range(300), every=75))
def test_a_drawn_serving_with_returning_faults_loses_nothing(number: int) -> None:
    found = once(serving(2, number, faults=True))
    assert isinstance(found, str) or found.breaches == []


def test_cards_that_are_up_for_less_than_a_step_are_named() -> None:
    law = {"mean_up_s": 1e-7, "down_s": 60.0}
    with pytest.raises(DescriptionError, match=r"replicas failed 1000 times.*faults\.mean_up_s"):
        run(1024, requests([0.0], 100, 20), faults=[law], pools=pools((1, 2), WAYS[0]))


def test_idle_cards_may_fail_as_often_as_they_like() -> None:
    """One request comes in the first moment, and one after thousands of failures."""
    found = run(1024, requests([0.0, 15.0], 100, 20), faults=[{"mean_up_s": 0.01, "down_s": 0.001}])
    assert found.metrics["finished"] == 2 and found.metrics["node"]["failures"] > 1000
