"""Are estimates of CPU time in words that say no more than they know?"""

from __future__ import annotations

import pytest

from sweeps.sections.formats import cpu_text


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(0.0, "less than a CPU minute"), (0.99, "less than a CPU minute"),
     (1.0, "about 1.0 CPU minutes"), (11.54, "about 11.5 CPU minutes")],
)  # fmt: skip
def test_an_estimate_below_a_minute_is_no_number(minutes: float, said: str) -> None:
    assert cpu_text(minutes) == said
