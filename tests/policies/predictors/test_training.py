"""Does a predictor learn what is there to learn, and say how sure it is?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.predictors.confusion import load_table
from policies.predictors.length_model import BINS, LEVELS, LengthLaw, restore
from policies.predictors.predictor import predict
from policies.predictors.trained_predictor import TrainedPredictor
from policies.predictors.training import lognormal_accuracy, train, write
from policies.requests.prompts import read_prompts
from tests.sweeps.cli.test_command_line import refusal

TOPICS = {"list": 20.0, "explain": 100.0, "poem": 300.0, "story": 900.0}
SIGMA = 0.3


@pytest.fixture(scope="module", autouse=True)
def sklearn() -> None:
    """Imported by the worker that runs them: it takes seconds."""
    pytest.importorskip("sklearn")


def planted(file: Path, count: int = 2_400) -> Path:
    """Prompts whose first word gives the length, to a factor exp(0.3 z)."""
    rng = np.random.default_rng(1)
    words = list(TOPICS)
    lines = []
    for index in range(count):
        topic = words[index % 4]
        tokens = max(round(TOPICS[topic] * float(np.exp(SIGMA * rng.standard_normal()))), 1)
        prompt = f"{topic} number {rng.integers(10**6)} of {rng.integers(10**6)}"
        lines.append(json.dumps({"prompt": prompt, "output_tokens": tokens}))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def found(sklearn: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(planted(tmp_path_factory.mktemp("prompts") / "planted.jsonl"))


def test_it_learns_what_is_planted(found: dict[str, Any]) -> None:
    report = found["report"]
    assert report["trained_on"] + report["held_out"] == 2_400
    assert report["held_out"] == pytest.approx(2_400 / 5, rel=0.15)
    # topics are three standard deviations apart and a quarter of the prompts each
    assert report["accuracy"]["4"] > 0.93 and report["accuracy"]["2"] > 0.93
    assert report["accuracy_of"]["always_the_median"]["4"] == pytest.approx(0.25, abs=0.06)
    assert report["log_error"]["sd"] == pytest.approx(SIGMA, abs=0.06)
    for level in LEVELS:
        assert report["coverage"][str(level)] == pytest.approx(level, abs=0.07)
    assert report["calibration_of_u"]["expected_error"] < 0.06


def test_inference_is_timed_by_batch(found: dict[str, Any]) -> None:
    assert list(found["inference_s"]) == ["1", "2", "4", "8", "16", "32", "64"]
    assert found["report"]["inference_s_per_request"]["4"] == found["inference_s"]["4"] / 4


def test_the_file_is_plain_data_and_predicts_the_same(
    found: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    write(found, file)
    model = restore(json.loads(file.read_text())["model"])
    law = model.predict(["poem number 1 of 2", "list number 1 of 2"])
    assert law.length[0] == pytest.approx(300, rel=0.2)
    assert law.length[1] == pytest.approx(20, rel=0.2)
    assert (np.diff(law.quantiles, axis=1) >= 0).all()
    table = load_table(str(file))
    assert np.sum(table.counts) == found["report"]["held_out"]
    spec = TrainedPredictor(model=str(file))
    lengths = np.random.default_rng(2).lognormal(5, 1, 4_000).astype(np.int64) + 1
    guess = predict(spec, lengths, 1)
    # what is long is predicted long, as far as groups of a quarter of the prompts go
    assert np.corrcoef(np.log(lengths), np.log(guess.length))[0, 1] > 0.8


def test_training_again_gives_the_same_model(found: dict[str, Any], tmp_path: Path) -> None:
    again = train(planted(tmp_path / "planted.jsonl"))
    assert again["model"] == found["model"] and again["calibration"] == found["calibration"]


def test_uncertainty_by_hand() -> None:
    even = np.full((1, BINS), 1 / BINS)
    one = np.zeros((1, BINS))
    one[0, 3] = 1
    law = LengthLaw(np.vstack((even, one)), np.ones((2, len(LEVELS))))
    assert law.uncertainty() == pytest.approx([1, 0])
    halves = np.zeros((1, BINS))
    halves[0, [0, 19]] = 0.5
    assert LengthLaw(halves, np.ones((1, len(LEVELS)))).uncertainty() == pytest.approx([0.5])


def test_a_lognormal_of_no_spread_is_always_right(found: dict[str, Any]) -> None:
    model = restore(found["model"])
    lengths = np.arange(10, 500)
    assert lognormal_accuracy(model, lengths, 0.0, 10) == 1
    assert lognormal_accuracy(model, lengths, 1.0, 10) < 0.5


def test_answers_to_one_prompt_stay_on_one_side(tmp_path: Path) -> None:
    file = tmp_path / "several.jsonl"
    rows = [
        {"prompt": f"question {i}", "model": model, "output_tokens": [i + 1, i + 2]}
        for model in "ab"
        for i in range(200)
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    found = read_prompts(file)
    assert len(found.texts) == 800 and found.texts[0] == "model:a\nquestion 0"
    held = found.held_out.reshape(2, 200, 2)
    assert (held == held[0, :, :1]).all() and 0 < held.mean() < 0.4
    assert found.prompt.reshape(2, 200, 2)[1, 7].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "p.jsonl:1: not JSON"),
        ("[1]", "expected an object"),
        ('{"output_tokens": 3}', "no prompt, instruction, question or text"),
        ('{"prompt": "a", "output_tokens": 0}', "whole numbers above 0"),
        ('{"prompt": "a", "output_tokens": 3}', "held out; expected 100 or more"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(line + "\n")
    assert message in refusal("new", "predictor", file, cwd=tmp_path)


def test_without_scikit_learn_it_says_what_to_install(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(DescriptionError, match=r"bankwise\[predict\]"):
        restore(found["model"]).predict(["a"])
