"""Training a length predictor, and what it is worth on prompts that it has not seen."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bankwise_trained_predictor.length_model import BINS, LEVELS, LengthLaw, LengthModel, fit
from bankwise_trained_predictor.prompts import Prompts, read_prompts
from hwmodel.description.description import DescriptionError
from policies.predictors.confusion import ConfusionTable, load_table
from policies.requests.requests import FloatArray, IntArray

CLASSES = (2, 4, 10)
"""Numbers of equal classes that accuracy is reported for."""
GROUPS = 8
"""Classes of the calibration table: four of the predicted length, each sure or unsure."""
CALIBRATION_BINS = 10
"""Bins of true length in it."""
BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Prompts that inference is timed with at once."""
REPEATS = 9
"""Timings that the median is taken of."""
LEAST_HELD_OUT = 100
BERT = ("bert-lmsys-2", "bert-lmsys-4")
"""Published classifiers to compare with."""


def train(path: str | Path) -> dict[str, Any]:
    """Train on the prompts of a file and judge on those held out, a fifth by the prompt's hash.

    The result is plain data: `report`, `model`, `calibration` (a `ConfusionTable`: true length by
    what was predicted, on the prompts held out) and `inference_s`, a batch's seconds by its size on
    this machine. Raises DescriptionError.
    """
    prompts = read_prompts(path)
    seen, unseen = prompts.part(held_out=False), prompts.part(held_out=True)
    if len(unseen.texts) < LEAST_HELD_OUT:
        raise DescriptionError(
            f"{len(unseen.texts)} answers held out; expected {LEAST_HELD_OUT} or more", path
        )
    begin = time.perf_counter()
    model = fit(seen.texts, seen.prompt, seen.output_tokens)
    wall_s = time.perf_counter() - begin
    law = model.predict(unseen.texts)
    report = {
        "file": Path(path).name,
        "trained_on": len(seen.texts),
        "held_out": len(unseen.texts),
        **judge(model, law, unseen.output_tokens),
        "train_wall_s": wall_s,
    }
    inference = inference_s(model, unseen)
    each_s = {batch: seconds / int(batch) for batch, seconds in inference.items()}
    table = calibration(model, law, unseen.output_tokens, Path(path).name)
    return {
        "kind": "trained_predictor",
        "report": {**report, "inference_s_per_request": each_s},
        "inference_s": inference,
        "calibration": table.model_dump(mode="json", exclude_none=True),
        "model": model.dump(),
    }


def write(model: dict[str, Any], path: str | Path) -> None:
    """Write a trained model as JSON. Raises DescriptionError if it cannot."""
    try:
        Path(path).write_text(json.dumps(model) + "\n", encoding="utf-8")
    except OSError as error:
        raise DescriptionError(f"cannot be written: {error.strerror}", path) from None


def judge(model: LengthModel, law: LengthLaw, output_tokens: IntArray) -> dict[str, Any]:
    """What predictions are worth: see the keys of the result."""
    logs = np.log(output_tokens)
    error = logs - np.log(law.length)
    sigma = float(error.std())
    bins = model.bin_of(output_tokens)
    median = np.full(len(logs), logs_median(model))
    return {
        "accuracy": {str(k): _accuracy(law.classes(k), bins // (BINS // k)) for k in CLASSES},
        "accuracy_of": {
            "always_the_median": {str(k): _always(bins, k) for k in CLASSES},
            "lognormal_of_the_same_spread": {
                str(k): lognormal_accuracy(model, output_tokens, sigma, k) for k in CLASSES
            },
        },
        "like_bert": {name: _like(name, model, law, output_tokens) for name in BERT},
        "log_error": {
            "mean": float(error.mean()),
            "sd": sigma,
            "mean_absolute": float(np.abs(error).mean()),
        },
        "log_error_of_the_median": float(np.abs(logs - median).mean()),
        "coverage": {
            str(level): float((output_tokens <= law.quantiles[:, i]).mean())
            for i, level in enumerate(LEVELS)
        },
        "calibration_of_u": reliability(law, bins),
    }


def logs_median(model: LengthModel) -> float:
    """ln of the median length that the model was trained on."""
    return float(np.log(model.edges[BINS // 2 - 1]))


def lognormal_accuracy(
    model: LengthModel, output_tokens: IntArray, sigma: float, classes: int
) -> float:
    """How often exp(sigma z) times the true length is in its class; z normal, in its mean."""
    from statistics import NormalDist

    score = (np.arange(200) + 0.5) / 200
    factor = np.exp(sigma * np.array([NormalDist().inv_cdf(p) for p in score]))
    step = BINS // classes
    cuts = model.edges[step - 1 :: step]
    true = np.searchsorted(cuts, output_tokens, side="left")
    guess = np.searchsorted(cuts, output_tokens[:, None] * factor, side="left")
    return float((guess == true[:, None]).mean())


def reliability(law: LengthLaw, bins: IntArray, classes: int = 4) -> dict[str, Any]:
    """Of the fifths of u (entropy over `classes`), from the surest: mean u, how sure the likeliest
    class was said to be and how often it was right; `expected_error` is the mean gap of the two."""
    shares, unsure = law.classes(classes), law.uncertainty(classes)
    right = shares.argmax(axis=1) == bins // (BINS // classes)
    sure = shares.max(axis=1)
    fifths = np.array_split(np.argsort(unsure, kind="stable"), 5)
    rows = [
        {
            "u": float(unsure[rows].mean()),
            "said": float(sure[rows].mean()),
            "right": float(right[rows].mean()),
        }
        for rows in fifths
    ]
    gap = float(np.mean([abs(row["said"] - row["right"]) for row in rows]))
    return {"fifths": rows, "expected_error": gap}


def calibration(
    model: LengthModel, law: LengthLaw, output_tokens: IntArray, name: str
) -> ConfusionTable:
    """True length by what was predicted: GROUPS of predictions, what the class heads say of them
    on average, and how long the answers were."""
    step = BINS // CALIBRATION_BINS
    inner = np.unique(model.edges[step - 1 :: step])
    longest = max(model.longest, int(output_tokens.max()))
    edges = [0, *inner[inner < longest].tolist(), longest]
    place = np.searchsorted(edges[1:], output_tokens, side="left")
    group = _groups(law)
    counts = np.zeros((len(edges) - 1, GROUPS), np.int64)
    np.add.at(counts, (place, group), 1)
    ends = np.append(model.edges, longest)
    into = np.searchsorted(edges[1:], ends, side="left")  # bins that ties have joined
    said = np.zeros((GROUPS, len(edges) - 1))
    for each in range(GROUPS):
        np.add.at(said[each], into, law.shares[group == each].mean(axis=0))
    return ConfusionTable(
        name=f"trained on {name}",
        summary="a trained predictor on prompts held out",
        edges=edges,
        counts=counts.tolist(),
        says=said.round(6).tolist(),
    )


def inference_s(model: LengthModel, prompts: Prompts) -> dict[str, float]:
    """Median seconds of a batch by its size, on this machine, words to laws."""
    found = {}
    for batch in BATCHES:
        texts = prompts.texts[:batch]
        model.predict(texts)
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            model.predict(texts)
            times.append(time.perf_counter() - begin)
        found[str(len(texts))] = float(np.median(times))
    return found


def _groups(law: LengthLaw) -> IntArray:
    """The group of each prediction, int64 (n,): by quarters of the predicted length, then by halves
    of u."""
    quarter = _rank(law.length, np.arange(len(law.length)), 4)
    group = 2 * quarter
    for each in range(4):
        rows = np.flatnonzero(quarter == each)
        group[rows] += _rank(law.uncertainty(), rows, 2)
    return group


def _rank(values: FloatArray, rows: IntArray, parts: int) -> IntArray:
    """Which of `parts` equal parts each of `rows` is in, by its value."""
    order = np.argsort(np.argsort(values[rows], kind="stable"), kind="stable")
    return (order * parts // len(rows)).astype(np.int64)


def _accuracy(shares: FloatArray, true: IntArray) -> float:
    return float((shares.argmax(axis=1) == true).mean())


def _always(bins: IntArray, classes: int) -> float:
    """Accuracy of always naming the class of the median."""
    step = BINS // classes
    return float((bins // step == (BINS // 2 - 1) // step).mean())


def _like(
    name: str, model: LengthModel, law: LengthLaw, output_tokens: IntArray
) -> dict[str, float]:
    """Accuracy with the classes of a published classifier, at equal quantile levels, beside its
    own."""
    table = load_table(name)
    counts = np.array(table.counts).sum(axis=1)
    ends = np.array(table.edges[1:])
    levels = [counts[ends < cut].sum() / counts.sum() for cut in table.thresholds]
    below = np.column_stack((np.zeros(len(law.shares)), np.cumsum(law.shares, axis=1)))
    at = np.arange(BINS + 1) / BINS
    parts = np.column_stack([[np.interp(level, at, row) for row in below] for level in levels])
    whole = np.column_stack((np.zeros(len(parts)), parts, np.ones(len(parts))))
    true = np.searchsorted(np.quantile(output_tokens, levels), output_tokens, side="left")
    own = _accuracy(np.diff(whole, axis=1), true.astype(np.int64))
    return {"accuracy": own, "bert": table.accuracy()}
