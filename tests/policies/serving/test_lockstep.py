"""Data-parallel attention over experts in common: does a step of one card wait for all?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.mlp import CardExperts
from hwmodel.specs.transformer import shard
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.routing import Routing
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.small import EXPERTS, device, mixed, requests, run

EXCHANGES = ("all_reduce", "all_to_all")


def common(cards: int, exchange: str = "all_reduce") -> dict[str, Any]:
    return {
        "shape": EXPERTS, "cluster": {"cards": cards}, "expert_parallel": "linear",
        "expert_exchange": exchange,
    }  # fmt: skip


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_equal_requests_end_as_steps_of_all_their_tokens(exchange: str) -> None:
    prompt, output, cards = 40, 20, 4
    part = shard(EXPERTS, 1, "linear", exchange, cards)  # type: ignore[arg-type]
    assert isinstance(part.experts, CardExperts)
    steps = StepModel(device(4096), part, routing=Routing(part.experts, None, 1))

    def ended(requests_elsewhere: int) -> float:
        chunk = Step(np.arange(0), 0, [Chunk(0, 0, prompt, True)], [], 0, "")
        chunk = chunk._replace(elsewhere=(0, requests_elsewhere * prompt))
        decode = Step(np.arange(1), prompt, [], [], 0, "", elsewhere=(requests_elsewhere, 0))
        both = (steps.times(chunk, 1, Efficiency()), steps.times(decode, output - 1, Efficiency()))
        return float(sum(times.total_s.sum() for times in both))

    for alone in (False, True):
        stream = requests([0.0] * (1 if alone else cards), prompt, output)
        found = run(4096, stream, **common(cards, exchange))
        assert found.finish_s == pytest.approx(ended(0 if alone else cards - 1), rel=1e-9)


def test_what_a_card_holds_is_all_but_the_others_experts() -> None:
    part = shard(EXPERTS, 1, "linear", "all_reduce", 4)
    lacks = 2 * 12 * sum(EXPERTS.expert_bytes(1))
    assert part.weight_bytes == EXPERTS.weight_bytes - lacks
    assert (part.heads, part.kv_heads) == (EXPERTS.heads, EXPERTS.kv_heads)


def test_single_steps_end_as_those_advanced_together() -> None:
    together, single = (
        run(2048, mixed(40), advance_together=way, **common(3)) for way in (True, False)
    )
    assert together.finish_s == pytest.approx(single.finish_s, rel=1e-9)
    node = together.metrics["node"]["cards"]
    assert [each["requests"] for each in node] == [14, 13, 13]
