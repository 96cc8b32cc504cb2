"""Does speculation make the tokens that its table says, with every scheduler?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.engines.speculation import GOLDEN, SpeculationSpec, draw, positions
from policies.memory.drafting import drafter_of
from tests.policies.small import WINDOWS, mixed, requests, run

EAGLE = {"method": "eagle", "tokens": 3, "acceptance": [0.8, 0.6, 0.4]}
LOOKUP = {"method": "ngram", "tokens": 3, "acceptance": [0.8, 0.6, 0.4]}


@pytest.mark.parametrize("name", GOLDEN)
def test_positions_never_rise_and_sum_to_the_measured_length(name: str) -> None:
    for drafts in range(1, 9):
        found = positions(GOLDEN[name][:drafts])
        assert sum(found) == pytest.approx(GOLDEN[name][drafts - 1] - 1)
        assert found == sorted(found, reverse=True)
        assert min(found) >= 0


def test_draws_hold_as_often_as_the_table_says() -> None:
    spec = SpeculationSpec.model_validate(EAGLE)
    held = draw(spec, np.full(20, 5000), 1).held
    assert [(held >= i).mean() for i in (1, 2, 3)] == pytest.approx([0.8, 0.6, 0.4], abs=0.01)


def test_a_step_makes_as_many_tokens_as_the_table_says() -> None:
    stream = requests(np.zeros(40), 32, 500)
    found = run(64000, stream, speculation=EAGLE).metrics["speculation"]
    assert found["tokens_a_step"] == pytest.approx(2.8, abs=0.03)


def test_a_draft_model_is_one_with_the_same_vocabulary() -> None:
    spec = {"method": "draft", "tokens": 1, "acceptance": [0.5], "draft_model": "qwen3-0.6b"}
    chosen = SpeculationSpec.model_validate(spec)
    found = drafter_of(chosen, load_model("qwen3-32b"), 1)
    assert found is not None
    assert found.weight_bytes == load_model("qwen3-0.6b").weight_bytes
    with pytest.raises(DescriptionError, match=r"vocabulary of 151936; expected .* 128256"):
        drafter_of(chosen, load_model("llama-3.1-8b"), 1)


def test_an_mtp_layer_has_experts_where_the_last_layer_has() -> None:
    spec = SpeculationSpec.model_validate({**EAGLE, "method": "mtp"})
    found = drafter_of(spec, load_model("deepseek-v3"), 1)
    assert found is not None
    # DeepSeek-V3: 11.5 B parameters of an MTP module without embedding and head, in fp8
    assert found.weight_bytes / 1e9 == pytest.approx(11.5, rel=0.02)
    assert load_device("h200").capacity_bytes > found.weight_bytes


ENGINES: dict[str, dict[str, Any]] = {
    "v0 in chunks": {"engine": {"name": "v0", "chunked_prefill": True}},
    "sglang, pages of 16": {"engine": {"name": "sglang"}, "policy": {"name": "radix", "page": 16}},
    "v1 over a tree": {"policy": {"name": "radix"}},
    "prefills in turn": {
        "engine": {"long_prefill_token_threshold": 24, "prefill_schedule_interval": 3},
    },
    "in turn, asynchronous": {
        "engine": {"long_prefill_token_threshold": 24, "async_scheduling": True},
    },
    "batches of a class": {"engine": {"batching": "same_tag"}, "policy": {"name": "s3"}},
    "packed": {"engine": {"packing": "first_fit"}, "policy": {"name": "s3"}},
    "a fleet that fails": {
        "cluster": {"cards": 3}, "faults": [{"mean_up_s": 0.05, "down_s": 0.02}],
    },
}  # fmt: skip
"""What is not among the pairs of serving/test_pairs.py, and a fleet."""


@pytest.mark.parametrize("name", ENGINES)
def test_drafts_make_the_same_tokens_in_fewer_steps_with(name: str) -> None:
    given = dict(ENGINES[name])
    given["engine"] = {"max_model_len": 1024, **given.get("engine", {})}
    stream = mixed(60)
    plain, drafted = (
        run(2048, stream, **given, **more).metrics for more in ({}, {"speculation": LOOKUP})
    )
    assert drafted["finished"] == plain["finished"] == 60
    found = drafted["speculation"]
    assert "speculation" not in plain
    assert 2.4 < found["tokens_a_step"] < 2.9  # 2.8 without ends
    made = int(stream.output_tokens.sum()) - 60  # of decode steps; a few are made again
    assert made * 0.55 < found["accepted"] < made * 0.75
    assert drafted["steps"] < 0.95 * plain["steps"]


def test_a_step_of_sglang_has_room_for_all_of_its_drafts() -> None:
    """A request whose pages are full retracts another where its drafts have no room."""
    stream = requests(np.zeros(8), 60, 200)
    given = {"engine": {"name": "sglang", "ends": "length", "schedule_conservativeness": 0.01}}
    found = run(1024, stream, policy={"name": "radix"}, speculation=LOOKUP, **given).metrics
    assert found["finished"] == 8 and found["preemptions"] > 0


@pytest.mark.parametrize("policy", [{"name": "paged"}, {"name": "static", "window_kv": "full"}])
def test_windows_verify_drafts(policy: dict[str, Any]) -> None:
    engine = {"max_model_len": 1024, "like": "0.33"}
    given = {"shape": WINDOWS, "policy": policy, "engine": engine}
    plain, drafted = (
        run(4096, mixed(60), **given, **more).metrics for more in ({}, {"speculation": EAGLE})
    )
    assert drafted["speculation"]["tokens_a_step"] > 2
    assert drafted["steps"] < 0.7 * plain["steps"]
    assert drafted["finished"] == plain["finished"] == 60
