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


def test_links_carry_all_tokens_once_to_each_card() -> None:
    big, step = device(1024), Step(np.arange(3), 300, [], [], 0, "")._replace(elsewhere=(9, 0))
    link = big.accelerator.link  # type: ignore[union-attr]
    parts = [shard(EXPERTS, 1, "linear", way, 4) for way in EXCHANGES]  # type: ignore[arg-type]
    gather, direct = (StepModel(big, part).times(step, 1, Efficiency()) for part in parts)
    # two layers of experts; attention needs no link
    assert gather.all_reduce_s == pytest.approx(2 * link.all_reduce_s(4, 12 * 128))  # type: ignore[union-attr]
    tokens = Routing(parts[1].experts).most(12).tokens  # type: ignore[arg-type]
    each_s = tokens * 3 / 4 * 128 / link.bandwidth + link.latency * 1e-9  # type: ignore[union-attr]
    assert direct.all_reduce_s == pytest.approx(4 * each_s)


def test_experts_compute_the_tokens_of_all_each_at_its_own_rate() -> None:
    card = device(1024, "compute.decode_efficiency=0.01", "compute.prefill_efficiency=0.02")
    part = shard(EXPERTS, 1, "linear", "all_reduce", 4)
    steps = StepModel(card, part, free=["weights"])
    own = Step(np.arange(3), 300, [], [], 0, "")
    alone, decoded, chunked = (
        steps.times(own._replace(elsewhere=each), 1, Efficiency()).weights_s
        for each in ((0, 0), (500, 0), (0, 500))
    )
    few, many = (Routing(part.experts).most(tokens).pairs for tokens in (3, 503))  # type: ignore[arg-type]
    each = 2 * 3 * 64 * 32 * 2  # FLOPs of an expert in two layers
    rate = card.accelerator.compute.peak("fp16") * 0.01  # type: ignore[union-attr]
    assert (decoded - alone) * rate == pytest.approx((many - few) * each, rel=1e-6)
    mixed_rate = many * each / 503 * (3 + 500 / 2)
    assert (chunked - alone) * rate == pytest.approx(mixed_rate - few * each, rel=1e-6)


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
