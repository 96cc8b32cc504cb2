"""Do the closed forms of `fit` give what a serving run of the same requests finds?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.registry import POLICIES
from policies.memory.fidelity import FidelitySpec
from policies.requests.requests import Requests
from policies.serving.serving import serve
from sweeps.ask.fit import Fit, FitQuestion, Misfit, fit
from sweeps.ask.fit_section import listing, matrix, record, sheet

SHORT = FitQuestion(prompt=2500, output=40, limit=60)


def found(device: str, model: str, asked: FitQuestion = SHORT) -> Fit:
    answer = fit(load_device(device), load_model(model), asked)
    assert isinstance(answer, Fit), answer
    return answer


def served(answer: Fit, count: int, policy: str = "paged") -> dict[str, Any]:
    """Metrics of `count` requests of the question at once, memory as efficient as the answer's."""
    asked = answer.question
    even = None if answer.device.given else answer.efficiency.weights
    memory = FidelitySpec(efficiency=even)
    own = {"memory": memory, "policy": POLICIES[policy].Options(name=policy)}
    spec = asked.spec(answer.model).model_copy(update=own)
    each = np.ones(count, np.int64)
    requests = Requests(np.zeros(count), asked.prompt * each, asked.output * each)
    return serve(answer.device, answer.model, spec, requests, seed=1).metrics


PAIRS = [
    ("rtx-4090", "llama-3.1-8b", SHORT),
    (
        "mlu370-x4",
        "qwen2.5-7b",
        FitQuestion(prompt=2500, output=40, limit=60, weights="int8", kv="int8", cards=2),
    ),
    ("spyre", "qwen3-30b-a3b", SHORT),
]


@pytest.mark.parametrize(("device", "model", "asked"), PAIRS)
def test_one_request_alone_takes_as_long_as_in_a_run(
    device: str, model: str, asked: FitQuestion
) -> None:
    answer = found(device, model, asked)
    run = served(answer, 1)
    assert answer.layout.tokens == run["kv_capacity_tokens"]
    assert answer.alone.seconds == pytest.approx(run["tpot_s"]["mean"], rel=1e-6)
    assert answer.prefill.seconds == pytest.approx(run["ttft_s"]["mean"], rel=1e-6)


@pytest.mark.parametrize("model", ["gemma-3-12b", "gemma-3-27b", "gpt-oss-20b", "llama-3.1-8b"])
def test_tokens_of_kv_are_in_all_layers_and_as_many_as_a_run_has(model: str) -> None:
    answer = found("h100-sxm", model)
    said = record(answer)
    assert said["kv_tokens"] == served(answer, 1)["kv_capacity_tokens"]
    assert said["kv_bytes_a_token"] >= answer.part.kv_token_bytes
    left = said["memory_bytes"]["KV"] - said["kv_tokens"] * said["kv_bytes_a_token"]
    assert 0 <= left < said["kv_bytes_a_token"]
    (row,) = listing([answer], "models").blocks[0].rows  # type: ignore[union-attr]
    shown = f"{said['kv_tokens']:,}"
    assert shown in row and shown in str(sheet(answer).blocks)


def test_memory_holds_as_many_as_run_at_once() -> None:
    answer = found("rtx-4090", "llama-3.1-8b")
    for policy, (_, count) in answer.policies().items():
        run = served(answer, 3 * count, policy)
        most = max(filter(None, run["over_time"]["running"]))
        # what grows on demand holds more as long as not all are at their full length
        slack = 1 if policy in ("paged", "ideal", "vattention") else 0
        assert count <= most + 0.5 and most <= count + slack, (policy, count, most)


def test_a_misfit_says_with_what_it_fits() -> None:
    card, small = load_device("mlu370-x4"), load_device("rtx-4090", ["host=null"])
    answers = {
        model: fit(card, load_model(model), FitQuestion())
        for model in ("llama-2-13b", "llama-2-70b")
    }
    assert [each.change for each in answers.values() if isinstance(each, Misfit)] == [
        {"weights": "int8"}, {"cards": 8},
    ]  # fmt: skip
    lost = fit(small, load_model("llama-2-70b"), FitQuestion())
    assert isinstance(lost, Misfit) and lost.change is None
    assert "no link" in sheet(lost).blocks[0].text  # type: ignore[union-attr]
    narrow = fit(
        small, load_model("qwen3-32b"), FitQuestion(weights="w4a16", prompt=7500, output=500)
    )
    assert isinstance(narrow, Misfit) and narrow.change == {"kv": "fp8"}
    for weights, change in ((None, {"weights": "w4a16", "cards": 1}), ("w4a16", {"cards": 1})):
        question = FitQuestion(cards=2, weights=weights)  # it has no link, but one card holds w4a16
        apart = fit(small, load_model("qwen3-30b-a3b"), question)
        assert isinstance(apart, Misfit) and apart.change == change
        assert "describes no link, which 2 cards need; --set 'link=" in apart.why


def test_cards_without_a_described_link_talk_over_their_host() -> None:
    """At the host's bandwidth, which is assumed, and the sheet says so."""
    asked = SHORT.model_copy(update={"cards": 2, "weights": "int8"})
    over_host, described = (
        fit(load_device("rtx-4090", given), load_model("qwen3-32b"), asked)
        for given in ([], ["link={bandwidth: 16GB/s, latency: 10us}"])
    )
    assert isinstance(over_host, Fit) and isinstance(described, Fit)
    assert over_host.full == described.full and over_host.prefill == described.prefill
    assert over_host.assumed()["prefill"]["link"] == "as the host's, 10us a message"
    assert "link" not in described.assumed().get("prefill", {})
    run = served(over_host, 1)
    assert run["ttft_s"]["p50"] == pytest.approx(over_host.prefill.seconds, rel=0.02)


def test_tables_have_a_row_for_each() -> None:
    devices = [load_device(name) for name in ("mlu370-x4", "rtx-4090")]
    models = [load_model(name) for name in ("llama-2-7b", "llama-2-70b", "qwen3-8b")]
    answers = [fit(device, model, FitQuestion()) for device in devices for model in models]
    grid = matrix(answers).blocks[0]
    assert [row[0] for row in grid.rows] == ["llama-2-7b", "qwen3-8b", "llama-2-70b"]  # type: ignore[union-attr]
    assert [row[2] for row in grid.rows][2] == "8x"  # type: ignore[union-attr]
    rows = listing(answers[:3], "models").blocks[0].rows  # type: ignore[union-attr]
    assert rows[0][0] == "llama-2-7b" and rows[2][-1] == "fits with --cards 8"
    assert record(answers[1])["fits_with"] == {"cards": 8}


@pytest.mark.parametrize(
    ("model", "kv", "tokens"),
    [("llama-3.1-8b", None, 476_016), ("llama-3.1-8b", "fp8", 952_032),
     ("qwen2.5-7b", None, 1_096_000)],
)  # fmt: skip
def test_tokens_are_those_that_a_server_logs(model: str, kv: str | None, tokens: int) -> None:
    """vLLM 0.19.0 on an H100, utilisation 0.95 (llm-d-planner 151baf3, accuracy_report.md)."""
    asked = FitQuestion(kv=kv, like="0.19", gpu_memory_utilization=0.95)
    found = fit(load_device("h100-sxm"), load_model(model), asked)
    assert isinstance(found, Fit)
    assert found.layout.tokens == pytest.approx(tokens, rel=0.02)
    assert found.most == 1024 and "outside PyTorch" in found.memory()


def test_fewer_sequences_leave_more_for_kv() -> None:
    one = {"like": "0.19", "gpu_memory_utilization": 0.95}
    card, model = load_device("h100-sxm"), load_model("llama-3.1-8b")
    few, many = (
        fit(card, model, FitQuestion(**one, max_num_seqs=most))  # type: ignore[arg-type]
        for most in (128, 1024)
    )
    assert isinstance(few, Fit) and isinstance(many, Fit)
    assert few.layout.bytes > many.layout.bytes and few.held == few.most == 128


def test_brackets_of_experts_begin_where_tokens_choose_them_by_a_power() -> None:
    """At one sequence no expert is shared; with many fewer are read."""
    answer = found("h200", "gpt-oss-120b")
    assert answer.skewed is not None and found("h200", "llama-3.1-8b").skewed is None
    alone, full, _ = answer.skewed
    assert alone.seconds == pytest.approx(answer.alone.seconds) and answer.device.accelerator
    low = answer.device.accelerator.kernels.spread_low
    assert answer.interval_s(answer.full)[0] == pytest.approx(low * full.seconds)
    assert full.seconds < answer.full.seconds
    assert "by a power of 1" in str(sheet(answer))
