"""Is each setting held against the base on the same requests, and are the best tried again?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.ask import tuning
from sweeps.ask.server_settings import settings_of
from sweeps.ask.size_settings import SizeSettingsQuestion, TunedServer, flags, tuned_blocks
from sweeps.ask.tuning import Tuned, TuningChoice, choices, together, tune, worths
from sweeps.plan.experiment import ExperimentSpec
from sweeps.run.progress import Progress
from sweeps.sections.section import Say, Section
from tests.sweeps.report.golden import held, text_of

ASKED = SizeSettingsQuestion.of({
    "device": "rtx-4090", "model": "llama-3.1-8b", "workload": "sharegpt",
    "slo": "ttft=2s,tpot=50ms", "requests": 40, "replications": 2,
})  # fmt: skip


def changed(**values: Any) -> SizeSettingsQuestion:
    return ASKED.model_copy(update=values)


def made(values: dict[str, Any], *rates: float) -> TuningChoice:
    return TuningChoice(values, ASKED.experiment(), dict(enumerate(rates, 1)))


BASE = made({}, 1.0, 1.1, 0.9, 1.0)
BETTER = made({"kv": "fp8_e4m3"}, 1.5, 1.66, 1.35, 1.49)
FASTER = made({"chunk": 512}, 1.2, 1.33, 1.08, 1.21)
SAME = made({"block": 32}, 1.0, 1.1, 0.9, 1.0)
WORSE = made({"caching": False}, 0.5, 0.56, 0.45, 0.5)
NOISY = made({"sequences": 64}, 0.6, 1.5, 1.2, 0.7)


def test_what_each_setting_is_worth() -> None:
    found = worths(BASE, [BETTER, SAME, WORSE, NOISY, TuningChoice({"cards": 2}, BASE.experiment)])
    said = [each.says for each in found]
    assert said == ["better", "no matter", "worse", "undecided", "not possible"]
    gain = found[0].gain
    assert gain is not None and math.isclose(gain.mean, 0.5, abs_tol=0.01)
    assert Tuned(ASKED, BASE, {}, found, None, None).idle == ["block"]


def test_a_setting_counts_by_the_card() -> None:
    twice = ASKED.experiment({"serving.tensor_parallel": 2})
    (found,) = worths(BASE, [TuningChoice({"cards": 2}, twice, dict.fromkeys((1, 2, 3, 4), 1.5))])
    assert found.says == "worse" and found.gain is not None and found.gain.mean < -0.2


def test_where_the_base_carries_nothing_anything_is_better() -> None:
    nothing = replace(BASE, rates={}, why="no rate attains the objective")
    found = worths(nothing, [BETTER, FASTER])
    assert [each.says for each in found] == ["better", "better"]
    assert together(ASKED, found)[1].values == BETTER.values


def test_the_best_of_each_are_taken_together_and_beside_the_best_alone() -> None:
    joint, alone = together(ASKED, worths(BASE, [BETTER, FASTER, SAME]))
    assert joint.values == {"kv": "fp8_e4m3", "chunk": 512} and not joint.rates
    assert settings_of(joint.experiment)["chunk"] == 512
    assert alone.values == BETTER.values
    assert not together(ASKED, worths(BASE, [SAME, WORSE]))


def test_the_best_is_confirmed_on_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def goodput(task: tuple[ExperimentSpec, tuple[int]]) -> float:
        experiment, (replication,) = task
        return (1.5 if experiment.serving.kv else 1.0) + 0.01 * replication

    monkeypatch.setattr(tuning, "goodput_task", goodput)
    asked = changed(only=("kv", "caching"), replications=3)
    tuned = tune(asked, choices(asked), 1, Progress(False))
    assert [each.says for each in tuned.worths] == ["better", "no matter"]
    assert tuned.best is not None and tuned.confirmed is not None
    assert sorted(tuned.confirmed.choice.rates) == [4, 5, 6]
    assert "--kv-cache-dtype fp8_e4m3" in flags(tuned)["vLLM"]
    said = [block.text for block in tuned_blocks(tuned) if isinstance(block, Say)]
    assert "confirmed on 3 fresh replications" in said[0]
    assert TunedServer(tuned).record()["best"]["values"] == {"kv": "fp8_e4m3"}


def test_flags_are_of_the_settings() -> None:
    off = ASKED.experiment({"serving.policy.prefix_caching": False})
    found = flags(Tuned(ASKED, BASE, settings_of(off), [], None, None))
    assert found["vLLM"] == (
        "vllm serve MODEL --block-size 16 --kv-cache-dtype auto --max-num-batched-tokens 2048"
        " --no-enable-prefix-caching --max-num-seqs 256 --tensor-parallel-size 1"
    )
    assert found["SGLang"].endswith(
        "--page-size 16 --kv-cache-dtype auto --chunked-prefill-size 2048 --disable-radix-cache"
        " --max-running-requests 256 --tp-size 1"
    )


def test_what_is_tuned_is_told_as_it_was_last_looked_at() -> None:
    """The best value of chunk is the last that was tried."""
    found = worths(BASE, [FASTER, WORSE])
    start = settings_of(BASE.experiment)
    each = (Tuned(ASKED, BASE, start, found, FASTER, found[0]),
            Tuned(ASKED, BASE, start, worths(BASE, [WORSE, SAME, NOISY]), None, None))  # fmt: skip
    held("tuned", text_of(*(Section("", [*tuned_blocks(one)]) for one in each)))


def test_what_cannot_be_tried() -> None:
    with pytest.raises(DescriptionError, match="describes no link"):
        choices(changed(device="m4-max", only=("cards",)))
    with pytest.raises(DescriptionError, match="did you mean 'block'"):
        choices(changed(only=("blocks",)))
