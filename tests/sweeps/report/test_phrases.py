"""Are numbers written with their intervals, and records as sentences?"""

from __future__ import annotations

import math

import pytest

from sweeps.analyse.facts import Cause, Dependence, Gap, MetricChange, Verdict
from sweeps.analyse.figures import FIGURES
from sweeps.analyse.statistics import Interval
from sweeps.plan.what_if import Sensitivity
from sweeps.report import change_phrases, phrases
from sweeps.report.formats import aside, bare, effect, listed, percent, points, ratio, said
from sweeps.study.trials import StudyGain


def near(mean: float, half: float = 0.01) -> Interval:
    return Interval(mean, mean - half, mean + half, 3)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (percent(near(0.3)), "30 % (95 % CI 29 to 31)"),
        (percent(near(0.05), "+"), "+5.0 % (95 % CI 4.0 to 6.0)"),
        (percent(Interval(0.3, -math.inf, math.inf, 1)), "30 %"),
        (percent(near(-0.0001, 0.001)), "0.0 % (95 % CI -0.1 to 0.1)"),
        (points(near(0.2)), "20.0 percentage points (95 % CI 19.0 to 21.0)"),
        (effect(near(math.log(2), 0)), "+100 % (95 % CI 100 to 100)"),
        (ratio(near(0, 0)), "1 (95 % CI 1 to 1)"),
        (aside(percent(near(0.3))), "(30 %, 95 % CI 29 to 31)"),
        (bare(percent(near(0.3))), "30 % (29 to 31)"),
        (effect(None), "–"),
        (listed(["a", "b", "c"], "or"), "a, b or c"),
    ],
)
def test_numbers_are_written_with_their_intervals(text: str, written: str) -> None:
    assert text == written


def test_a_sentence_names_its_interval_once() -> None:
    text = said("A 1 (95 % CI 0 to 2), B 3 (95 % CI 2 to 4). C 1.5 (95 % CI 0 to 2).")
    assert text == "A 1 (95 % CI 0 to 2), B 3 (2 to 4). C 1.5 (95 % CI 0 to 2)."


def test_gaps_that_are_not_significant_are_no_ranking() -> None:
    gaps = [Gap("static", "odma", near(0.001)), Gap("static", "paged", near(0.005))]
    found = Verdict("card", "undecided", "static", 100.0, gaps, needed=math.inf)
    assert phrases.verdict(found).startswith(
        "card: static does not differ significantly from odma (+0.1 %, 95 % CI -0.9 to 1.1) or "
        "paged (+0.5 %, -0.5 to 1.5). 3 replications do not resolve the difference, nor would 200."
    )
    single = Gap("static", "odma", Interval(0.1, -math.inf, math.inf, 1))
    assert phrases.verdict(Verdict("card", "undecided", "static", 100.0, [single])) == (
        "card: one replication gives no interval, so static and odma are not ranked."
    )


def test_layout_is_significant_or_not() -> None:
    load = [Cause("load", (0.9,), "sequence_cap")]
    known = Gap("a", "b", near(0.3), near(0.2), near(0.1), load)
    gaps = [known, Gap("a", "c", near(0.3), near(0.3), causes=load)]
    text = phrases.verdict(Verdict("card", "won", "a", 1.0, [gaps[0]]))
    assert "Memory layout accounts for 10.0 percentage points (95 % CI 9.0 to 11.0) against b" in (
        text
    )
    text = phrases.verdict(Verdict("card", "won", "a", 1.0, gaps))
    assert "The effect of memory layout is not known without the analytic control" in text


def test_changes_that_leave_the_ranking_open_are_named() -> None:
    levels = {"as described": near(0.2), "more": near(0.4), "none": near(0.0), "less": near(-0.2)}
    effects = {"more": near(0.2), "none": near(-0.2), "less": near(0.0)}
    found = Sensitivity("a / b", levels, effects)
    assert change_phrases.sensitivity(found, True, ["more", "none", "less"]) == (
        "a / b is 1.22 (95 % CI 1.21 to 1.23) as described. Effects on it: more +22 % (95 % CI 21 "
        "to 23), none -18 % (-19 to -17). 1 of 3 changes has no significant effect; less reverses "
        "the ranking. With none the two do not differ significantly."
    )


def test_an_axis_on_which_nothing_wins_says_nothing() -> None:
    verdicts = [("x", Verdict("x", "undecided")), ("y", Verdict("y", "unbound"))]
    assert list(phrases.dependence(Dependence("", "device", "policy", verdicts, True))) == []


def test_a_study_names_what_it_does_not_differ_from_last() -> None:
    gains = {"base": near(0.0), "static": near(0.3), "oracle": near(-0.005)}
    found = StudyGain("trial 3", "tokens/s", 100.0, 4, gains, 0, {"oracle": None}, None)
    assert list(phrases.study(found)) == [
        "On 4 replications not used in the search, trial 3 has 100.0 tokens/s: 30 % (95 % CI 29 to "
        "31) against static; not significantly different from base (+0.0 %, -1.0 to 1.0) or oracle "
        "(-0.5 %, -1.5 to 0.5). The search found nothing significantly better than the base.",
        "oracle is not above the base in every replication: there is no gap to close.",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (near(0.2), "20 % (95 % CI 19 to 21) more"),
        (near(-0.2), "20 % (95 % CI 19 to 21) less"),
        (near(0.0), "not significantly different (+0.0 %, 95 % CI -1.0 to 1.0)"),
        (Interval(0.1, -math.inf, math.inf, 1), "(+10.0 %); one replication gives no interval"),
    ],
)
def test_a_change_between_runs_is_written_as_it_is(change: Interval, words: str) -> None:
    found = MetricChange(FIGURES[0], 100.0, 120.0, change, True, True)
    (text,) = phrases.results(1, False, [("card", found)], "b")
    assert text.startswith("card: 120.0 output tokens/s in b against 100.0") and words in text
