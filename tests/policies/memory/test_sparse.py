"""Attention that reads less than all tokens, or keeps less: streams, times and memory against
closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from hwmodel.description.description import DescriptionError
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Demand, Limits
from policies.allocators.attention_options import AttentionSpec
from policies.allocators.capabilities import Migration
from policies.allocators.kv_layout import KvLayout
from policies.allocators.kv_sparse import Sparse
from policies.allocators.registry import POLICIES, build
from policies.engines.scheduled_step import Chunk, Step
from policies.memory import traffic
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.memory.traffic import Reading
from policies.predictors.prediction import Prediction
from tests.policies.small import MODEL, WINDOWS, device, mixed, run

KINDS: list[dict[str, Any]] = [
    {"name": "top_k", "tokens": 48, "index_bytes": "12B"},
    {"name": "top_k", "tokens": 48, "index_bytes": "12B", "heads": "apart", "choice": "recency"},
    {"name": "pages", "tokens": 48, "page": 8},
    {"name": "pages", "tokens": 48, "heads": "together", "choice": "clustered"},
    {"name": "budget", "tokens": 48, "choice": "clustered", "run": 8},
]
KEPT: list[dict[str, Any]] = [
    {"name": "window_and_sinks", "sinks": 4, "window": 44},
    {"name": "budget", "tokens": 48, "frees": "slots"},
]
LENGTHS = [5, 47, 48, 49, 130, 600]


def sparse_of(given: dict[str, Any], model: TransformerSpec = MODEL) -> Sparse:
    found = TypeAdapter(AttentionSpec).validate_python(given).sparse(model, (1, 2))
    assert found is not None
    return found


def filled(given: dict[str, Any], policy: str, dims: str = "layer_kv_token") -> Any:
    layout = KvLayout(
        1 << 20, 4096, MODEL.layers, MODEL.kv_heads, MODEL.kv_head_bytes, LAYOUTS[dims],
        sparse=sparse_of(given),
    )  # fmt: skip
    options = POLICIES[policy].Options.model_validate({"name": policy})
    allocator = build(layout, len(LENGTHS), Limits(50, 700), options)
    for request, length in enumerate(LENGTHS):
        demand = Demand(length, 0, Prediction(2.0), output=50)
        assert allocator.reserve(request, demand, length)
    decode = np.arange(len(LENGTHS))
    assert allocator.headroom(decode, 1)
    allocator.advance(decode, 1)
    return allocator


def read(given: dict[str, Any], stored: int) -> tuple[int, int]:
    """Tokens read and tokens scored, by plain counting."""
    if given["name"] != "pages":
        return min(stored, 48), stored
    page = given.get("page", 16)
    all_fit = stored // page <= 48 // page - 1
    return (stored, 0) if all_fit else (48 - page + stored % page, stored // page * page)


@pytest.mark.parametrize("reading", [Reading(), Reading("head_major", 2)], ids=["slice", "head"])
@pytest.mark.parametrize("given", KINDS, ids=lambda kind: kind["name"])
@pytest.mark.parametrize("policy", ["paged", "static", "s3", "odma", "oracle", "ideal"])
def test_a_step_moves_the_closed_form(policy: str, given: dict[str, Any], reading: Reading) -> None:
    for dims in LAYOUTS if policy == "paged" else ["layer_kv_token"]:
        allocator = filled(given, policy, dims)
        layout, decode = allocator.layout, np.arange(len(LENGTHS))
        extents = traffic.attention(allocator, decode, 1, reading)
        tokens, scored = np.array([read(given, length) for length in LENGTHS]).T
        index = extents.of(slice(extents.ahead))
        kv = extents.of(slice(extents.ahead, None))
        each = MODEL.kv_layer_bytes
        assert kv.size[~kv.write].sum() == tokens.sum() * each * reading.repeats
        assert kv.size[kv.write].sum() == len(LENGTHS) * each
        assert index.size[~index.write].sum() == scored.sum() * layout.sparse.index_bytes
        assert index.size[index.write].sum() == len(LENGTHS) * layout.sparse.index_bytes
        # the index lies above the KV, and no byte is moved twice
        above = layout.base + layout.slots * MODEL.kv_token_bytes
        assert (index.start >= above).all() and (kv.start + kv.size <= above).all()
        assert (index.start + index.size <= layout.base + layout.bytes).all()
        once = traffic.attention(allocator, decode, 1)
        ends = np.sort(once.start), np.sort(once.start + once.size)
        assert (ends[0][1:] >= ends[1][:-1]).all()
        if reading.spread == "slice" and dims == "layer_kv_token":
            step = Step(decode, sum(LENGTHS), [], [], 0, "", lengths=np.array(LENGTHS, np.int64))
            steps = StepModel(device(4096), MODEL, sparse=layout.sparse, free=["compute"])
            moved = steps.times(step, 1, Efficiency()).attention_s[0] * steps.bandwidth
            assert moved == pytest.approx(MODEL.layers * int(once.size.sum()), rel=1e-12)


@pytest.mark.parametrize("heads", ["together", "apart"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "top_k", "index_bytes": "12B", "index_heads": 3, "index_dim": 5},
         {"index_bytes": 12, "index_flops": 30, "always": True}),
        ({"name": "top_k", "index_bytes": "12B", "index_pages": "padded", "prefill": "selected"},
         {"padding": MODEL.kv_layer_bytes - 12, "whole_prompts": False}),
        ({"name": "top_k", "index_bytes": "1MB", "index_pages": "padded"}, {"padding": 0}),
        ({"name": "pages", "page": 8}, {"page": 8, "index_bytes": MODEL.kv_layer_bytes // 8}),
        ({"name": "budget", "tokens": 50}, {"recent": 25, "index_bytes": 0, "always": False}),
    ],
)  # fmt: skip
def test_what_does_a_kind_of_attention_choose_by(
    given: dict[str, Any], expected: dict[str, Any], heads: str
) -> None:
    found = sparse_of({"tokens": 48, **given, "heads": heads})
    told = {"apart": heads == "apart", "tokens": given.get("tokens", 48), **expected}
    assert {name: getattr(found, name) for name in told} == told


def test_what_is_chosen_follows_its_law() -> None:
    laws = {}
    for choice in ("uniform", "recency", "clustered"):
        sparse = sparse_of({"name": "top_k", "tokens": 200, "choice": choice})
        first, end = sparse.runs(2000, 3, 1, 0)
        assert (end - first).sum() == 200 and (first[1:] > end[:-1]).all() and end[-1] <= 2000
        same, others = sparse.runs(2000, 3, 1, 0), sparse.runs(2000, 3, 2, 0)
        assert (same[0] == first).all() and set(others[0]) != set(first)
        laws[choice] = [np.concatenate([np.arange(*run) for run in zip(first, end, strict=True)])]
    runs = {name: 1 + int((np.diff(found[0]) > 1).sum()) for name, found in laws.items()}
    assert runs["clustered"] <= 5 and 160 < runs["uniform"] <= 200
    mean = {name: float(found[0].mean()) for name, found in laws.items()}
    assert abs(mean["uniform"] - 1000) < 150 and mean["recency"] > 1400
    # half of a budget is recent; of what a uniform one keeps no token returns
    budget = sparse_of({"name": "budget", "tokens": 200})
    kept = [budget.runs(stored, 0, 0, 0) for stored in (2000, 2001)]
    assert all(run[1][-1] == stored for run, stored in zip(kept, (2000, 2001), strict=True))
    assert all(run[1][-1] - run[0][-1] >= 100 for run in kept)


@pytest.mark.parametrize("given", KINDS, ids=str)
def test_rows_of_drafts_choose_the_same_tokens_and_see_each_other(given: dict[str, Any]) -> None:
    sparse, rows = sparse_of(given), [1, 4, 2, 3, 5, 1]
    seen = scored = 0
    for length, many in zip(LENGTHS, rows, strict=True):
        tokens, indexed = read(given, length)
        seen += sum(tokens + nth for nth in range(2, many + 1))
        scored += many * indexed * (given["name"] != "budget")
    assert sparse.verified(np.array(LENGTHS), np.array(rows))[0] == seen
    if sparse.index_bytes:
        assert sparse.verified(np.array(LENGTHS), np.array(rows))[1] == scored


def test_are_the_last_pages_read_and_others_drawn() -> None:
    sparse = Sparse(tokens=48, page=8, recent=16)
    chosen = []
    for request in range(20):
        first, end = sparse.runs(203, request, 0, 0)  # 25 pages and 3 tokens; five of the pages
        assert (end - first).sum() == 43 == sparse.read(203)
        pages = {
            page
            for run in zip(first, end, strict=True)
            for page in range(run[0] // 8, -(-run[1] // 8))
        }
        assert {23, 24, 25} <= pages
        chosen.append(frozenset(pages))
    assert len(set(chosen)) > 10


def test_chunks_write_their_index_and_migrations_take_it_along() -> None:
    given = {"name": "top_k", "tokens": 48, "index_bytes": "12B"}
    for prefill, reads in (("dense", 0), ("selected", 100)):
        allocator = filled({**given, "prefill": prefill}, "oracle")
        chunk = Chunk(4, 100, 30, True)
        extents = traffic.prefill(allocator, [chunk], 0)
        index = extents.of(slice(extents.ahead))
        assert index.size[index.write].sum() == 30 * 12
        assert index.size[~index.write].sum() == reads * 12
        steps = StepModel(device(4096), MODEL, sparse=allocator.layout.sparse)
        step = Step(np.zeros(0, np.int64), 0, [chunk], [], 0, "", lengths=np.zeros(0, np.int64))
        assert np.isfinite(steps.times(step, 1, Efficiency()).total_s[0])
        sparse = allocator.layout.sparse
        pairs = sum(min(100 + nth, 10**9 if reads == 0 else 48) for nth in range(1, 31))
        assert sparse.pairs(100, 30) == pairs
    move = Migration(4, 3000, int(allocator.units(4).start[0]), 130, 180)
    moved = traffic.migration(allocator, [move], 0, 1 << 14).size.sum()
    assert moved == 2 * 130 * (MODEL.kv_layer_bytes + 12)


def test_what_it_does_not_go_with_is_refused() -> None:
    assert sparse_of({"name": "pages", "tokens": 32, "page": 16}).read(100) == 16 + 100 % 16
    with pytest.raises(DescriptionError, match="small-windows has sliding windows"):
        run(2048, mixed(2), attention={"name": "top_k"}, shape=WINDOWS)
    with pytest.raises(DescriptionError, match="attention without an index"):
        run(2048, mixed(2), attention={"name": "top_k"}, policy={"name": "vattention"})
    several = mixed(3)
    several.samples[:] = 2
    assert run(2048, several, attention={"name": "budget"}).metrics["finished"] == 3
