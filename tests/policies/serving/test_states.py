"""Do runs of models with states hold what vLLM's pages hold, and move their states?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import find
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Demand, Limits, Lookahead
from policies.allocators.hybrid import Compact, TwoPools, Unified
from policies.allocators.kv_layout import KvLayout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.predictors.prediction import Prediction
from policies.requests.requests import Requests
from policies.serving.building import kv_region
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec, model_of_a_card, state_pages
from tests.policies.small import assert_held

HYBRID = load_model("qwen3.5-9b")
MTP = {"method": "mtp", "tokens": 3, "acceptance": "qwen3.5-397b-mtp"}
DRAFT = {**MTP, "method": "draft", "draft_model": "qwen3-0.6b"}


def served(stream: Requests, model: str = "qwen3.5-9b", **changes: Any) -> ServingResult:
    base: dict[str, Any] = {"model": model, "memory": {"efficiency": 1.0}, "kv_tokens": 40_000}
    spec = ServingSpec.model_validate({**base, **changes})
    return serve(load_device("a100-80gb"), load_model(model), spec, stream, seed=1)


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("lengths", [[100], [1372], [100, 3000, 528, 529]])
def test_pages_hold_as_many_requests_as_vllm_counts(lengths: list[int], drafts: int) -> None:
    device, given = load_device("a100-80gb"), {"speculation": MTP} if drafts else {}
    spec = ServingSpec.model_validate({"model": "x", **given}).on_device(device, HYBRID)
    # 8 layers with KV, or 9 with the drafter's: vLLM makes groups of 8, 8, 8 and 9
    pages = Unified(HYBRID, drafts=drafts, beside=bool(drafts))
    assert (pages.group, *pages.groups) == (9 if drafts else 8, 1, 3, 0)
    layout = kv_region(device, HYBRID, spec)
    assert isinstance(spec.policy, PagedOptions) and spec.policy.block == pages.block
    limits = Limits(4096, 8192, states=pages.groups[1] * pages.block, kept_states=1 + drafts)
    options = spec.policy.model_copy(update={"null_block": True})
    assert_held(PagedAllocator(layout, 2000, limits, options), pages, (lengths * 2000)[:2000])


def test_all_requests_end_with_a_draft_model_beside_states() -> None:
    stream = Requests(np.zeros(40), np.full(40, 600), np.full(40, 200))
    given = {"tensor_parallel": 4, "speculation": DRAFT, "kv_tokens": None}
    found = served(stream, "qwen3-next-80b-a3b", **given).metrics
    assert found["finished"] == 40
    assert found["speculation"]["tokens_a_step"] > 2.5


def test_a_latent_page_is_not_padded_for_a_draft_model(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    shipped = find("models", "qwen3-0.6b").read_text()
    own.write_text(shipped.replace("value: 151936", "value: 163840"))
    stream = Requests(np.zeros(1), np.array([10]), np.array([10]))
    with pytest.raises(DescriptionError, match="no multiple of one of kimi-linear-48b-a3b, whose"):
        served(
            stream, "kimi-linear-48b-a3b", speculation={**DRAFT, "draft_model": str(own)},
            tensor_parallel=2, kv_tokens=None,
        )  # fmt: skip


POOLS: dict[str, tuple[dict[str, Any], Any]] = {
    "sglang": ({"states": "two_pools"}, TwoPools(HYBRID, page=16)),
    "sglang even": ({"states": "two_pools", "state_ratio": 0.5}, TwoPools(HYBRID, 0.5, page=16)),
    "tpu": ({"states": "compact"}, Compact(HYBRID, 100)),
}
"""Options of `paged`, and the rule that they stand for."""


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("length", [100, 3000, 20_000])
@pytest.mark.parametrize("drafts", [0, 3])
def test_pools_apart_run_as_many_requests_as_their_rules_hold(
    name: str, length: int, drafts: int
) -> None:
    options, rule = POOLS[name][0], replace(POOLS[name][1], drafts=drafts)
    device, looked_up = load_device("a100-80gb"), {**MTP, "method": "ngram"}

    def region(**chosen: Any) -> KvLayout:
        given: dict[str, Any] = {"model": "x", "engine": {"max_num_seqs": 100}, **chosen}
        given["speculation"] = looked_up if drafts else None
        spec = ServingSpec.model_validate(given).on_device(device, HYBRID)
        return kv_region(device, HYBRID, spec)

    memory, slots = region().bytes, region(policy={"name": "paged", **options}).slots
    fitting = min(slots // 16 // -(-length // 16), rule.running(memory))
    assert fitting == rule.held(memory, [length] * 2000).requests


def test_requests_beyond_the_slots_of_states_wait() -> None:
    stream = Requests(np.zeros(60), np.full(60, 100), np.full(60, 50))
    given: dict[str, Any] = {
        "policy": {"name": "paged", "states": "two_pools", "state_ratio": 0.02}, "kv_tokens": None,
    }  # fmt: skip
    found = served(stream, **given).metrics
    # 1.04 GiB of 53 in slots of 49.1 MiB: 20, and one more is padding
    assert found["finished"] == 60
    assert 18 < found["batch"] <= 20
    assert found["limit_share"]["sequence_cap"] > 0.6  # the last third has none that waits


@pytest.mark.parametrize("name", POOLS)
def test_drafts_make_tokens_beside_states_in_pools(name: str) -> None:
    stream = Requests(np.zeros(40), np.full(40, 600), np.full(40, 120))
    policy = {"name": "paged", **POOLS[name][0]}
    found = served(
        stream, policy=policy, kv_tokens=None, speculation=MTP,
        engine={"max_num_seqs": 100},
    ).metrics  # fmt: skip
    assert found["finished"] == 40
    assert found["speculation"]["tokens_a_step"] > 2.5


@pytest.mark.parametrize("lengths", [[100], [2144, 2145, 700], [9000]])
def test_pages_with_a_draft_model_hold_as_many_requests_as_the_rule_counts(
    lengths: list[int],
) -> None:
    given = {"speculation": DRAFT, "tensor_parallel": 2}
    device, model = load_device("h200"), load_model("qwen3-next-80b-a3b")
    spec = ServingSpec.model_validate({"model": "x", **given}).on_device(device, model)
    local = model_of_a_card(spec, model)
    # on each card one of 2 heads of 256 and 4 of 8 of 128: a token of the drafter is twice as large
    pages = Unified(local, drafts=3, drafter=(28, 2048))
    assert (pages.block, pages.drafter_block, pages.groups) == (2144, 1072, (1, 3, 3))
    assert state_pages(spec, local) == pages
    layout = kv_region(device, local, spec)
    lookahead, states = Lookahead(3, 3), pages.groups[1] * pages.block
    limits = Limits(
        4096, 16384, lookahead=lookahead, states=states, kept_states=4, drafter=(3, 1072)
    )
    assert isinstance(spec.policy, PagedOptions)
    options = spec.policy.model_copy(update={"null_block": True})
    many = (lengths * 500)[:500]
    allocator = PagedAllocator(layout, len(many), limits, options)
    count = 0
    while allocator.reserve(count, Demand(many[count], 0, Prediction(1.0)), many[count] - 3):
        count += 1
    blocks = layout.slots // pages.block
    found = pages.held(blocks * 12 * pages.page, many)
    assert count == found.requests and min(found.bytes.values()) >= 0
    drafts = allocator.drafter_blocks.held
    held = sorted(np.concatenate([each.ravel() for each in drafts.values()]).tolist())
    assert len(set(held)) == len(held) == sum(3 * pages.pages(each)[2] for each in many[:count])
    for request in range(count):
        allocator.release(request)
    assert allocator.free_slots == (blocks - 1) * pages.block and not drafts
