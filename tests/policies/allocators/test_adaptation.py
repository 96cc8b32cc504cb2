"""What do bounds that follow the lengths change against frozen ones, on traces that drift?"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.score import Guess, RequestOutcome, Score
from policies.requests.requests import Requests, load_trace
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import mixed, run

DATA = Path(__file__).parents[4] / "shared" / "data"
DAY = "servegen_deepseek_r1_day.csv.gz"
TRACES = {
    DAY: (6, 8192),
    "azure2023_conv.csv.gz": (4, 2000),
}
"""Trace -> every how manieth request is taken, and the longest output (tokens)."""
POLICIES: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "frozen": {"refreshes": 1},
    "even": {"refresh": 0},
    "tail": {"levels": [0.5, 0.8, 0.95, 1.0]},
}
"""Bounds that follow; those of the first 250 lengths; those that part the longest evenly; and ones
that follow other quantiles than quartiles."""


def thinned(name: str) -> Requests:
    """The whole trace's drift in a few thousand requests, all of which wait from the start."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    every, _ = TRACES[name]
    trace = load_trace(path)
    prompt, output = trace.prompt_tokens[::every], trace.output_tokens[::every]
    return Requests(np.zeros(len(prompt)), prompt, output)


@cache
def served(name: str, policy: str) -> dict[str, Any]:
    spec = ServingSpec.model_validate(
        {
            "model": "deepseek-r1-distill-qwen-7b",
            "policy": {"name": "odma", "balance": "requests", "space": "arena", "window": 1000,
                       "refresh": 250, **POLICIES[policy]},
            "engine": {"max_num_batched_tokens": 4096,
                       "max_tokens": TRACES[name][1], "too_long": "drop"},
            "predictor": {"kind": "lognormal", "sigma": 0.4},
        }
    )  # fmt: skip
    model = load_model(spec.model, [])
    stream = thinned(name)
    return serve(load_device("mlu370-x4", []), model, spec, stream, seed=1).metrics


@pytest.mark.parametrize("name", TRACES)
def test_what_bounds_that_follow_change_on_a_drifting_trace(name: str) -> None:
    found = {policy: served(name, policy) for policy in ("adaptive", "frozen", "even")}
    medians = {
        policy: [row["bounds"][1] for row in metrics["policy"]["over_time"]]
        for policy, metrics in found.items()
    }
    assert max(medians["adaptive"]) >= 1.5 * min(medians["adaptive"])
    assert len(set(medians["frozen"])) == len(set(medians["even"])) == 1
    adaptive, frozen, even = found.values()
    assert adaptive["utilization"] > frozen["utilization"]
    assert adaptive["output_tokens_per_s"] > 0.99 * frozen["output_tokens_per_s"]
    # bounds that fit more closely are outgrown more often; even ones are met more often
    assert adaptive["policy"]["migration_rate"] > frozen["policy"]["migration_rate"]
    assert even["policy"]["bucket_accuracy"] > adaptive["policy"]["bucket_accuracy"] + 0.1
    assert even["policy"]["coverage_final"] > adaptive["policy"]["coverage_final"]


def test_quartiles_of_a_long_tail_waste_what_the_last_bucket_holds() -> None:
    """The last quarter of R1's lengths is one bucket up to the longest: evenly parted bounds serve
    more than the paper's, and so do quantiles with more of them in the tail."""
    quartiles = served(DAY, "adaptive")
    assert quartiles["policy"]["over_time"][0]["bounds"] == [512, 960, 1472, 8192]
    for other in (served(DAY, "even"), served(DAY, "tail")):
        assert other["utilization"] > quartiles["utilization"] + 0.1
        assert other["output_tokens_per_s"] > 1.1 * quartiles["output_tokens_per_s"]


def test_the_figures_over_time_are_those_of_the_whole() -> None:
    metrics = run(
        4096, mixed(2000), policy={"name": "odma"}, engine={"max_model_len": 1024},
        predictor={"kind": "lognormal", "sigma": 0.5},
    ).metrics  # fmt: skip
    whole, rows = metrics["policy"], metrics["policy"]["over_time"]
    assert len(rows) == 2
    for figure in ("bucket_accuracy", "coverage_raw", "coverage_final", "migration_rate"):
        assert np.mean([row[figure] for row in rows]) == pytest.approx(whole[figure])
    tokens = metrics["makespan_output_tokens_per_s"] * metrics["makespan_s"]
    assert sum(row["output_tokens"] for row in rows) == pytest.approx(tokens)


def test_a_row_has_what_its_period_came_to() -> None:
    """A thousand requests of 0 to 999 tokens, that were all thought to have up to 500."""
    score = Score()
    guess = Guess((500,), predicted=0, raw_slots=600, asked=500, slots=750, large=False)
    full = [score.end(guess, RequestOutcome(n, n, n, n + 1, 1000, n % 2)) for n in range(1000)]
    assert full == [False] * 999 + [True]
    score.close((400, 800))
    score.clock(2.5)
    score.clock(3.5)
    figures = score.figures()
    (row,) = figures.pop("over_time")
    assert row["lengths"] == [100, 250, 500, 749, 899] and row["bounds"] == [400, 800]
    assert (row["until_s"], row["output_tokens"]) == (2.5, 999 * 500)
    assert row["utilization"] == 500.5 / 1000
    assert figures == {
        "bucket_accuracy": 0.501, "coverage_raw": 0.601, "coverage_final": 0.751,
        "large_share": 0.0, "larger_share": 1.0, "migration_rate": pytest.approx(0.249),
        "moves_per_request": 0.5,
    }  # fmt: skip
    assert figures.items() <= row.items()
    for _ in range(1000):
        score.end(guess, RequestOutcome(7, 7, 7, 8, 1000, 0))
    score.close((400, 800))
    assert score.figures()["over_time"][1]["lengths"] == [7] * 5
