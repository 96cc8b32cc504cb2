"""Do pipeline stages idle as the closed form says, and lose no layer, token or byte?"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
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
    Exchange,
    PipelineSpec,
    PipelineSteps,
    TokenRow,
    costs_of,
    cuts,
    flow,
    leading,
    micro_batch,
)
from policies.memory.step import StepModel
from tests.policies.small import MODEL, device, mixed, run
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


def test_chunks_of_a_stage_delay_nothing_and_whole_requests_until_they_are_over() -> None:
    def ends(exchange: Exchange | None, now_s: float = 0.0) -> list[float]:
        return flow([[1.0, 1.0]] * 4, [0.25] * 4, [0.0] * 3, [0.0] * 4, exchange, now_s)[0]

    assert ends(Exchange([[9.0]], chunks=True)) == ends(None) == [2.25, 3.25, 4.25, 5.25]
    assert ends(Exchange([[1.5, 2.5]], chunks=False)) == [2.75, 3.75, 4.75, 5.75]
    assert ends(Exchange([[0.5]], chunks=False)) == ends(Exchange([[]], chunks=False)) == ends(None)
    assert ends(Exchange([[8.5, 9.5]], False), 7.0) == ends(Exchange([[1.5, 2.5]], False))
    assert ends(Exchange([[9.0]], chunks=False)) == [10.25, 11.25, 12.25, 13.25]


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


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 60), max_size=40),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 250)), max_size=3),
    st.integers(0, 600),
)  # fmt: skip
def test_a_step_prefills_what_its_first_parts_have_beside_all_that_decode(
    stored: list[int], prompts: list[tuple[int, int]], left: int
) -> None:
    """Where decodes alone fill the budget, or nothing waits, it is what is left of it."""
    spec = PipelineSpec(balance="lookahead", least_tokens=32, link="ethernet-64")
    stages, allocator = (
        [StepModel(device(4096), MODEL)] * 2,
        SimpleNamespace(stored=np.array(stored, int)),
    )
    steps = PipelineSteps(spec, stages, allocator, np.zeros(9), None, 1)  # type: ignore[arg-type]
    chunks = [Chunk(100 + n, start, tokens, True) for n, (start, tokens) in enumerate(prompts)]
    many = len(stored)
    turns = sorted(range(many), key=lambda at: at % 16)
    row = TokenRow(np.array([stored[at] - 1 for at in turns], int), chunks, costs_of(stages[0]))
    edges = leading(row, spec, 2, many + left)
    waits = chunks and edges[-1] > many
    assert steps.ahead(np.arange(many), chunks, left) == (edges[-1] - many if waits else left)


def test_stages_hold_each_layer_and_table_once() -> None:
    model = load_model("deepseek-r1-distill-qwen-7b")
    assert dealt(28, 3) == (9, 10, 9) and dealt(30, 4) == (7, 8, 8, 7)
    for many in (2, 3, 4):
        parts = stages_of(model, many)
        assert sum(part.layers for part in parts) == model.layers
        assert sum(part.kv_token_bytes for part in parts) == model.kv_token_bytes
        assert sum(part.weight_bytes for part in parts) == model.weight_bytes
        assert sum(part.head_flops for part in parts) == model.head_flops


def test_a_tied_table_is_with_the_first_and_the_last() -> None:
    tied = MODEL.model_copy(update={"tied_embeddings": True})
    first, last = stages_of(tied, 2)
    table = tied.vocabulary * tied.hidden * 2
    assert first.weight_bytes + last.weight_bytes == tied.weight_bytes + table


@pytest.mark.parametrize(
    "name", ["qwen3-next-80b-a3b", "gpt-oss-20b", "gemma-3-27b", "deepseek-v3", "jamba-v0.1"]
)
def test_layers_of_a_stage_are_of_the_kinds_that_they_are_in_the_model(name: str) -> None:
    model = load_model(name)
    for many in (2, 3):
        parts = stages_of(model, many)
        own = [layer for part in parts for layer in map(part.layer, range(part.layers))]
        for layer, kind in zip(own, map(model.layer, range(model.layers)), strict=True):
            assert (layer.parameters, layer.flops) == (kind.parameters, kind.flops)
            assert layer._replace(mlp=kind.mlp) == kind
        edges = sum(part.layer_weight_edges[-1] for part in parts)
        assert edges == model.layer_weight_edges[-1]
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


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ({"stages": 3}, "small has 2 layers; expected at most as many stages"),
        ({"stages": 2, "pipeline": {"link": "rdma"}}, "no shipped link"),
    ],
)
def test_a_mistake_says_what_was_expected(cluster: dict[str, Any], says: str) -> None:
    with pytest.raises((DescriptionError, ValueError), match=says):
        run(2048, FEW, cluster=cluster)
