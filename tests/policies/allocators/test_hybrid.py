"""Do the allocators of hybrid models take the memory that servers log?"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.hybrid import TwoPools, Unified


def model(name: str, cards: int = 1, kv: str | None = None, **state: Any) -> TransformerSpec:
    made = shard(load_model(name).stored_as(None, kv), cards)
    assert made.state is not None
    return made.model_copy(update={"state": made.state.model_copy(update=state)})


@pytest.mark.parametrize(
    ("made", "drafts", "tokens", "padding"),
    [
        (model("qwen3.5-35b-a3b", kv="fp8"), 0, 2096, 0.0),
        (model("qwen3.5-27b"), 8, 832, 0.0109),
        (model("qwen3.5-27b", 2, "fp8"), 7, 1648, 0.00733),
        (model("qwen3-next-80b-a3b"), 0, 1056, 0.00763),
        (model("qwen3-next-80b-a3b", format="bf16"), 0, 544, 0.0149),
    ],
    ids=["35b", "27b", "27b-tp2", "next", "next-bf16"],
)  # fmt: skip
def test_a_block_has_the_tokens_that_vllm_logs(
    made: TransformerSpec, drafts: int, tokens: int, padding: float
) -> None:
    pages = Unified(made, drafts=drafts)
    assert pages.block == tokens
    assert pages.padding / pages.state == pytest.approx(padding, abs=1e-4)


def test_a_draft_models_layers_join_the_groups_as_in_vllm() -> None:
    file = Path(__file__).parents[2] / "reference" / "vllm_drafter_groups.json"
    for case in json.loads(file.read_text())["cases"]:
        made, (layers, heads, size) = load_model(case["model"]), case["drafter"]
        alike = (heads, size) == (made.kv_heads, made.head_dim)
        given = {"beside": layers} if alike else {"drafter": (layers, 4 * heads * size)}
        pages = Unified(made, drafts=3, **given)
        if (theirs := case["vllm"]) is None:
            assert not pages.possible
            continue
        assert pages.possible and pages.page == theirs["page"]
        found = Counter("own" if own and not full else "full" if full else "state"
                        for full, state, own in theirs["groups"])  # fmt: skip
        assert pages.groups == (found["full"], found["state"], found["own"])
        assert pages.block == theirs["tokens"]["full"]
        assert alike or pages.drafter_block == theirs["tokens"]["own"]
        largest = max(sum(group) for group in theirs["groups"])
        assert largest <= pages.group < 2 * largest


def test_two_cards_split_states_and_mamba_groups_are_copied() -> None:
    granite = load_model("granite-4.0-h-small")
    half = shard(granite, 2)
    assert half.state is not None and (half.state.heads, half.state.groups) == (64, 1)
    inner, size = 128 * 64, 128
    assert half.state_bytes() == 36 * (inner // 2 * size * 2 + (inner // 2 + 2 * size) * 3 * 2)


@pytest.mark.parametrize(("mode", "kept"), [("none", 3), ("align", 4), ("all", 6)])
def test_modes_keep_states_as_vllm_does(mode: Any, kept: int) -> None:
    pages = Unified(load_model("qwen3.5-9b"), mode, drafts=2)
    assert pages.pages(6 * pages.block - 1) == (6, kept, 6)
    assert mode != "all" or pages.block % 256 == 0


def test_the_slots_of_two_pools_are_those_of_sglang() -> None:
    qwen = load_model("qwen3.5-9b")
    memory, states = 40 << 30, qwen.state_bytes()
    budget = memory * 0.9 / 1.9
    assert TwoPools(qwen).running(memory) == int((budget - states) / states)
    five = TwoPools(qwen, slots=5, drafts=2).running(memory)  # three rows of a step
    assert five == int((budget - 4 * states) / (states * 1.6)) // 5
