"""Does a workload give the stream its description, count, rate and seed ask for?"""

from __future__ import annotations

import gzip
import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load, loads, override
from policies.requests.request_stream import generate
from policies.requests.requests import MAX_TOKENS, Requests
from policies.requests.workload import WorkloadSpec, workload_document
from tests.policies.workloads import resolve_workload

CONSTANT = "constant: {prompt_tokens: 512, output_tokens: 128}"
TRACE = "arrival_s,prompt_tokens,output_tokens\n5,10,1\n6,20,2\n6,30,3\n9,40,4\n"
MANY = 200_000


def spec(
    arrivals: str = "process: poisson", lengths: str = CONSTANT, rest: str = ""
) -> WorkloadSpec:
    text = f"name: t\nsummary: a test\nlengths: {{{lengths}}}\narrivals: {{{arrivals}}}\n{rest}"
    return loads(text, "t.yaml").build(WorkloadSpec)


def refusal(**parts: str) -> str:
    with pytest.raises(DescriptionError) as caught:
        spec(**parts)
    return str(caught.value)


def trace_file(folder: Path, text: str = TRACE) -> Path:
    file = folder / "my-trace.csv"
    file.write_text(text)
    return file


def gap_cv(requests: Requests) -> float:
    gaps = np.diff(requests.arrival_s)
    return float(gaps.std() / gaps.mean())


def same_lengths(a: Requests, b: Requests) -> bool:
    return np.array_equal(a.prompt_tokens, b.prompt_tokens) and np.array_equal(
        a.output_tokens, b.output_tokens
    )


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        ("process: poisson", 1.0),
        ("process: gamma, cv: 0.5", 0.5),
        ("process: gamma, cv: 3", 3.0),
        ("process: fixed", 0.0),
    ],
)
def test_arrivals_have_the_rate_and_the_burstiness_asked_for(arrivals: str, cv: float) -> None:
    requests = generate(spec(arrivals), MANY, 4.0, seed=1)
    assert requests.arrival_s[0] == 0
    assert MANY / requests.arrival_s[-1] == pytest.approx(4.0, rel=0.02)
    assert gap_cv(requests) == pytest.approx(cv, rel=0.02, abs=1e-6)


def test_all_at_once_is_all_at_once_with_and_without_a_rate() -> None:
    for rate in (None, 3.0):
        assert not generate(spec("process: all_at_once"), 100, rate).arrival_s.any()


@pytest.mark.parametrize("name", names("workloads"))
def test_every_shipped_workload_generates(name: str) -> None:
    workload = resolve_workload(name)
    assert workload.name == name and workload.summary
    requests = generate(workload, 1000, 2.0, seed=3)
    assert len(requests) == 1000
    again = generate(workload, 1000, 2.0, seed=3)
    assert same_lengths(requests, again) and np.array_equal(requests.arrival_s, again.arrival_s)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.integers(0, 2**63))
def test_the_rate_scales_the_times_and_leaves_the_lengths(a: float, b: float, seed: int) -> None:
    workload = resolve_workload("alpaca")
    one, two = generate(workload, 50, a, seed), generate(workload, 50, b, seed)
    assert same_lengths(one, two)
    np.testing.assert_allclose(one.arrival_s * a, two.arrival_s * b, rtol=1e-12)


def test_the_arrival_process_leaves_the_lengths_and_the_lengths_leave_the_arrivals() -> None:
    lognormal = (
        "lognormal: {prompt_tokens: {median: 9, sigma: 1}, output_tokens: {median: 9, sigma: 1}}"
    )
    one = generate(spec("process: poisson", lognormal), 100, 1.0, 7)
    two = generate(spec("process: gamma, cv: 2", lognormal), 100, 1.0, 7)
    three = generate(spec("process: poisson"), 100, 1.0, 7)
    assert same_lengths(one, two)
    assert np.array_equal(one.arrival_s, three.arrival_s)


def test_seeds_and_replications_give_other_streams() -> None:
    workload = resolve_workload("sharegpt")
    streams = [generate(workload, 100, 1.0, seed) for seed in (1, 2, (1, 1), (1, 2), (2, 1))]
    for one, two in itertools.combinations(streams, 2):
        assert not same_lengths(one, two)
        assert not np.array_equal(one.arrival_s, two.arrival_s)


def test_a_longer_run_begins_with_the_arrivals_of_a_shorter_one() -> None:
    for arrivals in ("process: poisson", "process: gamma, cv: 2"):
        short, long = (generate(spec(arrivals), n, 1.0, 5).arrival_s for n in (100, 1000))
        assert np.array_equal(short, long[:100])


def test_constant_lengths_are_constant() -> None:
    requests = generate(spec(), 10, 1.0)
    assert set(requests.prompt_tokens) == {512} and set(requests.output_tokens) == {128}


def test_lognormal_lengths_have_the_median_spread_and_correlation_asked_for() -> None:
    law = (
        "lognormal: {prompt_tokens: {median: 3000, sigma: 0.5}, "
        "output_tokens: {median: 500, sigma: 1}, correlation: -0.4}"
    )
    requests = generate(spec(lengths=law), MANY, 1.0)
    logs = np.log(requests.prompt_tokens), np.log(requests.output_tokens)
    assert np.median(requests.prompt_tokens) == pytest.approx(3000, rel=0.01)
    assert np.median(requests.output_tokens) == pytest.approx(500, rel=0.01)
    assert (logs[0].std(), logs[1].std()) == pytest.approx((0.5, 1.0), rel=0.02)
    assert np.corrcoef(*logs)[0, 1] == pytest.approx(-0.4, abs=0.01)


def test_lengths_far_out_of_range_are_kept_in_range() -> None:
    tiny, huge = "{median: 0.001, sigma: 0}", "{median: 9, sigma: 99}"
    law = f"lognormal: {{prompt_tokens: {tiny}, output_tokens: {huge}}}"
    requests = generate(spec(lengths=law), 1000, 1.0)
    assert set(requests.prompt_tokens) == {1}
    assert requests.output_tokens.max() == MAX_TOKENS and requests.output_tokens.min() == 1


def test_limits_truncate_and_drop_nothing() -> None:
    limits = "limits: {max_prompt_tokens: 500, max_output_tokens: 100}"
    requests = generate(spec(rest=limits), 10, 1.0)
    assert set(requests.prompt_tokens) == {500} and set(requests.output_tokens) == {100}
    assert len(requests) == 10


def test_a_trace_file_is_a_workload_with_its_own_lengths_and_times(tmp_path: Path) -> None:
    workload = resolve_workload(str(trace_file(tmp_path)))
    assert (workload.name, workload.arrivals.process) == ("my-trace", "trace")
    requests = generate(workload, 4)
    assert requests.arrival_s.tolist() == [0, 1, 1, 4]
    assert requests.prompt_tokens.tolist() == [10, 20, 30, 40]
    assert generate(workload, 2).prompt_tokens.tolist() == [10, 20]


def test_a_trace_scaled_to_a_rate_keeps_its_shape(tmp_path: Path) -> None:
    workload = resolve_workload(str(trace_file(tmp_path)))
    requests = generate(workload, 4, rate_per_s=7.5)
    assert requests.arrival_s == pytest.approx(np.array([0, 1, 1, 4]) / 10)
    assert 3 / requests.arrival_s[-1] == pytest.approx(7.5)  # three gaps


def test_a_gzip_trace_without_times_arrives_as_poisson(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv.gz"
    file.write_bytes(gzip.compress(b"arrival_s,prompt_tokens,output_tokens\n,1,2\n,3,4\n"))
    workload = resolve_workload(str(file))
    assert (workload.name, workload.arrivals.process) == ("lengths", "poisson")
    assert generate(workload, 2, 1.0).output_tokens.tolist() == [2, 4]


def test_a_short_trace_repeats_only_when_told_to(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    with pytest.raises(DescriptionError) as caught:
        generate(resolve_workload(str(file)), 5)
    assert str(caught.value) == (
        f"{file}: lengths.repeat: the trace has 4 requests and 5 are asked for; "
        "ask for fewer or set repeat: true"
    )
    document = workload_document(str(file))
    override(document, "lengths.repeat=true")
    requests = generate(document.build(WorkloadSpec), 10)
    assert requests.prompt_tokens.tolist() == [10, 20, 30, 40] * 2 + [10, 20]
    lap = 4 + 4 / 3  # its span and its mean gap
    assert requests.arrival_s[4:8] == pytest.approx(requests.arrival_s[:4] + lap)


def test_a_workload_finds_its_trace_beside_itself_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_file(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text("kind: workload\nname: mine\nsummary: s\nlengths: {trace: my-trace.csv}\n")
    monkeypatch.chdir(tmp_path)
    workload = resolve_workload("mine.yaml")
    monkeypatch.chdir("/")
    assert generate(workload, 4, 1.0).output_tokens.tolist() == [1, 2, 3, 4]
    beside = resolve_workload("my-trace.csv", relative_to=file)
    assert generate(beside, 4).output_tokens.tolist() == [1, 2, 3, 4]


def test_a_missing_trace_is_reported_at_the_line_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsummary: s\nlengths:\n  trace: gone.csv\n")
    with pytest.raises(DescriptionError) as caught:
        resolve_workload(str(file))
    assert str(caught.value) == f"{file}:4: lengths.trace: no such file: gone.csv"
    with pytest.raises(DescriptionError, match=r"^gone\.csv: no such file"):
        resolve_workload("gone.csv")


def test_a_frozen_window_replaces_the_drift() -> None:
    document = workload_document("r1-reasoning")
    means = []
    for window in (5, 10):
        override(document, f"lengths.window={window}")
        frozen = generate(document.build(WorkloadSpec), 4000, 1.0)
        halves = frozen.output_tokens[:2000].mean(), frozen.output_tokens[2000:].mean()
        assert halves[0] == pytest.approx(halves[1], rel=0.15)
        means.append(np.mean(halves))
    assert means[0] > 2 * means[1]


def drifting(drift: str, seed: int | tuple[int, ...] = 1, stretch: int = 0) -> Requests:
    document = workload_document("r1-reasoning")
    override(document, f"lengths.drift={drift}")
    return generate(document.build(WorkloadSpec), 4000, 1.0, seed, stretch)


def test_squeezed_is_what_a_workload_does_that_says_nothing() -> None:
    plain = generate(resolve_workload("r1-reasoning"), 4000, 1.0, 1)
    assert same_lengths(plain, drifting("squeezed"))
    digest = hashlib.sha256(plain.output_tokens.tobytes()).hexdigest()
    assert digest.startswith("a31eefc0cac8")  # random streams stay as they are


def test_mixed_has_the_lengths_of_the_day_and_no_drift() -> None:
    mixed, squeezed = drifting("mixed").output_tokens, drifting("squeezed").output_tokens
    assert np.median(mixed) == pytest.approx(np.median(squeezed), rel=0.08)
    assert np.median(mixed[:2000]) == pytest.approx(np.median(mixed[2000:]), rel=0.1)
    assert np.median(squeezed[:2000]) > 1.3 * np.median(squeezed[2000:])


def test_by_the_clock_replications_start_at_hours_spread_over_the_day() -> None:
    medians = [
        float(np.median(drifting("clock", (1, r), r - 1).output_tokens)) for r in range(1, 9)
    ]
    assert max(medians) > 2 * min(medians)
    again = drifting("clock", (1, 3), 2).output_tokens
    assert np.median(again) == medians[2]
    assert np.median(again[:2000]) == pytest.approx(np.median(again[2000:]), rel=0.2)  # an hour


def test_a_clock_needs_times_of_arrival() -> None:
    document = workload_document("r1-reasoning")
    override(document, "lengths.drift=clock")
    override(document, "arrivals={process: closed, clients: 4}")
    with pytest.raises(DescriptionError, match="clock needs times of arrival; closed has none"):
        generate(document.build(WorkloadSpec), 10)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(DescriptionError, match="expected a request rate above 0"):
        generate(spec(), 10, rate)


def test_counts_and_rates_that_do_not_suit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="at least 1 request; got 0"):
        generate(spec(), 0, 1.0)
    with pytest.raises(DescriptionError, match="poisson arrivals need a request rate"):
        generate(spec(), 10)
    file = trace_file(tmp_path, "arrival_s,prompt_tokens,output_tokens\n3,1,1\n3,1,1\n")
    with pytest.raises(DescriptionError, match="all requests arrive at once"):
        generate(resolve_workload(str(file)), 2, 1.0)
    assert generate(resolve_workload(str(file)), 1, 1.0).arrival_s.tolist() == [0]


def test_shipped_workloads_say_what_kind_they_are() -> None:
    for name in names("workloads"):
        assert workload_document(name).data["kind"] == "workload"
        assert load(workload_document(name).file).get(("name",)) == name
