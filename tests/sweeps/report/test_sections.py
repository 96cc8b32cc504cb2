"""Do tables stand as their cells ask, feet say what is shown, and charts begin with the reason?"""

from __future__ import annotations

from sweeps.analyse.table import Group, Row, Table
from sweeps.report.footnotes import footnotes


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
