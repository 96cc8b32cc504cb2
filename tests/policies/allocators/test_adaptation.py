"""Do figures over time say what their period came to?"""

from __future__ import annotations

import pytest

from policies.allocators.score import Guess, RequestOutcome, Score


def test_a_row_has_what_its_period_came_to() -> None:
    """A thousand requests of 0 to 999 tokens, that were all thought to have up to 500."""
    score = Score()
    guess = Guess((500,), predicted=0, raw_slots=600, requested=500, slots=750, large=False)
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
