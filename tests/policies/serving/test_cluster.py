"""Does a node serve everybody once, place by what it says, and keep bounds in step?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.serving.cluster import Manager
from policies.serving.cluster_options import ClusterSpec
from policies.serving.node import mean_of
from tests.policies.small import EXPERTS, FakeMemory, mixed, requests, run

STREAM = mixed(240)


def node(cards: int, **options: Any) -> dict[str, Any]:
    return {"cluster": {"cards": cards, **options}, "engine": {"max_model_len": 1024}}


def manager(placement: str, **options: Any) -> Manager:
    stream = requests([0.0] * 6, [500, 10, 10, 10, 10, 10], 10)
    chosen = ClusterSpec.model_validate({"cards": 3, "placement": placement, **options})
    return Manager(chosen, stream, np.full(6, 10.0))


@pytest.mark.parametrize(
    ("placement", "options", "cards"),
    [
        ("round_robin", {}, [0, 1, 2, 0, 1, 2]),
        ("least_requests", {}, [0, 1, 2, 0, 1, 2]),
        ("pressure", {"compute_weight": 1.0}, [0, 1, 2, 0, 1, 2]),
        # 510 tokens on card 0, 20 more a request on the others
        ("pressure", {"compute_weight": 0.0}, [0, 1, 2, 1, 2, 1]),
        # with both: card 0 has half of one, all of the other
        ("pressure", {}, [0, 1, 2, 1, 2, 1]),
    ],
)
def test_placement_by_hand(placement: str, options: dict[str, Any], cards: list[int]) -> None:
    found = manager(placement, **options)
    assert [found.place(request, 0.0) for request in range(6)] == cards


def test_who_has_ended_presses_no_more_and_not_before() -> None:
    found = manager("pressure", compute_weight=0.0)
    assert [found.place(0, 0.0), found.place(1, 0.0)] == [0, 1]
    found.ended([0], 2.0)  # 510 tokens leave card 0 as its step ends
    assert found.place(2, 1.9) == 2 and found.count.tolist() == [1, 1, 1]
    assert found.place(3, 2.0) == 0 and found.count.tolist() == [1, 1, 1]
    assert found.tokens.tolist() == [20, 20, 20]


def test_one_card_is_no_node() -> None:
    alone, one = run(2048, STREAM), run(2048, STREAM, cluster={"cards": 1, "placement": "pressure"})
    idle = one.metrics.pop("without_use")  # it is said of the router
    assert one.metrics == alone.metrics and "node" not in one.metrics and len(idle) == 1


def test_cards_with_the_same_requests_are_so_many_times_one_card() -> None:
    alone = requests(np.arange(50) * 1e-3, 100, 40)
    arrival_s = np.repeat(np.arange(50) * 1e-3, 3)
    one = run(1024, alone)
    three = run(1024, requests(arrival_s, 100, 40), cluster={"cards": 3})
    assert three.finish_s[::3] == pytest.approx(one.finish_s, rel=1e-12)
    assert three.finish_s[2::3] == pytest.approx(one.finish_s, rel=1e-12)
    ratio = (
        three.metrics["makespan_output_tokens_per_s"] / one.metrics["makespan_output_tokens_per_s"]
    )
    assert ratio == pytest.approx(3)
    assert three.metrics["batch"] == pytest.approx(one.metrics["batch"])
    assert three.metrics["utilization"] == one.metrics["utilization"]
    assert three.metrics["node"]["imbalance"] == 0
    busy = [card["busy_s"] for card in three.metrics["node"]["cards"]]
    assert busy == pytest.approx([busy[0]] * 3)


def test_replicas_measure_the_streams_of_experts_once() -> None:
    def measured(cards: int) -> int:
        memory = FakeMemory()
        run(4096, mixed(40), shape=EXPERTS, memory={}, **node(cards), simulate=memory)
        return len(memory.calls)

    assert measured(3) <= measured(1)


def test_reports_of_cards_become_one() -> None:
    """30 and 10 requests: weights of 3/4 and 1/4; a card without an interval leaves none."""
    reports = [
        {"kind": "a", "hits": 0.2, "ci95": 0.1, "phase": {"ci95": 0.1, "banks": None}, "rows": [1]},
        {"kind": "a", "hits": 1.0, "ci95": None, "phase": {"ci95": 0.3, "banks": {}}, "rows": [2]},
    ]
    assert mean_of(reports, np.array([30, 10])) == {
        "kind": "a", "hits": pytest.approx(0.4), "ci95": None,
        "phase": {"ci95": pytest.approx(0.15), "banks": None},
    }  # fmt: skip


def test_a_card_that_is_done_is_idle_until_the_last_one_is() -> None:
    """5 output tokens on one card, 400 on the other: what is not busy is idle."""
    metrics = run(2048, requests([0.0, 0.0], 10, [5, 400]), cluster={"cards": 2}).metrics
    busy = [card["busy_s"] for card in metrics["node"]["cards"]]
    assert busy[1] == pytest.approx(metrics["makespan_s"]) and busy[0] < 0.1 * busy[1]
    assert metrics["limit_share"]["idle"] == pytest.approx((busy[1] - busy[0]) / (2 * busy[1]))
