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
from policies.allocators.kv_layout import KvLayout
from policies.allocators.kv_sparse import Sparse
from policies.allocators.registry import POLICIES, build
from policies.engines.scheduled_step import Step
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


def test_what_it_does_not_go_with_is_refused() -> None:
    assert sparse_of({"name": "pages", "tokens": 32, "page": 16}).read(100) == 16 + 100 % 16
    with pytest.raises(DescriptionError, match="small-windows has sliding windows"):
        run(2048, mixed(2), attention={"name": "top_k"}, shape=WINDOWS)
    with pytest.raises(DescriptionError, match="attention without an index"):
        run(2048, mixed(2), attention={"name": "top_k"}, policy={"name": "vattention"})
    several = mixed(3)
    several.samples[:] = 2
    assert run(2048, several, attention={"name": "budget"}).metrics["finished"] == 3
