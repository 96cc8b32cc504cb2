"""Are the experts that a step's tokens pass through read, those alone, and as many as expected?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.mlp import ExpertsSpec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.routing import Routing, RoutingSpec, probabilities
from policies.memory.step import StepModel
from policies.memory.step_streams import StepStreams
from tests.policies.small import EXPERTS, device

MANY = ExpertsSpec(count=128, per_token=8, intermediate=1)


def decode(batch: int, chunk: int = 0) -> Step:
    chunks = [Chunk(0, 0, chunk, True)] if chunk else []
    return Step(np.arange(batch), batch * 100, chunks, [], 0, "")


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.2, 4.0])
def test_probabilities_add_up_to_the_experts_of_a_token(skew: float) -> None:
    share = probabilities(128, 8, skew)
    assert share.sum() == pytest.approx(8) and share.max() <= 1
    assert (np.diff(share) <= 1e-12).all()
    assert probabilities(4, 4, skew).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("skew", [0.0, 1.2])
@pytest.mark.parametrize("tokens", [1, 8, 300])
def test_draws_are_those_of_the_law(tokens: int, skew: float) -> None:
    routing = Routing(MANY, RoutingSpec(skew=skew), 5)
    drawn = [routing.touched(tokens, 3, draw) for draw in range(150)]
    sizes = np.array([len(each) for each in drawn])
    error = 4 * sizes.std() / len(sizes) ** 0.5
    assert abs(sizes.mean() - routing.expected(tokens)) <= error + 1e-6
    if tokens == 1:
        assert set(sizes) == {8}
    assert all((np.diff(each) > 0).all() and each[-1] < 128 for each in drawn)


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize(("batch", "chunk"), [(1, 0), (6, 0), (3, 40)])
def test_the_closed_form_is_the_mean_of_the_streams(batch: int, chunk: int, skew: float) -> None:
    routing = Routing(EXPERTS.experts, RoutingSpec(skew=skew), 1)  # type: ignore[arg-type]
    card, step = device(1024), decode(batch, chunk)
    streams = StepStreams(card, EXPERTS, 4096, routing)
    moved = np.array([
        sum(
            int(each.size.sum())
            for each in streams.of(step, None, range(3), ["weights"], draw)  # type: ignore[arg-type]
        )
        for draw in range(40)
    ])  # fmt: skip
    expected = (
        StepModel(card, EXPERTS, routing=routing).work.weight_bytes(step)
        - EXPERTS.head_weight_bytes
    )
    assert abs(moved.mean() - expected) <= max(4 * moved.std() / len(moved) ** 0.5, 1)
    # and exactly, of the experts drawn
    drawn = sum(len(routing.touched(step.batched, layer, 0)) for layer in (1, 2))
    idle = (2 * 16 - drawn) * sum(EXPERTS.expert_bytes(1))
    assert moved[0] == EXPERTS.step_weight_bytes - EXPERTS.head_weight_bytes - idle
