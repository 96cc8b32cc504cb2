"""Is a run that is short beside its batch told apart, with the shortest that counts?"""

from __future__ import annotations

from sweeps.report.run_length import will_be_short


def test_what_was_tried_before_a_run_says_that_it_will_be_too_short() -> None:
    assert will_be_short([(120, 15.0)]) is None
    said = will_be_short([(120, 15.0), (120, 41.0)])
    assert said is not None and said.endswith("--set requests=300")
