"""Do tables stand as their cells ask, feet say what is shown, and charts begin with the reason?"""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.analyse.facts import Gap, Verdict
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Row, Table
from sweeps.report.footnotes import footnotes
from sweeps.report.group_sections import drawn
from sweeps.run.findings import Findings
from sweeps.sections.section import Grid, Say, Section, fitted, sides

NEAR = Interval(0.3, 0.29, 0.31, 3)


def test_words_stand_left_and_figures_right() -> None:
    heads = ["policy", "tokens/s", "limit", "TTFT s", "gap", "cards"]
    rows = [
        ["a", "1,234 ± 5", "KV memory 93%", "grows", "+89 % (85 to 93)", "–"],
        ["b", "~20", "–", "0.13", "–", "–"],
    ]
    assert sides(heads, rows) == "<><>>>"
    assert sides(heads, []) == "<>>>>>"
    assert Grid("", heads, rows, text=True).sides == "<" * 6


def test_a_table_has_eight_columns_and_the_others_fold() -> None:
    heads = [f"c{i}" for i in range(20)]
    grid = Grid("t", heads, [[f"r{i}" for i in range(20)]], later=frozenset({2, 4}))
    first, *rest = grid.parts
    assert first.columns == ["c0", "c1", "c3", "c5", "c6", "c7", "c8", "c9"]
    assert [part.columns for part in rest] == [
        ["c0", "c2", "c4", *heads[10:15]], ["c0", *heads[15:]]
    ]  # fmt: skip
    assert all(part.rows[0][0] == "r0" for part in grid.parts)
    shown, fold = fitted([grid])
    assert shown == first and isinstance(fold, Section)
    assert (fold.title, fold.folded, len(fold.blocks)) == ("12 more columns", True, 2)
    narrow = Grid("", heads[:8], [])
    assert list(fitted([narrow, Say("a")])) == [narrow, Say("a")]


@pytest.mark.parametrize(
    ("shown", "told", "silent"),
    [
        ("395.0 ± 52.4", "Student's t).", "logarithms"),
        ("+89 % (85 to 93)", "gaps from logarithms", "grows"),
        ("1.2 (n = 3, no interval)", "`no interval`", "intervals, n"),
        ("grows", "`grows`", "no interval"),
        ("28", "", "replications"),
    ],
)
def test_a_foot_explains_what_is_shown(shown: str, told: str, silent: str) -> None:
    rows = [Row("a", "", {1: {}, 2: {}, 3: {}})]
    table = Table("x", "", [Group("card", rows)], 1, 1, {"axes": {}, "rule": "best"}, {})
    text = footnotes(table, [Section("", [Grid("", ["", "rate"], [["a", shown]]), Say("b")])])
    assert told in text and silent not in text and (told != "" or text == "")


def test_a_foot_says_once_what_has_nothing_to_do_and_for_whom() -> None:
    idle = {1: {"without_use": ["swap: never"]}, 2: {"without_use": ["swap: never"]}}
    rows = [Row("a", "", {1: {}}, raw=idle), Row("b", "", {1: {}}, raw=idle), Row("c", "", {1: {}})]
    table = Table("x", "", [Group("card", rows)], 1, 1, {"axes": {}, "rule": "best"}, {})
    assert footnotes(table, []) == "Without use for a, b: swap: never."


def test_a_foot_says_which_rates_of_a_memory_are_less_sure_than_they_should_be() -> None:
    sure = {"too_wide": False, "efficiency": 0.5, "ci95": 0.01}
    wide = [{"too_wide": True, "efficiency": 0.5, "ci95": half} for half in (0.02, 0.04)]
    memories = [
        {"phases": {"attention": sure}, "throughput_ci95": 0.05},
        {"phases": {"attention": wide[0]}, "throughput_ci95": 0.01},
        {"memories": {"main": {"phases": {"attention": wide[1]}}}, "throughput_ci95": 0.02},
    ]
    for many, told in ((1, ""), (2, "attention ±4 % at most"), (3, "attention ±8 % at most")):
        raw = {nth: {"memory": each} for nth, each in enumerate(memories[:many])}
        table = Table("x", "", [Group("card", [Row("a", "", {}, raw=raw)])], 1, 1, {"axes": {}}, {})
        text = footnotes(table, [])
        assert told in text and (f"by {many - 1} % at most" in text) == bool(told)


def served(used: float, batch: float) -> dict[str, Any]:
    slots = {"used": used, "holes": 1 - used}
    curves = {name: [0.1 * used, used] for name in ("utilization", "reserved", "running")}
    return {
        "output_tokens_per_s": 100 * batch, "batch": batch, "kv_slots.binding.used": used,
        **{f"kv_slots.binding.{name}": share for name, share in slots.items()},
        "limit_share.kv_memory": used, "limit_share.offered_load": 1 - used,
        "phase_share.weights": used, "phase_share.attention": 1 - used,
        "compute_share": used, "over_time": {"width_s": 1.0, **curves},
    }  # fmt: skip


def test_charts_begin_with_what_decided_and_the_others_are_folded() -> None:
    rows = [Row(name, "", {1: served(used, batch)}, raw={1: served(used, batch)})
            for name, used, batch in (("a", 0.9, 3.0), ("b", 0.4, 1.0))]  # fmt: skip
    group = Group("card", rows)
    table = Table("x", "", [group], 1, 1, {"axes": {}}, {})
    verdict = Verdict("card", "won", "a", 1.0, [Gap("a", "b", NEAR, causes=["reservation"])])
    *first, rest = drawn(Findings(table, [verdict], [[]], None), group)
    assert [chart.figure for chart in first] == ["throughput", "slots", "limits"]  # type: ignore[union-attr]
    assert isinstance(rest, Section) and rest.folded and rest.rest
    assert rest.title == f"{len(rest.blocks)} more charts"
