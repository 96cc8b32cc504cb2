"""Do the allocators of hybrid models take the memory that servers log?"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.hybrid import USES, Compact, TwoPools, Unified


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


def test_layers_are_cut_into_groups_of_the_rarer_kind_unless_kinds_are_nearly_as_many() -> None:
    assert (pages := Unified(load_model("qwen3.5-35b-a3b"))).group == 10
    assert pages.groups == (1, 3, 0)
    assert Unified(load_model("falcon-h1-7b")).groups == (1, 1, 0)
    kimi = Unified(load_model("kimi-linear-48b-a3b"))
    assert kimi.groups == (1, 3, 0)  # 20 states in groups of 7: one is padding
    assert kimi.held(1 << 34, [1000]).bytes["missing layers"] == kimi.page


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


def test_compact_slots_are_as_many_a_sequence_as_a_step_has_rows() -> None:
    qwen, memory = load_model("qwen3.5-9b"), 40 << 30
    pool = Compact(qwen, 64, drafts=3)
    assert pool.apart(memory) == (64 * 4 + 1) * qwen.state_bytes(3)
    assert pool.running(memory) == 64 and pool.copies == (4, qwen.state_bytes(3))
    found = pool.held(memory, [1000] * 100)
    assert found.bytes["further states"] == 3 * found.bytes["states"]
    assert sum(found.bytes.values()) == memory


@pytest.mark.parametrize("name", ["qwen3.5-9b", "kimi-linear-48b-a3b", "jamba-v0.1"])
def test_memory_is_used_up_by_name(name: str) -> None:
    made, memory, lengths = load_model(name), 12 << 30, [900, 40_000, 3_000] * 400
    for pool in (Unified(made), Unified(made, "align", 2), TwoPools(made), Compact(made, 64)):
        found = pool.held(memory, lengths)
        assert found.requests and tuple(found.bytes) == USES
        assert sum(found.bytes.values()) == memory and min(found.bytes.values()) >= 0
        assert found.bytes["states"] == found.requests * made.state_bytes(
            getattr(pool, "drafts", 0)
        )


def test_two_pools_strand_least_at_the_even_ratio() -> None:
    qwen, lengths = load_model("qwen3.5-9b"), [3000] * 4000
    even = TwoPools(qwen).even(lengths)
    stranded = {
        ratio: TwoPools(qwen, ratio).held(40 << 30, lengths).bytes["stranded"]
        for ratio in (even / 2, even, even * 2)
    }
    assert min(stranded, key=stranded.__getitem__) == even
    assert TwoPools(qwen, drafts=2).even(lengths) == pytest.approx(4 * even)  # a slot and 3 rows
    assert stranded[even] < 2 * (qwen.state_bytes() + 3000 * qwen.kv_token_bytes)


def test_two_cards_split_states_and_mamba_groups_are_copied() -> None:
    granite = load_model("granite-4.0-h-small")
    half = shard(granite, 2)
    assert half.state is not None and (half.state.heads, half.state.groups) == (64, 1)
    inner, size = 128 * 64, 128
    assert half.state_bytes() == 36 * (inner // 2 * size * 2 + (inner // 2 + 2 * size) * 3 * 2)


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
