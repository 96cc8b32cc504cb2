"""Is a task that has another outcome the second time told from one that has not?"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from sweeps.run.outcome import Outcome, attempt, repeated


def outcome_of(results: list[Any]) -> Outcome:
    """What becomes of a task that gives these in turn, or raises them."""
    turn = count()

    def work(_: Any) -> Any:
        found = results[next(turn)]
        if isinstance(found, Exception):
            raise found
        return found

    return repeated(work, None, attempt(work, 7, None))


def test_the_same_twice_is_its_outcome() -> None:
    assert outcome_of([{"rate": 1.5, "of": {"a": None}}] * 2).value == {
        "rate": 1.5, "of": {"a": None},
    }  # fmt: skip
    nan = outcome_of([{"rate": float("nan")}] * 2)
    assert nan.error is None
    assert str(outcome_of([ValueError("bad")]).error).startswith("ValueError: bad")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"rate": 2.0, "of": 3}, "(rate is 1.0, and then 2.0)"),
        ({"rate": 1.0, "of": 4}, "(of is 3, and then 4)"),
        ({"rate": 1.0}, "(of is 3, and then None)"),
        (ValueError("kept"), "(ValueError: kept (at test_outcome.py:"),
    ],
)
def test_another_outcome_is_the_fault_of_what_was_plugged_in(second: Any, said: str) -> None:
    found = outcome_of([{"rate": 1.0, "of": 3}, second])
    assert found.at_fault and found.index == 7 and found.value is None
    assert "two runs of one seed differ" in str(found.error) and said in str(found.error)
