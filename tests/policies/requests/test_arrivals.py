"""Does a rate that moves keep its mean and go where it is told?"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.requests.arrivals import Arrivals, RateOverTime, arrival_times, read_envelope
from tests.policies.workloads import resolve_workload

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def times(count: int, rate: float, process: str = "fixed", **moving: object) -> np.ndarray:
    arrivals = Arrivals(process=process, rate_over_time=RateOverTime.model_validate(moving))  # type: ignore[arg-type]
    return arrival_times(arrivals, None, count, rate, np.random.default_rng(1))


def test_steps_by_hand() -> None:
    # 8 requests at 1/s take 8 s; the rate is 1.5/s in the first half and 0.5/s in the second
    found = times(8, 1.0, steps=[3, 1])
    assert found == pytest.approx([0, 2 / 3, 4 / 3, 2, 8 / 3, 10 / 3, 4, 6])


def test_a_period_repeats_and_a_rate_of_zero_sends_nobody() -> None:
    found = times(6, 1.0, steps=[0, 1, 0, 1], period_s=4.0)
    # in each period of 4 s: two requests in the second second, two in the fourth
    assert found == pytest.approx([1, 1.5, 3, 3.5, 5, 5.5])


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=9).filter(lambda steps: sum(steps) > 0.1),
    st.floats(0.1, 100),
)
def test_the_mean_stays_and_the_order_too(steps: list[float], rate: float) -> None:
    found = times(2000, rate, "poisson", steps=steps)
    assert np.isfinite(found).all() and (np.diff(found) >= 0).all() and found[0] >= 0
    # as many come in each part as its share of the rate says
    edges = np.linspace(0, 2000 / rate, len(steps) + 1)
    counts, _ = np.histogram(found, edges)
    assert counts / 2000 == pytest.approx(np.array(steps) / sum(steps), abs=0.08)


def test_two_rates_differ_by_a_factor_where_the_period_is_the_run() -> None:
    slow, fast = (times(500, rate, "poisson", steps=[1, 2, 5]) for rate in (1.0, 10.0))
    np.testing.assert_allclose(slow, fast * 10, rtol=1e-9)


def test_an_envelope_has_a_row_for_each_part_and_none_is_zero(tmp_path: Path) -> None:
    file = tmp_path / "envelope.csv"
    file.write_text("minute,tokens_per_s,note\n5,30.5,a\n6,10,b\n8,1,c\n")
    assert read_envelope(file).tolist() == [30.5, 10, 0, 1]
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert read_envelope(file).tolist() == [30.5, 10, 0, 1]


def workload(folder: Path, envelope: str) -> Path:
    file = folder / "w.yaml"
    file.write_text(
        "kind: workload\nname: w\nsummary: a test\n"
        "lengths: {constant: {prompt_tokens: 1, output_tokens: 1}}\n"
        f"arrivals: {{rate_over_time: {{envelope: {envelope}}}}}\n"
    )
    return file


def test_a_workload_finds_its_envelope_beside_itself_and_knows_its_content(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("day,rate\n0,1\n1,3\n")
    found = resolve_workload(str(workload(tmp_path, "e.csv"))).arrivals.rate_over_time
    assert found is not None and found.rates().tolist() == [1, 3]
    assert found.envelope == str(tmp_path / "e.csv") and len(found.sha256 or "") == 64
