"""Does a length table keep what matters of its trace: lengths, their relation, and their drift?"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

import yaml
from hwmodel.description.library import find
from policies.requests.length_table import LengthTable, PromptClass, TraceWindow, fit, main, to_yaml
from policies.requests.requests import Requests, Trace, load_trace
from tests.policies.workloads import resolve_workload

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data"

SHIPPED = {
    "r1-reasoning": "servegen_deepseek_r1_day.csv.gz",
    "azure-conv": "azure2023_conv.csv.gz",
    "azure-code": "azure2023_code.csv.gz",
    "alpaca": "alpaca_davinci003_llama.csv.gz",
    "sharegpt": "sharegpt8k_llama2.csv.gz",
    "mooncake-conversation": "mooncake_conversation.csv.gz",
}
DRAWS = 400_000
"""Enough that the noise of sampling is well below the tolerances."""
MEAN_TOLERANCE = 0.02
P50_TOLERANCE, P90_TOLERANCE, P99_TOLERANCE = 0.02, 0.04, 0.05
CLASS_MEAN_TOLERANCE = 0.05
"""Of the mean output in a class of prompts, over the whole trace."""

Lengths = tuple[NDArray[np.int64], NDArray[np.int64]]


def source_of(name: str) -> Trace:
    file = DATA / SHIPPED[name]
    if not file.is_file():
        pytest.skip(f"the trace behind {name} is not here: {file}")
    return load_trace(file)


def table_of(name: str) -> LengthTable:
    table = resolve_workload(name).lengths.table
    assert table is not None
    return table


def draw(
    table: LengthTable, count: int = DRAWS, seed: int = 1, window: int | None = None
) -> Lengths:
    return table.sample(count, np.random.default_rng(seed), window)


def two_windows() -> LengthTable:
    def window(share: float, prompts: list[int], outputs: list[int]) -> TraceWindow:
        part = PromptClass(share=1, prompt_tokens=prompts, output_tokens=outputs)
        return TraceWindow(share=share, classes=[part])

    return LengthTable(
        quantiles=[0, 0.5, 1],
        windows=[window(0.25, [1, 2, 4], [10, 10, 10]), window(0.75, [8, 8, 9], [20, 20, 20])],
    )


def assert_near(got: float, wanted: float, tolerance: float, what: str) -> None:
    """Within `tolerance` of `wanted`, or within a token."""
    assert abs(got - wanted) <= max(tolerance * wanted, 1.0), f"{what}: {got} against {wanted}"


@pytest.mark.parametrize("name", SHIPPED)
def test_lengths_their_relation_and_their_drift_are_those_of_the_trace(name: str) -> None:
    trace, table = source_of(name), table_of(name)
    prompts, outputs = draw(table)
    pairs = (("prompt", prompts, trace.prompt_tokens), ("output", outputs, trace.output_tokens))
    for what, drawn, real in pairs:
        assert_near(drawn.mean(), real.mean(), MEAN_TOLERANCE, f"{what} mean")
        for level, tolerance in (50, P50_TOLERANCE), (90, P90_TOLERANCE), (99, P99_TOLERANCE):
            got, wanted = np.percentile(drawn, level), np.percentile(real, level)
            assert_near(float(got), float(wanted), tolerance, f"{what} p{level}")
        assert drawn.min() >= real.min() and drawn.max() <= real.max()
    cuts = [0.0, *np.quantile(trace.prompt_tokens, [1 / 3, 2 / 3]), np.inf]
    for low, high in itertools.pairwise(cuts):
        real, drawn = (
            tokens[(by > low) & (by <= high)].mean()
            for by, tokens in ((trace.prompt_tokens, trace.output_tokens), (prompts, outputs))
        )
        assert_near(drawn, real, CLASS_MEAN_TOLERANCE, f"output mean, prompts from {low}")
    where, walked = fit_windows(trace, len(table.windows)), table.window_of(DRAWS)
    for k, window in enumerate(table.windows):
        assert np.mean(where == k) == pytest.approx(window.share, abs=1e-4)
        assert np.mean(walked == k) == pytest.approx(window.share, abs=1e-3)
        real, drawn = trace.output_tokens[where == k], outputs[walked == k]
        assert_near(float(np.median(drawn)), float(np.median(real)), 0.03, f"p50, window {k}")
        assert_near(drawn.mean(), real.mean(), 0.04, f"mean, window {k}")


def fit_windows(trace: Trace, windows: int) -> NDArray[np.int64]:
    """Window of each request, written again: equal spans of time, or of requests without times."""
    clock = np.arange(len(trace)) + 0.0 if trace.arrival_s is None else trace.arrival_s
    edges = np.linspace(clock[0], clock[-1], windows + 1)[1:-1]
    return np.searchsorted(edges, clock, side="right")


def test_the_reasoning_day_drifts_by_more_than_a_factor_of_three() -> None:
    table = table_of("r1-reasoning")
    medians = [np.median(draw(table, 20_000, window=k)[1]) for k in range(len(table.windows))]
    assert max(medians) > 3 * min(medians)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_table_is_what_its_command_prints_and_says_where_it_is_from(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source_of(name)
    table = table_of(name)
    assert table.made_by is not None and table.source is not None
    program, _, rest = table.made_by.partition(".csv.gz ")
    assert program + ".csv.gz" == f"python -m policies.requests.length_table {SHIPPED[name]}"
    assert main([str(DATA / SHIPPED[name]), *rest.split(), "--source", table.source]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)["table"]
    assert LengthTable.model_validate(printed) == table
    assert re.search(r"github\.com/\S+/\S+, ", table.source)
    assert re.search(r"commit [0-9a-f]{40}", table.source)
    assert re.search(r"Apache-2\.0|CC BY", table.source)
    text = find("workloads", name).read_text()
    assert not re.search(r"(?<![\w.])/\w+/|\.\./|shared/", text)
    assert len(text.splitlines()) <= 150


def test_a_run_walks_through_the_windows_once_in_order_and_by_share() -> None:
    table = two_windows()
    assert table.window_of(8).tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    _, outputs = draw(table, 1000)
    assert outputs.tolist() == [10] * 250 + [20] * 750


def test_a_frozen_window_gives_only_its_own_lengths() -> None:
    prompts, outputs = draw(two_windows(), 1000, window=0)
    assert set(outputs) == {10} and prompts.max() <= 4
    with pytest.raises(ValueError, match="no window 2; the table has 0 to 1"):
        draw(two_windows(), 10, window=2)


def test_the_same_generator_state_gives_the_same_lengths_and_a_longer_run_begins_alike() -> None:
    table = table_of("r1-reasoning")
    for first, again in zip(draw(table, 5000), draw(table, 5000), strict=True):
        assert np.array_equal(first, again)
    short, long = draw(table, 100, window=3), draw(table, 1000, window=3)
    assert np.array_equal(short[0], long[0][:100]) and np.array_equal(short[1], long[1][:100])
    assert not np.array_equal(draw(table, 100, seed=2)[0], draw(table, 100, seed=1)[0])


def test_quantiles_are_interpolated_on_a_logarithmic_scale() -> None:
    part = PromptClass(share=1, prompt_tokens=[100, 10_000], output_tokens=[1, 1])
    table = LengthTable(quantiles=[0, 1], windows=[TraceWindow(share=1, classes=[part])])
    prompts, _ = draw(table)
    assert np.median(prompts) == pytest.approx(1000, rel=0.02)
    assert prompts.mean() == pytest.approx(9900 / np.log(100), rel=0.01)  # integral of 100 * 100**u


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=6), st.integers(1, 300))
def test_samples_stay_between_the_lowest_and_the_highest_point(points: list[int], n: int) -> None:
    points.sort()
    part = PromptClass(share=1, prompt_tokens=points, output_tokens=points)
    levels = np.linspace(0, 1, len(points)).tolist()
    table = LengthTable(quantiles=levels, windows=[TraceWindow(share=1, classes=[part])])
    for tokens in draw(table, n):
        assert len(tokens) == n and tokens.min() >= points[0] and tokens.max() <= points[-1]


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_a_fitted_table_survives_being_printed(w: int, c: int, timed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 5000, (2, 600))
    times = np.arange(600.0)
    trace = Trace(times if timed else None, prompts, outputs, 0, Path("made-up.csv"))
    table = fit(trace, w, c, source="here: and 'there'", made_by="a test")
    assert len(table.windows) == w and all(len(x.classes) == c for x in table.windows)
    assert all((x.span_s is not None) == timed for x in table.windows)
    assert LengthTable.model_validate(yaml.safe_load(to_yaml(table))["table"]) == table


def test_equal_prompts_stay_in_one_class() -> None:
    same = np.full(200, 7)
    table = fit(Requests(np.arange(200.0), same, np.arange(1, 201)), prompt_classes=4)
    assert [part.share for part in table.windows[0].classes] == [1.0]


def test_a_fit_refuses_classes_too_small_to_have_quantiles() -> None:
    requests = Requests(np.arange(100.0), np.arange(1, 101), np.arange(1, 101))
    with pytest.raises(ValueError, match="class 0 of window 0 has only 10 requests"):
        fit(requests, prompt_classes=10)
    with pytest.raises(ValueError, match="window 0 has only 10 requests; use fewer windows"):
        fit(requests, windows=10)
    with pytest.raises(ValueError, match="at least 1 window"):
        fit(requests, windows=0)
    with pytest.raises(ValueError, match="at the same time"):
        fit(Requests(np.zeros(100), np.arange(1, 101), np.arange(1, 101)), windows=2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quantiles": [0, 0.5, 0.9]}, "quantiles must rise from 0 to 1"),
        ({"quantiles": [0, 1]}, "has 3 points for 2 quantiles"),
        ({"share": 0.5}, "shares of the windows must sum to 1"),
        ({"class_share": 0.5}, "shares of the classes must sum to 1"),
        ({"prompt_tokens": [3, 2, 4]}, "prompt_tokens must not decrease"),
        ({"prompt_tokens": [0, 2, 4]}, "greater than or equal to 1"),
        ({"windows": []}, "at least 1 item"),
    ],
)
def test_an_inconsistent_table_is_refused(change: dict[str, object], why: str) -> None:
    part = {
        "share": change.get("class_share", 1.0),
        "prompt_tokens": change.get("prompt_tokens", [1, 2, 4]),
        "output_tokens": [1, 2, 4],
    }
    window = {"share": change.get("share", 1.0), "classes": [part]}
    data = {
        "quantiles": change.get("quantiles", [0, 0.5, 1]),
        "windows": change.get("windows", [window]),
    }
    with pytest.raises(ValidationError, match=why):
        LengthTable.model_validate(data)


def test_the_command_says_what_is_wrong_and_returns_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,x\n")
    assert main([str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:2: output_tokens: expected a whole number")
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,2\n")
    assert main([str(file)]) == 2
    assert "use fewer windows" in capsys.readouterr().err


SPANNED = two_windows().model_copy(
    update={"windows": [w.model_copy(update={"span_s": 60.0}) for w in two_windows().windows]}
)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 300))
def test_a_window_drawn_is_by_share_and_a_longer_run_begins_alike(seed: int, count: int) -> None:
    short, long = (
        two_windows().windows_drawn(n, np.random.default_rng(seed)) for n in (count, 20_000)
    )
    assert np.array_equal(short, long[:count])
    assert long.mean() == pytest.approx(0.75, abs=0.02)
    halves = long[:10_000].mean(), long[10_000:].mean()
    assert halves[0] == pytest.approx(halves[1], abs=0.04)


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1), st.lists(st.floats(0, 1000), min_size=1, max_size=20))
def test_by_the_clock_a_request_is_of_the_window_of_its_time(
    start: float, times: list[float]
) -> None:
    where = SPANNED.windows_at(np.array(times), start)
    assert where.tolist() == [int((start + t / 120) % 1.0 >= 0.5) for t in times]


def test_by_the_clock_windows_need_spans_unless_there_is_one() -> None:
    with pytest.raises(ValueError, match="clock needs span_s in each window"):
        two_windows().windows_at(np.zeros(3), 0.2)
    assert not table_of("sharegpt").windows_at(np.arange(3.0), 0.2).any()
