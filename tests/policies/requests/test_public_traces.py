"""Are whole public traces read, with the figures that their provenance tells?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.requests.arrivals import read_envelope
from policies.requests.requests import load_trace

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
TRACES = {
    "azure2023_conv": (19366, 1154.7, 211.1, 3501.7),
    "azure2023_code": (8819, 2047.8, 27.9, 3435.9),
    "mooncake_conversation": (12031, 12035.1, 342.6, 3537.0),
    "mooncake_synthetic": (3993, 15325.5, 149.1, 1022.0),
    "servegen_deepseek_r1_day": (30016, 1364.3, 1531.9, 86396.5),
    "sharegpt8k_llama2": (30731, 2340.0, 438.7, None),
}
"""Trace -> requests, mean prompt and output (tokens), last arrival (s; None: it has no times)."""


def file_of(name: str) -> Path:
    """The file; skips the test where it is not there."""
    file = DATA / name
    if not file.is_file():
        pytest.skip(f"{name} is not here")
    return file


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_has_its_requests(name: str) -> None:
    trace = load_trace(file_of(f"{name}.csv.gz"))
    count, prompt, output, last_s = TRACES[name]
    assert len(trace) == count and trace.dropped == 0
    assert trace.prompt_tokens.mean() == pytest.approx(prompt, abs=0.06)
    assert trace.output_tokens.mean() == pytest.approx(output, abs=0.06)
    if last_s is None:
        assert trace.arrival_s is None
    else:
        assert trace.arrival_s is not None
        assert trace.arrival_s[-1] - trace.arrival_s[0] == pytest.approx(last_s, abs=0.06)


def test_a_trace_serves_as_requests_in_its_own_times() -> None:
    trace = load_trace(file_of("mooncake_conversation.csv.gz"))
    requests = trace.requests()
    assert trace.arrival_s is not None
    np.testing.assert_array_equal(requests.arrival_s, trace.arrival_s)
    assert (requests.prefix_id == -1).all()  # this form of the trace has lost its hash ids


def test_the_envelope_of_a_week_has_its_minutes_and_its_peak() -> None:
    rates = read_envelope(file_of("burstgpt_week1_minute_envelope.csv.gz"))
    # of 6,366 rows 143 are 0.0 to a digit; other minutes are absent
    assert len(rates) == 10080 and (rates > 0).sum() == 6366 - 143
    assert rates.max() == 540.1
    assert rates.max() / rates.mean() == pytest.approx(19.3, abs=0.1)


def test_days_are_an_envelope_too() -> None:
    rates = read_envelope(file_of("burstgpt_daily.csv"))
    assert rates[:2].tolist() == [3389, 3172]
