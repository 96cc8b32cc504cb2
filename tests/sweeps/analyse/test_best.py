"""Is the verdict on any results what SciPy, closed testing and the definitions make of them?"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sweeps.analyse.best import MOST, NEGLIGIBLE, judge_all, needed, pairs_of
from sweeps.analyse.effects import logs_of
from sweeps.analyse.facts import Gap, Verdict
from sweeps.analyse.figures import LIMITS, PREEMPTIONS_EACH, THROUGHPUT
from sweeps.analyse.gap import BINDS, FEWER, FREE, PREEMPTS, RECOMPUTES
from sweeps.analyse.objective import OBJECTIVES
from sweeps.analyse.statistics import Interval, grown, interval
from sweeps.analyse.table import Group, Row
from tests.sweeps.analyse.test_statistics import closed, same, scipys

NONE = Interval(0, -math.inf, math.inf, 0)
Rates = dict[str, dict[int, float]]
"""By competitor and replication."""


def drawn(rng: np.random.Generator) -> Group:
    """Up to four competitors, far apart or near, in up to five replications of which some are
    missing or served nothing, with a control and a load that all share."""
    objective = OBJECTIVES[rng.choice(["throughput", "tpot_p99"], p=[0.7, 0.3])]
    names, count = "abcd"[: rng.integers(1, 5)], rng.integers(1, 6)
    shared, group = rng.normal(0, 0.3, count), Group("card", [], objective=objective)
    for control in ("", "analytic"):
        for name in names:
            level = rng.choice([100, 100, 100.3, 100.3, 102, 130, 250])
            noise = rng.choice([0, 1e-4, 0.003, 0.03, 0.1])
            logs = np.log(level) + shared + rng.normal(0, noise, count)
            values = np.exp(logs) * (rng.random(count) < 0.95)
            there = [r for r in range(count) if rng.random() < 0.95]
            metrics = {r + 1: {objective.metric: float(values[r])} for r in there}
            group.rows.append(Row(name, control, metrics))
    return group


def rates(group: Group, control: str = "") -> Rates:
    """The competitors that have results, less being better turned round."""
    return {
        row.name: {r: each[group.objective.metric] for r, each in row.replications.items()}
        for row in group.rows
        if row.control == control and row.replications
    }


def logs(group: Group, best: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    sign = -1 if group.objective.less else 1
    return {
        r: sign * math.log(best[r] / other[r])
        for r in sorted(best)
        if best[r] > 0 and other.get(r, 0) > 0
    }


def of(found: dict[int, float], tests: int = 1) -> Interval:
    values = [*found.values()]
    if len(values) < 2:
        return Interval(values[0], -math.inf, math.inf, 1) if values else NONE
    return scipys(values, 1 - 0.05 / tests)


def p_of(found: dict[int, float]) -> float:
    values = [*found.values()]
    if len(values) < 2 or not any(values):
        return 1.0
    return float(stats.ttest_1samp(values, 0).pvalue) if np.ptp(values) else 0.0


def ranked(group: Group) -> Rates:
    sign = 1 if group.objective.less else -1
    found = rates(group)
    order = sorted(found, key=lambda name: sign * float(np.mean([*found[name].values()])))
    return {name: found[name] for name in order}


def replications(found: dict[int, float], tests: int) -> int | None:
    """The fewest that make its mean significant or bound it, by trying all."""
    values = [*found.values()]
    if len(values) < 2:
        return None
    deviation, mean = np.std(values, ddof=1), abs(np.mean(values))
    if deviation == 0:
        return len(values)
    for count in range(len(values) + 1, MOST + 1):
        half = stats.t.ppf(1 - 0.025 / tests, count - 1) * deviation / np.sqrt(count)
        if half < mean or mean + half <= np.log(1.05):
            return count
    return None


def parts(group: Group, gap: Gap) -> tuple[Interval | None, Interval | None]:
    """The analytic gap and layout's points of a gap."""
    main, plain = rates(group), rates(group, "analytic")
    names = gap.best, gap.other
    if not all(name in plain for name in names) or not gap.total.count:
        return None, None
    ours, theirs = (logs(group, each[gap.best], each[gap.other]) for each in (main, plain))
    common = {r: ours[r] - theirs[r] for r in ours if r in theirs}
    if not common:
        return None, None
    analytic = of({r: theirs[r] for r in common}).mapped(grown)
    return analytic, of(common).mapped(grown).mapped(lambda part: (1 + analytic.mean) * part)


@pytest.mark.filterwarnings("ignore:Precision loss")
@pytest.mark.parametrize("seed", range(40))
def test_a_verdict_is_what_the_results_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [drawn(rng) for _ in range(rng.integers(1, 5))]
    every = [ranked(group) for group in groups]
    tested = [i for i, found in enumerate(every) if len(found) > 1]
    leads = [
        {name: logs(group, found[next(iter(found))], found[name]) for name in [*found][1:]}
        for group, found in zip(groups, every, strict=True)
    ]
    adjusted = closed([max(map(p_of, leads[i].values())) for i in tested])
    for i, verdict in enumerate(judge_all(groups)):
        group, found, main = groups[i], every[i], [r.name for r in groups[i].main()]
        assert verdict.missing == [name for name in main if name not in found]
        assert verdict.family == max(len(tested), 1)
        leader = next(iter(found), "")
        assert verdict.leader == leader
        assert verdict.rate == (pytest.approx(np.mean([*found[leader].values()])) if leader else 0)
        if i not in tested:
            assert (verdict.outcome, verdict.p, verdict.gaps) == ("alone", 1, [])
            continue
        assert verdict.p == pytest.approx(adjusted[tested.index(i)], abs=1e-12)
        factor = 1 if verdict.p < 0.05 else len(tested)
        ahead = {name for name, each in leads[i].items()
                 if of(each).mean > 0 and factor * p_of(each) < 0.05
                 and grown(of(each).high) > NEGLIGIBLE}  # fmt: skip
        ties = [name for name in main if name in found and name not in ahead]
        apart = [logs(group, found[ties[0]], found[name]) for name in ties[1:]]
        bounds = [of(each, len(apart)) for each in apart]
        within = max((grown(max(-each.low, each.high)) for each in bounds), default=0.0)
        assert verdict.ties == ties and verdict.within == pytest.approx(within, abs=1e-12)
        expected = "won" if not apart else "close" if within <= 0.05 else "undecided"
        assert verdict.outcome == expected
        assert verdict.best == (leader if expected == "won" else "")
        counts = [replications(each, len(apart)) for each in apart]
        assert verdict.needed == (None if None in counts or not counts else max(counts))  # type: ignore[type-var]
        means = [gap.total.mean for gap in verdict.gaps]
        assert means == sorted(means) and len(means) == len(found) - 1
        assert [gap.other for gap in verdict.close] == [g.other for g in verdict.gaps
                                                        if g.other in ties]  # fmt: skip
        assert {gap.other for gap in verdict.behind} == ahead | ({*found} - {*ties} - {leader})
        for gap in verdict.gaps:
            same(gap.total, of(leads[i][gap.other]).mapped(grown))
            for one, other in zip((gap.analytic, gap.layout), parts(group, gap), strict=True):
                assert (one is None) == (other is None)
                if one is not None and other is not None:
                    same(one, other)
        pairs = {(a, b): logs(group, found[a], found[b]) for a, b in combinations(found, 2)}
        p_values = closed([p_of(each) for each in pairs.values()])
        told = pairs_of(group)
        assert [(each.first, each.second) for each in told] == [*pairs]
        for each, lead, p in zip(told, pairs.values(), p_values, strict=True):
            same(each.lead, of(lead))
            assert each.sign == (of(lead).sign if p < 0.05 else 0)


def test_no_more_replications_are_sought_than_may_be() -> None:
    assert needed(interval([0.0, 3.0, -3.0])) is None and MOST == 200
    # of a mean of 0.1 and a deviation that grows, up to MOST and then none
    wider = [needed(interval([0.1 - s, 0.1, 0.1 + s])) for s in np.arange(0.70, 0.73, 0.0005)]
    assert max(each for each in wider if each) == MOST and wider[-1] is None


BOUND = {"kv_memory": 0.9, "offered_load": 0.1}
FULL = {"batch": 10.0, "utilization": 0.9, "phase_share.prefill": 0.1, "phase_share.weights": 0.8}
HALF = {**FULL, "batch": 5.0, "utilization": 0.45}
"""Reserves twice what it uses."""
REDOES = {**FULL, PREEMPTIONS_EACH: 4.6, "phase_share.prefill": 0.79, "utilization": 1.0}


def row(
    name: str, rate: float, control: str = "", limits: dict[str, float] = BOUND,
    figures: dict[str, float] = FULL,
) -> Row:  # fmt: skip
    others: dict[str, Any] = {f"{LIMITS}.{key}": value for key, value in limits.items()} | figures
    found = {r: {THROUGHPUT: rate * noise, **others} for r, noise in ((1, 0.99), (2, 1.0))}
    return Row(name, control, found)


def judge(*rows: Row) -> Verdict:
    (found,) = judge_all([Group("card", list(rows))])
    return found


UNBOUND = {"sequence_cap": 0.7, "kv_memory": 0.3}
SLOTS = "kv_slots.binding"


@pytest.mark.parametrize(
    ("figures", "limits", "causes"),
    [
        (HALF, BOUND, ["reservation"]),
        ({**HALF, "batch": 10 * FEWER + 0.1}, BOUND, ["steps"]),  # nearly as many at once
        ({**HALF, "utilization": 0.95}, BOUND, ["steps"]),  # reserves no more
        (REDOES, BOUND, ["recompute"]),
        ({**REDOES, "phase_share.prefill": 0.1}, BOUND, ["steps"]),  # costs no more
        ({**REDOES, PREEMPTIONS_EACH: RECOMPUTES / 2}, BOUND, ["steps"]),
        ({**REDOES, "batch": 5.0, "utilization": 0.45}, BOUND, ["reservation", "recompute"]),
        ({**FULL, f"{SLOTS}.holes": FREE}, BOUND, ["slots"]),
        ({**FULL, f"{SLOTS}.holes": FREE / 3, f"{SLOTS}.head_of_line": FREE}, BOUND, ["slots"]),
        ({**FULL, f"{SLOTS}.holes": 0.0, f"{SLOTS}.head_of_line": FREE}, BOUND, ["steps"]),
        ({**FULL, f"{SLOTS}.holes": FREE / 2}, BOUND, ["steps"]),
        (FULL, UNBOUND, ["load"]),
        (FULL, {}, ["steps"]),
    ],
)
def test_why_one_is_behind_follows_from_its_figures(
    figures: dict[str, float], limits: dict[str, float], causes: list[str]
) -> None:
    for controls in (("", "analytic"), ("",)):  # what the metrics show they show without it
        ours = [row("odma", 130, control) for control in controls]
        theirs = [row("static", 100, control, limits, figures) for control in controls]
        assert judge(*ours, *theirs).gaps[0].causes == causes


@pytest.mark.parametrize(
    ("analytic", "deciders"),
    [
        (130, ["capacity"]),
        (118, ["capacity"]),  # less than half of it is layout
        (110, ["layout", "capacity"]),
        (100, ["layout"]),
        (90, ["layout"]),
    ],
)
def test_layout_decides_where_it_makes_half_and_alone_where_the_rest_is_none(
    analytic: float, deciders: list[str]
) -> None:
    sides = [row("odma", 130), row("static", 100, figures=HALF), row("odma", analytic, "analytic")]
    assert judge(*sides, row("static", 100, "analytic")).decided_by == deciders


@pytest.mark.parametrize(("share", "bound"), [(BINDS / 2, False), (BINDS, True)])
def test_a_winner_that_memory_did_not_limit_wins_and_it_is_known(share: float, bound: bool) -> None:
    limits = {"kv_memory": share, "sequence_cap": 1 - share}
    verdict = judge(row("odma", 130, limits=limits), row("paged", 100, limits=limits))
    assert (verdict.outcome, verdict.best, verdict.bound) == ("won", "odma", bound)
    assert verdict.limits == pytest.approx(limits)


@pytest.mark.parametrize(("each", "bound"), [(PREEMPTS / 2, False), (PREEMPTS, True)])
def test_preemptions_say_that_memory_bound(each: float, bound: bool) -> None:
    limits = {"kv_memory": 0.0, "token_budget": 1.0}
    ours = row("odma", 130, limits=limits, figures={**FULL, PREEMPTIONS_EACH: each})
    assert judge(ours, row("paged", 100)).bound is bound


def test_replications_that_served_nothing_have_no_logarithm() -> None:
    rates = {1: {THROUGHPUT: 0.0}, 2: {THROUGHPUT: math.e}, 3: {}}
    assert logs_of(Row("odma", "", rates), THROUGHPUT) == {2: 1.0}
