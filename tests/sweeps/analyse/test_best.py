"""Does the verdict follow the results, whatever they are?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from sweeps.analyse.best import MOST, NEGLIGIBLE, judge_all, needed, pairs_of
from sweeps.analyse.facts import Verdict
from sweeps.analyse.figures import LIMITS, PREEMPTIONS_EACH, THROUGHPUT
from sweeps.analyse.gap import BINDS, FEWER, PREEMPTS, RECOMPUTES
from sweeps.analyse.objective import OBJECTIVES
from sweeps.analyse.statistics import interval
from sweeps.analyse.table import Group, Row

NOISE = (0.99, 1.0, 1.01)
BOUND = {"kv_memory": 0.9, "offered_load": 0.1}
FULL = {"batch": 10.0, "utilization": 0.9, "phase_share.prefill": 0.1, "phase_share.weights": 0.8}
HALF = {**FULL, "batch": 5.0, "utilization": 0.45}
"""Reserves twice what it uses."""
REDOES = {**FULL, PREEMPTIONS_EACH: 4.6, "phase_share.prefill": 0.79, "utilization": 1.0}


def judge(group: Group) -> Verdict:
    return judge_all([group])[0]


def row(
    name: str, rate: float, control: str = "", limits: dict[str, float] = BOUND,
    noise: tuple[float, ...] = NOISE, wobble: float = 0.0, figures: dict[str, float] = FULL,
) -> Row:  # fmt: skip
    """`noise` is common to all rows of a replication; `wobble` is this row's own."""
    own = (1 + wobble, 1 - wobble, 1.0)
    others: dict[str, Any] = {f"{LIMITS}.{key}": value for key, value in limits.items()} | figures
    replications = {
        i: {THROUGHPUT: rate * shared * mine, **others}
        for i, (shared, mine) in enumerate(zip(noise, own, strict=False), 1)
    }
    return Row(name, control, replications)


def group(*rows: Row) -> Group:
    return Group("card", list(rows))


def pair(
    main: float, analytic: float, wobble: float = 0.001, figures: dict[str, float] = HALF
) -> Verdict:
    """odma ahead of static by `main`, and by `analytic` in the control; `figures` are static's."""
    found = group(
        row("odma", 100 * (1 + main), wobble=wobble),
        row("static", 100, figures=figures),
        row("odma", 100 * (1 + analytic), "analytic", wobble=-wobble),
        row("static", 100, "analytic", figures=figures),
    )
    return judge(found)


def test_the_winner_is_named_with_its_rate_and_its_gap() -> None:
    verdict = pair(0.30, 0.30)
    assert (verdict.outcome, verdict.best) == ("won", "odma")
    assert verdict.rate == pytest.approx(130.0, rel=1e-5)
    assert verdict.gaps[0].total.mean == pytest.approx(0.3, abs=0.001)
    assert verdict.decided_by == ["capacity"]


def test_layouts_part_is_what_the_control_lacks() -> None:
    for main, analytic, points in ((0.30, 0.10, 20), (0.30, 0.30, 0), (0.30, 0.45, -15)):
        verdict = pair(main, analytic)
        layout = verdict.gaps[0].layout
        assert layout is not None
        assert 100 * layout.mean == pytest.approx(points, abs=0.01)


def test_a_part_whose_interval_holds_zero_is_not_significant() -> None:
    layout = pair(0.30, 0.29, wobble=0.02).gaps[0].layout
    assert layout is not None and layout.sign == 0


FREE = {"sequence_cap": 0.7, "kv_memory": 0.3}


@pytest.mark.parametrize(
    ("figures", "limits", "causes"),
    [
        (HALF, BOUND, ["reservation"]),
        ({**HALF, "batch": 10 * FEWER + 0.1}, BOUND, ["steps"]),  # nearly as many at once
        ({**HALF, "utilization": 0.95}, BOUND, ["steps"]),  # reserves no more
        (REDOES, BOUND, ["recompute"]),
        ({**REDOES, PREEMPTIONS_EACH: RECOMPUTES / 2}, BOUND, ["steps"]),
        ({**REDOES, "batch": 5.0, "utilization": 0.45}, BOUND, ["reservation", "recompute"]),
        (FULL, FREE, ["load"]),
    ],
)
def test_why_one_is_behind_follows_from_its_figures(
    figures: dict[str, float], limits: dict[str, float], causes: list[str]
) -> None:
    ours = [row("odma", 130), row("odma", 130, "analytic")]
    theirs = [row("static", 100, control, limits, figures=figures) for control in ("", "analytic")]
    assert judge(group(*ours, *theirs)).gaps[0].causes == causes


def test_where_only_layout_puts_it_ahead_no_other_reason_is_given() -> None:
    verdict = pair(0.10, -0.10)
    assert verdict.decided_by == ["layout"]
    assert verdict.gaps[0].analytic is not None
    assert verdict.gaps[0].analytic.mean == pytest.approx(-0.1, abs=0.002)


def test_the_other_one_may_lead() -> None:
    verdict = pair(-0.2, -0.2)
    assert verdict.best == "static"
    assert verdict.gaps[0].total.mean == pytest.approx(0.25, abs=0.001)


def test_two_rivals_have_their_parts_and_reasons_apart() -> None:
    found = group(
        row("odma", 180), row("paged", 90, figures=REDOES), row("static", 100, figures=HALF),
        row("odma", 180, "analytic"), row("paged", 100, "analytic"), row("static", 110, "analytic"),
    )  # fmt: skip
    verdict = judge(found)
    assert [(gap.other, round(gap.total.mean, 3)) for gap in verdict.gaps] == [
        ("static", 0.8), ("paged", 1.0)
    ]  # fmt: skip
    layouts = [gap.layout.mean for gap in verdict.gaps if gap.layout is not None]
    assert layouts == [pytest.approx(0.164, abs=0.001), pytest.approx(0.2)]
    assert [gap.causes for gap in verdict.gaps] == [["reservation"], ["recompute"]]


def test_an_interval_across_zero_is_undecided() -> None:
    verdict = pair(0.01, 0.01, wobble=0.05)
    assert (verdict.outcome, verdict.best) == ("undecided", "")
    assert [gap.other for gap in verdict.close] == ["static"] and not verdict.behind


def test_one_undecided_pair_still_says_who_is_behind_and_why() -> None:
    found = group(
        row("odma", 101, wobble=0.05), row("paged", 100), row("static", 50, figures=HALF),
        row("odma", 101, "analytic", wobble=0.05), row("paged", 100, "analytic"),
        row("static", 50, "analytic"),
    )  # fmt: skip
    verdict = judge(found)
    assert verdict.outcome == "undecided"
    assert [gap.other for gap in verdict.close] == ["paged"]
    assert [gap.other for gap in verdict.behind] == ["static"]
    assert verdict.behind[0].total.mean == pytest.approx(1.02, abs=0.01)
    assert verdict.behind[0].causes == ["reservation"]


def test_an_undecided_pair_has_layouts_part_too() -> None:
    found = group(
        row("odma", 101, wobble=0.05), row("paged", 100),
        row("odma", 81, "analytic", wobble=0.05), row("paged", 100, "analytic"),
    )  # fmt: skip
    verdict = judge(found)
    layout = verdict.gaps[0].layout
    assert verdict.outcome == "undecided" and layout is not None
    assert (layout.mean, layout.sign) == (pytest.approx(0.2, abs=0.001), 1)


def test_noise_that_all_share_does_not_hide_a_gap() -> None:
    noise = (0.5, 1.0, 2.0)
    found = group(row("odma", 105, noise=noise), row("paged", 100, noise=noise))
    assert judge(found).outcome == "won"


def test_without_a_control_nothing_is_claimed_of_layout() -> None:
    verdict = judge(group(row("odma", 130), row("static", 100, figures=HALF)))
    assert verdict.gaps[0].layout is None
    assert verdict.gaps[0].causes == ["reservation"]  # what the metrics show, they show


def test_one_replication_decides_nothing() -> None:
    found = group(row("odma", 200, noise=(1.0,)), row("paged", 100, noise=(1.0,)))
    assert judge(found).outcome == "undecided"


def test_replications_that_do_not_pair_decide_nothing() -> None:
    ours, theirs = row("odma", 200), row("paged", 100)
    theirs.replications = {key + 10: value for key, value in theirs.replications.items()}
    assert judge(group(ours, theirs)).outcome == "undecided"


def test_a_replication_that_served_nothing_is_left_out() -> None:
    ours, theirs = row("odma", 200), row("paged", 100)
    theirs.replications[3][THROUGHPUT] = 0.0
    assert judge(group(ours, theirs)).gaps[0].total.count == 2


@pytest.mark.parametrize(("share", "bound"), [(BINDS / 2, False), (BINDS * 2, True)])
def test_a_winner_that_memory_did_not_limit_wins_and_it_is_known(share: float, bound: bool) -> None:
    limits = {"kv_memory": share, "sequence_cap": 1 - share}
    verdict = judge(group(row("odma", 130, limits=limits), row("paged", 100, limits=limits)))
    assert (verdict.outcome, verdict.best, verdict.bound) == ("won", "odma", bound)
    assert verdict.limits == pytest.approx(limits)


@pytest.mark.parametrize(("each", "bound"), [(PREEMPTS / 2, False), (PREEMPTS * 2, True)])
def test_preemptions_say_that_memory_bound(each: float, bound: bool) -> None:
    limits = {"kv_memory": 0.0, "token_budget": 1.0}
    figures = {**FULL, PREEMPTIONS_EACH: each}
    ours = row("odma", 130, limits=limits, figures=figures)
    assert judge(group(ours, row("paged", 100))).bound is bound


def test_no_difference_is_a_bound_and_the_first_of_the_axis_is_kept() -> None:
    rows = [row("16", 100), row("32", 100.2, wobble=0.0005), row("256", 99.9), row("1024", 80)]
    verdict = judge(group(*rows))
    assert (verdict.outcome, verdict.ties, verdict.leader) == ("close", ["16", "32", "256"], "32")
    # ln 1.002 and its deviations of 0.0005: t(2) at 1 - 0.05 / 2 is 6.205, so 0.0018 either way
    assert verdict.within == pytest.approx(0.0038, abs=0.0001)
    assert [gap.other for gap in verdict.behind] == ["1024"]
    same = judge(group(row("16", 100), row("32", 100)))
    assert (same.outcome, same.within, same.ties) == ("close", 0.0, ["16", "32"])


def test_a_sure_difference_that_is_negligible_is_none() -> None:
    found = judge(group(row("a", 100), row("b", 100 * (1 + NEGLIGIBLE / 2), wobble=0.0001)))
    assert (found.outcome, found.leader) == ("close", "b")
    assert judge(group(row("a", 100), row("b", 102, wobble=0.0001))).outcome == "won"


def test_less_is_better_where_the_objective_says_so() -> None:
    objective = OBJECTIVES["tpot_p99"]
    rows = [row("odma", 130), row("paged", 100)]
    for each in rows:
        each.replications = {r: {objective.metric: m[THROUGHPUT]} for r, m in
                             each.replications.items()}  # fmt: skip
    verdict = judge(Group("card", rows, objective=objective))
    assert (verdict.outcome, verdict.best) == ("won", "paged")
    assert verdict.gaps[0].total.mean == pytest.approx(0.3) and verdict.decided_by == []
    del rows[1].replications[1], rows[1].replications[2], rows[1].replications[3]
    verdict = judge(Group("card", [*rows, rows[0]], objective=objective))
    assert verdict.missing == ["paged"]


def test_winners_that_are_told_together_are_corrected() -> None:
    def one(wobble: float) -> Group:
        return group(row("odma", 110, wobble=wobble), row("paged", 100))

    # p of t(2) = ln 1.1 / (0.02 / sqrt(3)) is about 0.015; over six groups Holm makes it 0.09
    alone, together = judge(one(0.02)), judge_all([one(0.02)] * 6)
    assert alone.outcome == "won" and {each.outcome for each in together} == {"undecided"}
    # where five are sure the sixth is tested by itself
    found = judge_all([one(0.0001)] * 5 + [one(0.02)])
    assert [each.outcome for each in found] == ["won"] * 6 and found[0].family == 6


def test_nothing_to_compare() -> None:
    alone = judge(group(row("odma", 130)))
    assert (alone.outcome, alone.leader, alone.rate) == ("alone", "odma", 130)
    assert judge(group()).outcome == "alone"


def test_the_replications_that_would_resolve_a_gap_are_estimated() -> None:
    wide = judge(group(row("odma", 110, wobble=0.1), row("paged", 100)))
    # logarithms of ratios 0.1906, -0.01, 0.0953: mean 0.092, deviation 0.1004; of six replications
    # t(5) = 2.571 makes that 0.105 either way, of seven t(6) = 2.447 0.0928, of eight 0.0839
    assert (wide.outcome, wide.needed) == ("undecided", 8)
    # of a ratio of 1 the deviation 0.05 is to be bounded by ln 1.05: 0.0538 of six, 0.0462 of seven
    close = judge(group(row("odma", 100.01, wobble=0.05), row("paged", 100)))
    assert (close.outcome, close.needed) == ("undecided", 7)
    # mean 0.217, deviation 0.126: 0.313 of three, t(3) = 3.18 makes it 0.200 of four
    assert needed(interval([0.1, 0.2, 0.35])) == 4
    assert needed(interval([0.0, 3.0, -3.0])) is None and MOST == 200
    # of a mean of 0.1 and a deviation that grows, up to MOST and then none
    wider = [needed(interval([0.1 - s, 0.1, 0.1 + s])) for s in np.arange(0.70, 0.73, 0.0005)]
    assert max(each for each in wider if each) == MOST and wider[-1] is None
    twice = judge(group(row("a", 100), row("b", 100), row("c", 100.01, wobble=0.05)))
    assert twice.ties == ["a", "b", "c"] and twice.needed is not None  # two of them are the same


@pytest.mark.parametrize("tests", [1, 4])
@pytest.mark.parametrize(
    "logs", [[0.1, 0.2], [0.1, 0.2, 0.35], [0.01, 0.09, -0.06, 0.02], [0.0, 0.05, -0.05]]
)
def test_what_is_needed_is_the_least_count_that_tells(logs: list[float], tests: int) -> None:
    """By SciPy's quantile, with Bonferroni's level of so many tests."""
    deviation, mean = np.std(logs, ddof=1), abs(np.mean(logs))
    tells = []
    for count in range(len(logs) + 1, MOST + 1):
        half = t.ppf(1 - 0.025 / tests, count - 1) * deviation / np.sqrt(count)
        if half < mean or mean + half <= np.log(1.05):
            tells.append(count)
    assert needed(interval(logs), tests) == min(tells, default=None)
    assert needed(interval(logs[:1]), tests) is None


def test_every_pair_is_of_one_family_the_better_first() -> None:
    found = pairs_of(group(row("static", 100), row("odma", 110), row("paged", 111, wobble=0.05)))
    leads = {(each.first, each.second): each for each in found}
    assert [*leads] == [("paged", "odma"), ("paged", "static"), ("odma", "static")]
    sure = leads["odma", "static"]
    assert sure.lead.mean == pytest.approx(math.log(1.1)) and sure.sign == 1
    assert leads["paged", "odma"].sign == leads["paged", "static"].sign == 0
