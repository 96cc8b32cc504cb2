"""Is a figure written with its scale and digits, and is a limit told by its share?"""

from __future__ import annotations

import math

import pytest

from sweeps.analyse.figures import (
    FIGURES,
    GROWING,
    LIMITS,
    OVERLOADED,
    Figure,
    limit_shares,
    limit_texts,
)
from sweeps.analyse.label import label
from sweeps.analyse.statistics import Interval
from sweeps.sections.chart import Bar, Bars


def test_how_is_a_figure_written() -> None:
    ms = Figure("x", "TPOT ms", 1, 1000)
    assert ms.text(0.0123) == "12.3"
    assert ms.interval_text(Interval(0.0123, 0.0119, 0.0127, 2)) == "12.3 ± 0.4"
    assert ms.interval_text(Interval(0.0123, -math.inf, math.inf, 1)) == "12.3"
    assert ms.text(None) == "–"
    # from a thousand on without decimals, whichever side of zero
    plain = Figure("x", "x", 2)
    assert [plain.text(each) for each in (999.994, 1000.0, 1000.4, -1000.4, -999.0)] == [
        "999.99", "1,000", "1,000", "-1,000", "-999.00"
    ]  # fmt: skip
    assert plain.interval_text(Interval(1234.5, 1233.9, 1235.1, 2)) == "1,234 ± 1"
    assert plain.range_text(1.0, 2.0) == "1.00–2.00"
    assert plain.range_text(None, 2.0) == plain.range_text(1.0, None) == "–"


@pytest.mark.parametrize(
    ("half", "count", "written"),
    [
        (87.0, 3, "174.2 ± 87.0"),
        (87.2, 3, "174.2 ± 87.2"),
        (87.2, 5, "174.2 ± 87.2"),
        (174.3, 8, "174.2 (n = 8, no interval)"),
    ],
)
def test_an_interval_that_says_nothing_is_not_written(
    half: float, count: int, written: str
) -> None:
    found = Interval(174.2, 174.2 - half, 174.2 + half, count)
    assert Figure("x", "tokens/s").interval_text(found) == written
    (row,) = Bars("tokens/s", [Bar("paged", found)]).rows()
    assert (row[2] is None) == ("no interval" in written)


def test_figures_have_names_of_their_own() -> None:
    assert len({each.metric for each in FIGURES}) == len(FIGURES)
    assert (OVERLOADED, len(GROWING)) == (0.1, 3)


def test_which_limits_bound_and_for_how_much_of_the_time() -> None:
    metrics = {f"{LIMITS}.kv_memory": 0.25, f"{LIMITS}.sequence_cap": 0.745, "step_s": 3.0}
    metrics |= {f"{LIMITS}.idle": 0.005, f"{LIMITS}.batching": 0.004, f"{LIMITS}.x": None}  # type: ignore[dict-item]
    shares = limit_shares(metrics)
    assert shares == {"kv_memory": 0.25, "sequence_cap": 0.745, "idle": 0.005, "batching": 0.004}
    assert limit_texts(shares) == ["sequence cap 74%", "KV memory 25%", "idle 0%"]


def test_a_name_with_a_stroke_is_no_file() -> None:
    assert label("0.14 requests/s") == "0.14 requests/s"
    assert label("/cards/mine.yaml") == "mine"


def test_a_value_without_options_has_a_name() -> None:
    assert label({}) == "defaults"
    assert label({"layers": 32}) == "layers=32"
