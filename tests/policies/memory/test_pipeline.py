"""Do pipeline stages idle as the closed form says, and lose no layer, token or byte?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.specs.stages import dealt, stages_of
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.pipeline import (
    Costs,
    PipelineSpec,
    TokenRow,
    cuts,
    flow,
    leading,
    micro_batch,
)
from tests.policies.small import mixed, run
from tests.rotation import LONG

FEW = mixed(240 if LONG else 30)


@pytest.mark.parametrize(("stages", "many"), [(2, 1), (2, 4), (4, 4), (4, 12), (8, 3)])
def test_equal_micro_batches_idle_for_s_less_1_of_m_and_s_less_1(stages: int, many: int) -> None:
    nothing = [0.0] * many
    ends, _ = flow([[2.0] * stages] * many, nothing, [0.0] * (2 * stages - 1), nothing)
    idle = 1 - 2.0 * many / ends[-1]
    assert idle == pytest.approx((stages - 1) / (many + stages - 1), rel=1e-12)


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=8))
def test_two_stages_take_at_most_what_kunserve_says_and_as_long_where_parts_shrink(
    work: list[float],
) -> None:
    def both(parts: list[float]) -> tuple[float, float]:
        nothing = [0.0] * len(parts)
        ends, _ = flow([[each, each] for each in parts], nothing, [0.0] * 3, nothing)
        pairs = pairwise(parts)
        return ends[-1], parts[0] + sum(map(max, pairs)) + parts[-1]

    found, formula = both(work)  # which lets no micro-batch wait between the stages
    assert found <= formula * (1 + 1e-12)
    found, formula = both(sorted(work, reverse=True))
    assert found == pytest.approx(formula)


@settings(max_examples=200 if LONG else 40)
@given(
    st.lists(st.integers(0, 5000), max_size=40),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), max_size=4),
    st.sampled_from(["tokens", "cost"]), st.integers(2, 5),
)  # fmt: skip
def test_micro_batches_have_every_token_once_in_order(
    stored: list[int], prompts: list[tuple[int, int]], balance: Any, stages: int
) -> None:
    chunks = [Chunk(100 + n, start, tokens, True) for n, (start, tokens) in enumerate(prompts)]
    held = np.array(stored, np.int64)
    step = Step(np.arange(len(stored)), int(held.sum()), chunks, [], 0, "")
    edges = cuts(TokenRow(held, chunks, Costs(1e-3, 1.0)), PipelineSpec(balance=balance), stages)
    parts = [micro_batch(step, *ends, held) for ends in pairwise(edges)]
    assert sum(part.batched for part in parts) == step.batched
    assert all(part.batched for part in parts) or not step.batched
    assert [r for part in parts for r in part.decode.tolist()] == step.decode.tolist()
    assert sum(part.context for part in parts) == step.context
    for chunk in chunks:
        own = [each for part in parts for each in part.chunks if each.request == chunk.request]
        assert own[0].start == chunk.start and sum(each.tokens for each in own) == chunk.tokens
        assert all(a.start + a.tokens == b.start for a, b in pairwise(own))
        assert [each.last for each in own] == [False] * (len(own) - 1) + [True]


Token = tuple[float, int]
"""What a token costs, and its place among all that wait."""


def halves(tokens: list[Token], least: int, parts: int) -> list[list[Token]]:
    """KunServe's figure 11, token by token: halves of halves, of `least` tokens at most, and so
    many at least."""
    if len(tokens) <= (least if parts <= 1 else 1):
        return [tokens]
    whole, below = sum(cost for cost, _ in tokens), 0.0
    for many in range(1, len(tokens)):
        below += tokens[many - 1][0]
        if 2 * below >= whole * (1 - 1e-12):
            break
    rest = -(-parts // 2)
    return halves(tokens[:many], least, rest) + halves(tokens[many:], least, rest)


@settings(max_examples=200 if LONG else 40)
@given(
    st.lists(st.integers(0, 400), max_size=12),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 250)), min_size=1, max_size=6),
    st.integers(2, 4), st.integers(8, 90), st.integers(1, 900),
)  # fmt: skip
def test_a_step_has_the_first_parts_of_all_that_waits_as_the_papers_recursion_cuts_it(
    stored: list[int], prompts: list[tuple[int, int]], stages: int, least: int, most: int
) -> None:
    costs = Costs(2.0, 1024.0)  # sums are whole, so that halves are the same here and there
    chunks = [Chunk(100 + n, start, tokens, True) for n, (start, tokens) in enumerate(prompts)]
    places = [*((held, 1) for held in stored), *prompts]
    each = [float(costs.of(begin + at, 1)) for begin, count in places for at in range(count)]
    spec = PipelineSpec(balance="lookahead", least_tokens=least)
    found = leading(TokenRow(np.array(stored, np.int64), chunks, costs), spec, stages, most)
    parts = halves([(cost, at) for at, cost in enumerate(each)], least, stages)
    ends = [part[-1][1] + 1 for part in parts]
    assert found == [0, *(end for end in ends if end <= most)]


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-r1-distill-qwen-7b", "qwen3-next-80b-a3b", "gpt-oss-20b", "gemma-3-27b",
        "deepseek-v3", "jamba-v0.1",
    ],
)  # fmt: skip
def test_stages_hold_each_layer_once_and_a_tied_table_at_both_ends(name: str) -> None:
    model = load_model(name)
    table = model.vocabulary * model.hidden * 2 * model.tied_embeddings
    assert dealt(28, 3) == (9, 10, 9) and dealt(30, 4) == (7, 8, 8, 7)
    for many in (2, 3):
        parts = stages_of(model, many)
        own = [layer for part in parts for layer in map(part.layer, range(part.layers))]
        for layer, kind in zip(own, map(model.layer, range(model.layers)), strict=True):
            assert (layer.parameters, layer.flops) == (kind.parameters, kind.flops)
            assert layer._replace(mlp=kind.mlp) == kind
        edges = sum(part.layer_weight_edges[-1] for part in parts)
        assert edges == model.layer_weight_edges[-1]
        assert sum(part.weight_bytes for part in parts) == model.weight_bytes + table
        assert sum(part.head_flops for part in parts) == model.head_flops
        assert sum(part.state_bytes(2) for part in parts) == model.state_bytes(2)
        assert sum(part.kv_held_bytes(9999) for part in parts) == model.kv_held_bytes(9999)


def test_a_stage_keeps_kv() -> None:
    with pytest.raises(
        DescriptionError, match=r"with 5 of jamba-v0\.1 one has layers with a state"
    ):
        stages_of(load_model("jamba-v0.1"), 5)


@pytest.mark.parametrize("engine", ["v0", "sglang"])
def test_engines_that_compute_prompts_apart_do_not_look_ahead(engine: str) -> None:
    cluster = {"stages": 2, "pipeline": {"balance": "lookahead"}}
    with pytest.raises(DescriptionError, match="lookahead: not with engine " + engine):
        run(4096, FEW, cluster=cluster, engine={"name": engine})
