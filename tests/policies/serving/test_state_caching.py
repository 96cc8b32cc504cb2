"""Are states found at the ends of blocks where they were kept, and nowhere else?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Limits
from policies.allocators.hybrid import Unified
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.requests.requests import Requests
from policies.serving.building import kv_region
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.serving.features import HYBRID, SHAPE, card
from tests.policies.small import assert_held, spec

MODEL = SHAPE.model_copy(update=HYBRID)
"""Blocks of 16 tokens, and one group of layers of each kind."""
PROMPT = 100


def stream(prefix: int, prompts: int = 2, between: int = 0) -> Requests:
    """Requests one after another, the first and the last of which begin with the same tokens."""
    ids = np.array([0, *range(1, 1 + between), *[0] * (prompts - 1)])
    count = len(ids)
    return Requests(
        np.arange(count, dtype=np.float64), np.full(count, PROMPT), np.full(count, 5),
        ids, np.full(count, prefix),
    )  # fmt: skip


def served(requests: Requests, slots: int = 4096, **changes: Any) -> ServingResult:
    engine = {"max_model_len": 1024, "max_num_seqs": 16, **changes.pop("engine", {})}
    policy = {"name": "paged", "state_caching": "align", **changes.pop("policy", {})}
    model = changes.pop("model", MODEL)
    device = card(slots, model.weight_bytes, SHAPE.kv_token_bytes)
    return serve(device, model, spec(engine=engine, policy=policy, **changes), requests, seed=1)


@pytest.mark.parametrize(
    ("prefix", "chunk", "found"),
    [
        (PROMPT, 2048, 96),  # the prompt ends in its seventh block, and a chunk before that
        (64, 2048, 0),  # of a chunk the state at its end alone is kept
        (64, 64, 64),
        (64, 48, 48),
        (64, 40, 64),  # cut at the ends of blocks
        (15, 16, 0),
    ],
)
def test_a_prefix_is_found_where_a_chunk_has_ended(prefix: int, chunk: int, found: int) -> None:
    assert Unified(MODEL).block == 16
    metrics = served(stream(prefix), engine={"max_num_batched_tokens": chunk}).metrics
    assert metrics["cached_tokens"] == found
    assert metrics["policy"]["prefix_hit_tokens"] == found


def test_turns_of_a_session_find_the_state_of_the_answer() -> None:
    """100 prompt tokens and 30 of the answer, the last of which is never stored: 8 blocks."""
    requests = Requests(
        np.array([0.0, 0.0]), np.array([PROMPT, 160]), np.array([30, 5]),
        session=np.array([0, 0]), think_s=np.array([np.nan, 1.0]), context=np.array([0, 0]),
    )  # fmt: skip
    assert served(requests).metrics["cached_tokens"] == 128


def test_what_is_used_again_is_not_found() -> None:
    """Blocks of 320 slots: all are used by those between."""
    few, many = (served(stream(PROMPT, between=n), slots=320).metrics for n in (1, 9))
    assert (few["cached_tokens"], many["cached_tokens"]) == (96, 0)


@pytest.mark.parametrize("engine", ["v0", "sglang"])
def test_chunks_have_to_end_at_blocks(engine: str) -> None:
    with pytest.raises(DescriptionError, match="ends chunks anywhere, where no state is kept"):
        served(stream(PROMPT), engine={"name": engine})


def test_a_chunk_reaches_the_end_of_a_block() -> None:
    large = MODEL.model_copy(update={"state": MODEL.state.model_copy(update={"key_dim": 8192})})  # type: ignore[union-attr]
    with pytest.raises(DescriptionError, match=r"state_caching: heavy has no layers with a state"):
        served(stream(PROMPT), model=SHAPE)
    engine = {"max_num_batched_tokens": 64}
    with pytest.raises(
        DescriptionError, match=r"chunks end at the ends of blocks of [0-9]+ tokens"
    ):
        served(stream(PROMPT), slots=1 << 14, engine=engine, model=large)


@pytest.mark.parametrize("lengths", [[100], [100, 3000, 528, 529]])
@pytest.mark.parametrize("drafts", [0, 2])
def test_requests_hold_as_many_states_as_vllm_counts(lengths: list[int], drafts: int) -> None:
    device = card(1 << 16, MODEL.weight_bytes, SHAPE.kv_token_bytes)
    given = {"model": "x", "policy": {"name": "paged", "state_caching": "align"}}
    chosen = ServingSpec.model_validate(given).on_device(device, MODEL)
    pages = Unified(MODEL, "align", drafts=drafts)
    assert isinstance(chosen.policy, PagedOptions)
    layout = kv_region(device, MODEL, chosen)
    limits = Limits(
        4096, 8192, states=pages.groups[1] * pages.block, kept_states=2 + drafts,
        saves_states=True, state_bytes=1,
    )  # fmt: skip
    options = chosen.policy.model_copy(update={"null_block": True, "block": pages.block})
    assert_held(PagedAllocator(layout, 2000, limits, options), pages, (lengths * 2000)[:2000])
