"""Whole experts on each card: is what all cards read and compute that of one, and what do the cards
wait for?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.mlp import CardExperts, ExpertsSpec
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.memory.routing import Routing, RoutingSpec, owners, probabilities
from policies.memory.step import StepModel
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency
from tests.policies.memory.test_routing import decode
from tests.policies.small import EXPERTS, device
from tests.rotation import rotated

UNEVEN = EXPERTS.model_copy(
    update={"experts": ExpertsSpec(count=6, per_token=2, intermediate=30, shared_intermediate=64)}
)
"""Six experts on four cards, each of a width that four do not divide."""


def card(model: TransformerSpec, cards: int, *how: Any) -> tuple[TransformerSpec, CardExperts]:
    part = shard(model, cards, *(how or ("linear",)))
    assert isinstance(part.experts, CardExperts)
    return part, part.experts


@pytest.mark.parametrize("placement", ["linear", "balanced"])
@pytest.mark.parametrize(("model", "cards"), [(EXPERTS, 2), (EXPERTS, 4), (UNEVEN, 4)])
def test_every_expert_is_on_one_card(model: Any, cards: int, placement: str) -> None:
    _, experts = card(model, cards, placement)
    share = probabilities(experts.count, experts.per_token, 0.8)
    order = np.random.default_rng(0).permutation(experts.count)
    owner = owners(experts, share, order)
    many = np.bincount(owner, minlength=cards)
    assert many.max() == experts.held and many.max() - many.min() <= 1 and many.sum() == len(order)
    if placement == "linear":
        assert (np.diff(owner[np.argsort(order)]) >= 0).all()
    else:
        first = owners(card(model, cards)[1], share, order)
        loads = [np.bincount(each, share).max() for each in (owner, first)]
        assert loads[0] <= loads[1]


@pytest.mark.parametrize(("batch", "chunk", "skew", "placement"), rotated(
    [1, 6], [0, 9], [0.0, 1.0], ["linear", "balanced"],
))  # fmt: skip
def test_the_closed_form_is_the_mean_of_the_streams(
    batch: int, chunk: int, skew: float, placement: str
) -> None:
    part, experts = card(EXPERTS, 4, placement)
    routing = Routing(experts, RoutingSpec(skew=skew), 1)
    big, step = device(1024), decode(batch, chunk)
    streams = StepStreams(big, part, 4096, routing)
    moved = np.array([
        sum(
            int(each.size.sum())
            for each in streams.of(step, None, range(3), ["weights"], draw)  # type: ignore[arg-type]
        )
        for draw in range(40)
    ])  # fmt: skip
    steps = StepModel(big, part, 4, routing=routing)
    expected = steps.work.weight_bytes(step) - part.head_weight_bytes
    # and of the simulation of the fullest card, in experts of a layer
    error = 4 * moved.std() / len(moved) ** 0.5 + 0.02 * 2 * sum(part.expert_bytes(1))
    assert abs(moved.mean() - expected) <= error
    # all cards together read what one alone does, and what is on every card
    alone = Routing(EXPERTS.experts, RoutingSpec(skew=skew), 1)  # type: ignore[arg-type]
    mean = steps.times(step, 1, Efficiency()).work.phases["weights"].moved
    distinct = alone.expected(step.batched) / 4
    idle = (experts.held - distinct) * 2 * sum(part.expert_bytes(1))
    assert mean == pytest.approx(part.step_weight_bytes - idle, abs=2)


def test_one_token_on_two_cards_is_hypergeometric() -> None:
    _, experts = card(load_model("qwen3-30b-a3b"), 2)
    ways = [math.comb(64, on) * math.comb(64, 8 - on) for on in range(9)]
    expected = sum(max(on, 8 - on) * each for on, each in enumerate(ways)) / math.comb(128, 8)
    found = Routing(experts).most(1)
    assert found.distinct == pytest.approx(expected, rel=0.01)
    assert found.pairs == pytest.approx(found.distinct) and found.tokens == pytest.approx(1)
