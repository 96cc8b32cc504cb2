"""Are numbers written with their intervals, and is each sentence template what it should be?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from hwmodel.measure.racm import Condition
from sweeps.analyse.crossing import Crossing
from sweeps.analyse.effects import Sensitivity
from sweeps.analyse.facts import Dependence, Gap, MetricChange, Reference, Turned, Verdict
from sweeps.analyse.figures import FIGURES
from sweeps.analyse.objective import KV_READ, OBJECTIVES, SERVED
from sweeps.analyse.random_access import RandomAccess
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Row, Table
from sweeps.ask.random_curves import random_access
from sweeps.plan.crossing_findings import Crossed, Crossings, Search
from sweeps.plan.paper_findings import DatasetResult, FigurePlacement, MapCell
from sweeps.plan.parameter import Parameter
from sweeps.plan.what_if import Changes
from sweeps.report import (
    crossing_sentences,
    explanation_page,
    paper_sentences,
    study_sentences,
)
from sweeps.report import verdict_sentences as sentences
from sweeps.report.change_sentences import what_if
from sweeps.report.comparison_sentences import inputs, results
from sweeps.report.conditions import conditions
from sweeps.report.crossing_map import regions
from sweeps.run.explanation import CausePart, Explanation
from sweeps.sections.formats import (
    counted,
    effect,
    either_way,
    gain,
    listed,
    more,
    percent,
    points,
    ratio,
)
from sweeps.study.trials import StudyGain

ONE = Interval(0.3, -math.inf, math.inf, 1)


def near(mean: float, half: float = 0.01) -> Interval:
    return Interval(mean, mean - half, mean + half, 3)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (percent(near(0.3)), "30 % (29 to 31)"),
        (percent(near(0.3), named=True), "30 % (95 % CI 29 to 31)"),
        (percent(near(0.05), signed=True), "+5.0 % (4.0 to 6.0)"),
        (percent(near(-0.0001, 0.001), signed=True), "+0.0 % (-0.1 to 0.1)"),
        (percent(ONE), "30 %"),
        (gain(Interval(0.3, -0.9, 449607.55, 5)), "+30 % (-90 to over 1,000)"),
        (
            gain(Interval(0.3, -0.9, 449607.55, 4)),
            "+30 % (-90 to over 1,000)",
        ),
        (gain(Interval(0.3, -0.34, 0.95, 3)), "+30 % (-34 to 95)"),
        (
            gain(Interval(16.37, -0.34, 95, 3)),
            "17.4 times (0.66 to 96)",
        ),
        (gain(near(-0.2)), "-20 % (-21 to -19)"),
        (gain(near(16.37, 1)), "17.4 times (16.4 to 18.4)"),
        (more(near(0.3), "odma"), "30 % (29 to 31) more than odma"),
        (more(near(16.37, 1), "odma"), "17.4 times (16.4 to 18.4) the rate of odma"),
        (either_way(Interval(0.001, -0.01, 0.012, 3)), "at most 1.2 % either way"),
        (points(near(0.2)), "20.0 (19.0 to 21.0)"),
        (effect(near(math.log(2), 0)), "+100 % (100 to 100)"),
        (effect(None), "–"),
        (ratio(near(0, 0)), "1 (1 to 1)"),
        (ratio(replace(near(0.0, 9.0), count=5)), "1 (under 0.001 to over 1,000)"),
        (ratio(near(0.0, 9.0)), "1 (under 0.001 to over 1,000)"),
        (listed(["a", "b", "c"], "or"), "a, b or c"),
        (listed([]), ""),
        (counted(2, "memory"), "2 memories"),
    ],
)
def test_numbers_are_written_with_their_intervals(text: str, written: str) -> None:
    assert text == written


def group(outcome: Any, *gaps: Gap, **more: Any) -> Verdict:
    return Verdict("card", outcome, "a", 100.0, list(gaps), **more)


WON = group("won", Gap("a", "b", near(0.3), causes=["reservation"]), Gap("a", "c", near(16, 1)))
FREE: dict[str, Any] = {"bound": False, "limits": {"kv_memory": 0.02, "offered_load": 0.98}}
TIES: dict[str, Any] = {"ties": ["b", "a"], "within": 0.0042}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (WON, "a serves 100.0 output tokens/s, 30 % (95 % CI 29 to 31) more than b and 17 times"
              " (16 to 18) the rate of c. Decided by capacity."),
        (group("won", Gap("a", "b", near(0.5)), objective=KV_READ, kv_share=0.2),
         "a reads KV at 100.0 GB/s, 50 % (95 % CI 49 to 51) faster than b. Reading KV takes 20 %"
         " of a step."),
        (group("won", Gap("a", "b", near(0.3)), **FREE), "a serves 100.0 output tokens/s, 30 % (95"
         " % CI 29 to 31) more than b; KV memory is not the limit (empty queue is, 98 % of the"
         " time)."),
        (replace(group("won", Gap("a", "b", near(0.3)), Gap("a", "c", near(6)),
                       objective=OBJECTIVES["tpot_p99"]), rate=0.0312),
         "a has a TPOT p99 of 31.2 ms; b 30 % (95 % CI 29 to 31) more and c 7 times (6.99 to 7.01)"
         " as much."),
        (group("close", Gap("a", "b", near(0.001)), **TIES),
         "b and a differ by at most 0.5 % in output tokens/s: keep b."),
        (group("close", Gap("a", "b", near(0.001)), Gap("a", "c", near(0.2)), **TIES, **FREE),
         "b and a differ by at most 0.5 % in output tokens/s: keep b; KV memory is not the limit"
         " (empty queue is, 98 % of the time). a serves 100.0 output tokens/s, 20 % (95 % CI 19 to"
         " 21) more than c."),
        (Verdict("card", "close", "16", 1.0, [Gap("16", "32", near(0.0))], ties=["16", "32"]),
         "policy 16 and policy 32 have the same output tokens/s: keep policy 16."),
        (group("undecided", Gap("a", "b", near(0.001)), Gap("a", "c", near(0.2)), needed=20,
               ties=["a", "b"], within=0.11),
         "a serves 100.0 output tokens/s, not significantly more than b: at most 11 % either way."
         " About 20 replications would settle it (now 3). a serves 20 % (95 % CI 19 to 21) more"
         " than c."),
        (group("undecided", Gap("a", "b", ONE), ties=["a", "b"], within=math.inf),
         "a serves 100.0 output tokens/s, in one replication more than b. That gives no interval:"
         " run three or more."),
        (group("won", Gap("a", "b", near(0.3)), missing=["c"], objective=OBJECTIVES["goodput"]),
         "a carries 100.000 requests/s within the SLO, 30 % (95 % CI 29 to 31) more than b. c: no"
         " goodput."),
        (group("alone", missing=["b"], objective=OBJECTIVES["ttft_p50"]),
         "only a has results. b: no TTFT p50, as the load is above capacity."),
        (group("alone"), "only a has results."),
        (Verdict("card", "alone"), "no results yet."),
        (Verdict("card", "alone", missing=["a", "b"], objective=OBJECTIVES["tpot_p99"]),
         "nothing to compare. a and b: no TPOT p99."),
    ],
)  # fmt: skip
def test_a_verdict(found: Verdict, said: str) -> None:
    assert sentences.verdict(found) == f"card: {said}"


def test_what_groups_say_together() -> None:
    open_ = group("undecided")

    def along(asked: bool, *found: Verdict) -> list[str]:
        pairs = list(zip("xyz", found, strict=False))
        return list(sentences.dependence(Dependence("", "device", "policy", pairs, asked)))

    assert along(True, WON, WON) == [
        "a serves the most for every device (x, y): at least 30 % (95 % CI 29 to 31) more than b"
        " (x), at most 30 % (29 to 31) more than b (y)."
    ]
    assert along(True, WON, open_) == [
        "x: a serves 30 % (95 % CI 29 to 31) more than b; y: undecided. Which policy serves the"
        " most depends on the device."
    ]
    other = Verdict("card", "won", "b", 1.0, [Gap("b", "a", near(0.1))])
    changes = "undecided: the winner changes with device (x: a wins; y: b wins)."
    assert along(False, WON, other) == [changes]
    assert along(True, open_, open_) == along(False, WON, open_) == []
    pairs = [[WON, WON], [WON, WON], [WON, other], [WON, open_]]
    many = [Dependence("", "device", "policy", list(zip("xy", each, strict=True)), True)
            for each in pairs]  # fmt: skip
    assert sentences.dependences(many) == (
        "Along device, of 4 combinations of the rest: a serves the most for every value in 2; the"
        " winner changes in 1; one or more are undecided in 1."
    )
    here = Turned("card", {"without": WON, "with": other}, "seed=2")
    assert sentences.turned(here).startswith("card: undecided: the winner changes with seed=2 (wi")
    there = Turned("card", {"run-1": WON, "run-2": open_})
    assert sentences.turned(there) == (
        "card: the outcome changes (run-1: a wins; run-2: undecided)."
    )
    assert sentences.outcomes([WON, open_, open_], "case", 1) == (
        "Of 3 cases: undecided in 2, a wins in 1. Another assumption changes 1 of them."
    )
    assert sentences.reference(Reference("card", "oracle", {"a": near(0.2)}, True), "a") == (
        "card: reference oracle +20 % (95 % CI 19 to 21) against a, both on memory without banks."
    )


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ({"device": "card", "load": {"relative": 1.5, "of": "best"}, "requests": 1200},
         "card, load 1.5 times the best capacity, 1,200 requests, 3 replications"),
        ({"model": "m", "load": {"rate_per_s": 2}}, "m, 2 requests/s, 3 replications"),
        ({"load": {"goodput": {"ttft": "2s", "tpot": "1s"}}},
         "the largest load with TTFT 2s and TPOT 1s, 3 replications"),
        (
            {"arrivals": {"process": "all_at_once"}},
            "all requests there from the start, 3 replications",
        ),
        ({"arrivals": {"process": "closed", "clients": 4}}, "4 clients, 3 replications"),
        ({"workload": "alpaca", "serving": {}}, "3 replications"),
        ({"serving": {"kv_tokens": 9000, "engine": {"name": "v0", "max_tokens": 8192}}},
         "KV of 9,000 tokens, answers of at most 8,192 tokens, 3 replications"),
        ({"serving": {"engine": "v0", "kv_tokens": None}}, "3 replications"),
        ({"serving": {"engine": {"max_num_seqs": 256}}, "slo": {"ttft": "1s", "tpot": "50ms"}},
         "at most 256 requests at once, SLO TTFT 1s and TPOT 50ms, 3 replications"),
    ],
)  # fmt: skip
def test_the_conditions_of_a_run(base: dict[str, Any], said: str) -> None:
    case = {"role": "case", "set": {"workload": "r1"}}
    config = {"base": base, "axes": {"serving.policy": []}, "variants": {"case": case}}
    groups = [Group("card", [Row("a", "", {1: {}, 2: {}, 3: {}})])]
    table = Table("x", "", groups, 1, 1, config, {})
    assert conditions(table) == f"Conditions: {said}."
    table.config["objective"], table.compared_by = "ttft_p99", OBJECTIVES["ttft_p99"]
    assert conditions(table).endswith(" objective TTFT p99, 3 replications.")


def test_what_ifs_rank_and_name_the_largest_effect() -> None:
    def told(now: float, **levels: float) -> list[str]:
        every = {"as described": near(now), **{k: near(v) for k, v in levels.items()}}
        effects = {name: near(level - now) for name, level in levels.items()}
        found = [Sensitivity("a / b", every, effects, "as described")]
        rates = [Sensitivity("a", every, effects, "as described")]
        group = Group("card")
        return list(what_if(Changes("", group, rates, found, [*levels], [], SERVED)))

    assert told(0.2, more=0.4, none=0.0, less=-0.2) == [
        "Of 3 changes (corrected for all of them) 3 matter: more (a +22 % (21 to 23)), none"
        " (a -18 % (-19 to -17)), less (a -33 % (-34 to -32)).",
        "a / b is 1.22 (95 % CI 1.21 to 1.23) as described. Reversed by less. Not significant with"
        " none.",
    ]
    assert told(0.2, same=0.2)[0] == (
        "Of 1 change (corrected for all of them) none matters: no effect is significant and above"
        " 1 %."
    )
    assert "None of 1 changes reverses it." in told(0.2, more=0.2)[1]
    assert "That is not significant, except with more. About 4 rep" in told(0.005, more=0.4)[1]


def test_break_evens_are_counted() -> None:
    parameter = Parameter(path="x", why="y", range=[1, 2])
    every = {1: near(0.3), 2: near(-0.3)}
    found = [
        Crossed("cost", parameter, every, near(0.2), Crossing(2, 1, None, True)),
        Crossed("hash", parameter, {1: near(0.0), 2: near(0.0)}, near(0.2)),
    ]
    assert crossing_sentences.break_evens(Search({}, ["a", "b"], near(0.2), found)) == (
        "a / b is 1.22 (95 % CI 1.21 to 1.23) as described. 1 of 2 assumed parameters crosses"
        " break-even within a plausible range. Crossings: cost at 2 (1 to above 2). Of the"
        " others: 1 undecided."
    )


def lead(best: str, mean: float, bound: bool = True) -> Verdict:
    won = mean > 0.01
    other = "odma" if best == "paged" else "paged"
    return Verdict(
        "cell", "won" if won else "close", best, 2.0,
        [Gap(best, other, near(mean).mapped(math.expm1))], ties=[best, other][: 2 - won],
        within=0.02, bound=bound, p=0.0 if won else 1.0,
    )  # fmt: skip


RANGE = Parameter(path="x", why="y", range=[0.1, 1.0], log=True, halvings=1, bisect="mean",
                  of="paged", against=["odma"])  # fmt: skip


def cell(mean: float, tied: float | None, bound: bool = True, **pleas: Verdict) -> Search:
    found = {RANGE.at(0): near(-mean if tied else mean), RANGE.at(1): near(mean)}
    if tied:
        found[RANGE.at(0.5)] = near(mean)
    crosses = None if tied is None else Crossing(tied, tied, tied, False)
    return Search(
        {}, ["paged", "odma"], near(mean), [Crossed("KV ratio", RANGE, found, None, crosses)],
        False, "cell", lead("paged", mean, bound), {"paged": near(2), "odma": near(1)}, {}, pleas,
    )  # fmt: skip


def test_the_map_of_an_answer_in_counts() -> None:
    cells = [cell(0.7, 0.2, plea=lead("odma", 0.5)), cell(0.3, None, False), cell(0.0, None)]
    found = Crossings("card", "m", "paged", ["odma"], cells, 3, {"plea": ("odma", "why")}, {})
    assert list(crossing_sentences.answer(found)) == [
        "paged leads significantly in 2 of 3 combinations (corrected for 3), by +35 % (95 % CI 34"
        " to 36) to +101 % (99 to 103); KV memory does not limit it in 1.",
        "No policy leads significantly in 1 of 3 combinations; in 1 the best differ by at most"
        " 5 %.",
        "Of 3 combinations, paged ties with the best of the others in 1, where KV ratio is 0.20,"
        " is ahead at every value in 1 and is behind at every value in 1.",
        "Changing 1 objection (corrected for 1) changes the winner in 1 of 1 combinations (plea).",
    ]
    row = cell(0.3, None, plea=lead("paged", 1.0))
    unmoved = Crossings("card", "m", "paged", ["odma"], [row], 3, {}, {"plea": "why"})
    assert list(crossing_sentences.answer(unmoved))[-1] == (
        "Changing 1 disputed assumption (corrected for 1) never changes the winner to another"
        " policy."
    )


def test_is_a_lead_that_is_not_significant_the_palest_of_the_map() -> None:
    sure, none = Interval(0.5, 0.4, 0.6, 3), Interval(0.5, -0.1, 1.1, 3)
    one = Interval(0.5, -math.inf, math.inf, 1)
    drawn = {}
    for name, right in (("sure", sure), ("none", none), ("one", one)):
        number = Crossed("KV ratio", RANGE, {0.1: sure, 1.0: right}, None)
        row = replace(cell(0.5, None), name=name, numbers=[number])
        found = Crossings("card", "m", "paged", ["odma"], [row], 3, {}, {})
        drawn[name] = regions(found).spans
    assert all(each.sure for each in drawn["sure"])
    # from 0.4 to -0.1 over a decade in 24 steps: below zero in the last fifth
    assert [each.sure for each in drawn["none"]] == [True] * 19 + [False] * 5
    assert not any(each.sure for each in drawn["one"])


def test_a_study() -> None:
    gains = {"base": near(0.0), "static": near(0.3), "paper (trial 2)": near(0.1)}
    closed = {"oracle": near(0.75), "ideal": None}
    paper = "paper (trial 2)"
    found = StudyGain(
        "trial 3", "tokens/s", 100.0, "serves 100 tok/s", 4, gains, closed, paper, gains[paper]
    )
    said = list(study_sentences.study(found, "TPE"))
    assert said == [
        "trial 3 serves 100 tok/s on 4 replications not used in the search; nothing that it was"
        " compared with serves significantly more.",
        "It was proposed by TPE; it has +10 % (95 % CI 9 to 11) against paper (trial 2), which"
        " needed no search.",
        "It has +0.0 % (95 % CI -1.0 to 1.0) against the base, not significant and +30 %"
        " (95 % CI 29 to 31) against static.",
        "It closes 75 % (95 % CI 74 to 76) of the gap from base to oracle.",
    ]
    broken = list(study_sentences.study(replace(found, broken=("card_usd <= 9000",)), "TPE"))
    assert any("the base (it breaks card_usd <= 9000)" in each for each in broken)
    assert study_sentences.no_trial(3, 1) == "None of 3 trials meets the constraints; 1 failed."
    assert study_sentences.best_so_far(3, "serves 147 tok/s") == (
        "Best so far: trial 3 serves 147 tok/s in the search, biased up by noise."
    )


def changes(*found: Interval) -> list[tuple[str, MetricChange]]:
    return [(f"p{i}", MetricChange(FIGURES[0], 1.0, 2.0, each, True, True))
            for i, each in enumerate(found)]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (inputs([], 0, ()), "Inputs: the same."),
        (inputs([], 2, ["commit"]), "Inputs: the same settings; descriptions differ in 2"
         " places. The programs differ in commit."),
        (inputs(["a 1 -> 2", *"bcd"], 4, ()), "Inputs that differ: a 1 -> 2, b, c and 1"
         " other."),
        (results(0, True, []), "Results: the two have no point in common."),
        (results(2, True, []), "Results: the same, bit for bit, in all 2 points."),
        (results(2, False, []), "Results: other metrics differ."),
        (results(2, False, changes(near(0.2), near(-0.3), near(0.0))), "Output tokens/s"
         " change significantly in 2 of 3 points, the most in p1: -30 % (95 % CI -31 to -29)."),
        (results(1, False, changes(near(0.0))), "Output tokens/s change significantly in"
         " 0 of 1 point: at most 1.0 % either way."),
        (results(1, False, changes(ONE)), "Output tokens/s change by at most +30 % in"
         " p0; one replication gives no interval."),
    ],
)  # fmt: skip
def test_two_runs(text: str, said: str) -> None:
    assert text == said


def test_the_odma_papers_table() -> None:
    def result(name: str, centre: float) -> DatasetResult:
        placed = FigurePlacement("gain", 0.23, near(centre), 0.0, 0.3, 5, "inside", None)
        cells = [MapCell(0.2, 1024, {"gain": near(0.23)}), MapCell(0.4, 1024, {"gain": near(0.5)})]
        return DatasetResult(name, 0.23, [placed], cells, {"gain": 0.23})

    assert list(paper_sentences.paper([result("alpaca", 0.02), result("nq", 0.1)])) == [
        "At the centre odma changes the throughput of static by +2.0 % (95 % CI 1.0 to 3.0) on"
        " alpaca (paper: 23 %) and +10.0 % (9.0 to 11.0) on nq (paper: 23 %).",
        "All figures together are met at 2 of 4 length shapes and limits.",
        "Over the assumptions the mean gain is 0 to 30 %: too wide to test the paper.",
    ]


def test_an_explanation() -> None:
    def part(cause: str, forward: float) -> CausePart:
        return CausePart(cause, "", near(forward), near(0), near(0))

    def told(parts: Iterable[CausePart]) -> str:
        return explanation_page.sentence(
            Explanation("card", "a", "b", near(0.5), list(parts), near(0), {}, [])
        )

    assert told([part("holes", 0.1), part("reservation", 0.4), part("copies", 0.0)]) == (
        "card: a serves 65 % (95 % CI 63 to 67) more than b. Largest causes: reservations beyond"
        " the length +49 % (48 to 51), holes +11 % (9 to 12)."
    )
    assert told([]).endswith("No single cause is significant.")


def test_random_access() -> None:
    base = Condition("channel", 1.0, 32, 32, None)
    deep = Condition("channel", 1.0, 64, 64, None)
    found = RandomAccess("card", 16384, 0.7, base, near(0.86), "undecided", [(deep, near(0.6))],
                         4096, 65536, (2048, 80.0), {"flat": near(0.5)}, ["flat"])  # fmt: skip
    assert random_access(found) == [
        "card: random extents of 16 KiB reach 0.86 (95 % CI 0.85 to 0.87) of sequential bandwidth:"
        " undecided at a threshold of 0.7. It is 0.60 (0.59 to 0.61) with queues 64 and 0.50 (0.49"
        " to 0.51) with flat.",
        "The smallest extent that reaches 0.7 is 4 KiB.",
        "DMA engines limit extents up to 2 KiB: 80 ns per descriptor.",
    ]
    bound = replace(found, answer="random-access bound", reached_at=None, longest=64)
    assert random_access(bound)[1] == "No extent up to 64 B reaches 0.7."
