"""Does a predictor learn what is there to learn, and say how sure it is?"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bankwise_trained_predictor.length_model import BINS, LEVELS, LengthLaw, restore
from bankwise_trained_predictor.prompts import read_prompts
from bankwise_trained_predictor.trained_predictor import TrainedPredictor, load_calibration
from bankwise_trained_predictor.training import lognormal_accuracy, train, write

from hwmodel.description.description import DescriptionError
from policies.predictors.predictor import predict
from tests.sweeps.cli.test_command_line import bankwise, refusal

TOPICS = {"list": 20.0, "explain": 100.0, "poem": 300.0, "story": 900.0}
SIGMA = 0.3
HAND = {
    "name": "hand", "summary": "two bins, two classes", "thresholds": [100],
    "edges": [0, 99, 400], "counts": [[9, 1], [2, 8]],
}  # fmt: skip


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
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
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
    table = load_calibration(str(file))
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


def test_a_trained_model_is_used_by_its_calibration(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"calibration": HAND}))
    spec = TrainedPredictor(model=str(file))
    assert len(set(predict(spec, np.arange(1, 200), 1).length)) == 2
    file.with_suffix(".2.json").write_text("{}")
    with pytest.raises(DescriptionError, match="not a trained predictor"):
        predict(TrainedPredictor(model=str(file.with_suffix(".2.json"))), np.array([1]), 1)


def test_times_that_training_measured(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"inference_s": {"1": 0.001, "64": 0.004}}))
    spec = TrainedPredictor.model_validate({"model": str(file), "cost": {"max_batch": 8}})
    assert spec.inference is not None
    assert spec.inference.batch_s(64) == pytest.approx(0.004) and spec.inference.max_batch == 8
    file.write_text("[]")
    with pytest.raises(DescriptionError, match="not a trained predictor"):
        spec.inference  # noqa: B018


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_file_is_answered_with_a_line(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    for read, text in (
        (read_prompts, b'{"prompt": "Why?", "output_tokens": [3, 5]}\n'),
        (load_calibration, json.dumps({"calibration": HAND, "model": {"edges": [3]}}).encode()),
    ):
        file, damaged = tmp_path / "damaged.json", bytearray(text)
        for _ in range(int(rng.integers(1, 4))):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        file.write_bytes(damaged)
        with contextlib.suppress(DescriptionError):
            read(str(file))


def test_a_run_is_served_by_a_model_and_records_it(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"calibration": HAND, "inference_s": {"1": 0.0, "64": 0.0}}))
    done = bankwise(
        "run", "smoke", "--out", "r", "--set", "policy=[odma]", "--set", "requests=20",
        "--set", f"serving.predictor={{kind: trained, model: {file}}}", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    provenance = json.loads((tmp_path / "r/provenance.json").read_text())
    assert "trained_predictor.py" in json.dumps(provenance)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest in json.dumps(provenance)
