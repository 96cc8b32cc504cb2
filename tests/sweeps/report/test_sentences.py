"""Is each sentence that a report may say of made facts what it was when it was last looked at?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

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
from tests.sweeps.report.golden import held

ONE = Interval(0.3, -math.inf, math.inf, 1)


def near(mean: float, half: float = 0.01) -> Interval:
    return Interval(mean, mean - half, mean + half, 3)


def numbers() -> Iterator[str]:
    yield percent(near(0.3))
    yield percent(near(0.3), named=True)
    yield percent(near(0.05), signed=True)
    yield percent(near(-0.0001, 0.001), signed=True)
    yield percent(ONE)
    yield gain(Interval(0.3, -0.9, 449607.55, 5))
    yield gain(Interval(0.3, -0.34, 0.95, 3))
    yield gain(Interval(16.37, -0.34, 95, 3))
    yield gain(near(-0.2))
    yield gain(near(16.37, 1))
    yield more(near(0.3), "odma")
    yield more(near(16.37, 1), "odma")
    yield either_way(Interval(0.001, -0.01, 0.012, 3))
    yield points(near(0.2))
    yield effect(near(math.log(2), 0))
    yield effect(None)
    yield ratio(near(0, 0))
    yield ratio(replace(near(0.0, 9.0), count=5))
    yield listed(["a", "b", "c"], "or")
    yield f"[{listed([])}]"
    yield counted(2, "memory")


def figures() -> Iterator[str]:
    """Each with its unit, its scale and its digits."""
    for each in FIGURES:
        yield f"{each.metric}: {each.text(0.123456)} {each.heading}"


def group(outcome: Any, *gaps: Gap, **more: Any) -> Verdict:
    return Verdict("card", outcome, "a", 100.0, list(gaps), **more)


WON = group("won", Gap("a", "b", near(0.3), causes=["reservation"]), Gap("a", "c", near(16, 1)))
FREE: dict[str, Any] = {"bound": False, "limits": {"kv_memory": 0.02, "offered_load": 0.98}}
TIES: dict[str, Any] = {"ties": ["b", "a"], "within": 0.0042}
LEAST = group("won", Gap("a", "b", near(0.3)), Gap("a", "c", near(6)),
              objective=OBJECTIVES["tpot_p99"])  # fmt: skip


def verdicts() -> Iterator[str]:
    b, close, c = Gap("a", "b", near(0.3)), Gap("a", "b", near(0.001)), Gap("a", "c", near(0.2))
    same = [Gap("16", "32", near(0.0))]
    for found in (
        WON,
        group("won", Gap("a", "b", near(0.5)), objective=KV_READ, kv_share=0.2),
        group("won", b, **FREE),
        replace(LEAST, rate=0.0312),
        group("close", close, **TIES),
        group("close", close, c, **TIES, **FREE),
        Verdict("card", "close", "16", 1.0, same, ties=["16", "32"]),
        group("undecided", close, c, needed=20, ties=["a", "b"], within=0.11),
        group("undecided", Gap("a", "b", ONE), ties=["a", "b"], within=math.inf),
        group("won", b, missing=["c"], objective=OBJECTIVES["goodput"]),
        group("alone", missing=["b"], objective=OBJECTIVES["ttft_p50"]),
        group("alone"),
        Verdict("card", "alone"),
        Verdict("card", "alone", missing=["a", "b"], objective=OBJECTIVES["tpot_p99"]),
    ):
        yield sentences.verdict(found)


def groups() -> Iterator[str]:
    """What they say together."""
    open_ = group("undecided")
    other = Verdict("card", "won", "b", 1.0, [Gap("b", "a", near(0.1))])
    for asked, *found in (
        (True, WON, WON), (True, WON, open_), (False, WON, other),
        (True, open_, open_), (False, WON, open_),
    ):  # fmt: skip
        pairs = list(zip("xyz", found, strict=False))
        yield from sentences.dependence(Dependence("", "device", "policy", pairs, bool(asked)))
    pairs = [[WON, WON], [WON, WON], [WON, other], [WON, open_]]
    yield sentences.dependences(
        [
            Dependence("", "device", "policy", list(zip("xy", each, strict=True)), True)
            for each in pairs
        ]
    )
    yield sentences.turned(Turned("card", {"without": WON, "with": other}, "seed=2"))
    yield sentences.turned(Turned("card", {"run-1": WON, "run-2": open_}))
    yield sentences.outcomes([WON, open_, open_], "case", 1)
    yield sentences.reference(Reference("card", "oracle", {"a": near(0.2)}, True), "a")


def conditions_of_runs() -> Iterator[str]:
    case = {"role": "case", "set": {"workload": "r1"}}
    groups = [Group("card", [Row("a", "", {1: {}, 2: {}, 3: {}})])]
    bases: list[dict[str, Any]] = [
        {"device": "card", "load": {"relative": 1.5, "of": "best"}, "requests": 1200},
        {"model": "m", "load": {"rate_per_s": 2}},
        {"load": {"goodput": {"ttft": "2s", "tpot": "1s"}}},
        {"arrivals": {"process": "all_at_once"}},
        {"arrivals": {"process": "closed", "clients": 4}},
        {"workload": "alpaca", "serving": {}},
        {"serving": {"kv_tokens": 9000, "engine": {"name": "v0", "max_tokens": 8192}}},
        {"serving": {"engine": "v0", "kv_tokens": None}},
        {"serving": {"engine": {"max_num_seqs": 256}}, "slo": {"ttft": "1s", "tpot": "50ms"}},
    ]
    for base in bases:
        config = {"base": base, "axes": {"serving.policy": []}, "variants": {"case": case}}
        table = Table("x", "", groups, 1, 1, config, {})
        yield conditions(table)
    table.config["objective"], table.compared_by = "ttft_p99", OBJECTIVES["ttft_p99"]
    yield conditions(table)


def what_ifs() -> Iterator[str]:
    """They rank, and name the largest effect."""
    for now, levels in (
        (0.2, {"more": 0.4, "none": 0.0, "less": -0.2}), (0.2, {"same": 0.2}),
        (0.2, {"more": 0.2}), (0.005, {"more": 0.4}),
    ):  # fmt: skip
        every = {"as described": near(now), **{k: near(v) for k, v in levels.items()}}
        effects = {name: near(level - now) for name, level in levels.items()}
        found = [Sensitivity("a / b", every, effects, "as described")]
        rates = [Sensitivity("a", every, effects, "as described")]
        changes = Changes("", Group("card"), rates, found, [*levels], [], SERVED)
        yield from what_if(changes)


def break_evens() -> Iterator[str]:
    parameter = Parameter(path="x", why="y", range=[1, 2])
    every = {1: near(0.3), 2: near(-0.3)}
    found = [
        Crossed("cost", parameter, every, near(0.2), Crossing(2, 1, None, True)),
        Crossed("hash", parameter, {1: near(0.0), 2: near(0.0)}, near(0.2)),
    ]
    yield crossing_sentences.break_evens(Search({}, ["a", "b"], near(0.2), found))


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


def answers() -> Iterator[str]:
    """The map of an answer in counts."""
    cells = [cell(0.7, 0.2, plea=lead("odma", 0.5)), cell(0.3, None, False), cell(0.0, None)]
    row = cell(0.3, None, plea=lead("paged", 1.0))
    for found in (
        Crossings("card", "m", "paged", ["odma"], cells, 3, {"plea": ("odma", "why")}, {}),
        Crossings("card", "m", "paged", ["odma"], [row], 3, {}, {"plea": "why"}),
    ):
        yield from crossing_sentences.answer(found)


def studies() -> Iterator[str]:
    gains = {"base": near(0.0), "static": near(0.3), "paper (trial 2)": near(0.1)}
    closed = {"oracle": near(0.75), "ideal": None}
    paper = "paper (trial 2)"
    found = StudyGain(
        "trial 3", "tokens/s", 100.0, "serves 100 tok/s", 4, gains, closed, paper, gains[paper]
    )
    for each in (found, replace(found, broken=("card_usd <= 9000",))):
        yield from study_sentences.study(each, "TPE")
    yield study_sentences.no_trial(3, 1)
    yield study_sentences.best_so_far(3, "serves 147 tok/s")


def changes(*found: Interval) -> list[tuple[str, MetricChange]]:
    return [(f"p{i}", MetricChange(FIGURES[0], 1.0, 2.0, each, True, True))
            for i, each in enumerate(found)]  # fmt: skip


def comparisons() -> Iterator[str]:
    yield inputs([], 0, ())
    yield inputs([], 2, ["commit"])
    yield inputs(["a 1 -> 2", *"bcd"], 4, ())
    yield results(0, True, [])
    yield results(2, True, [])
    yield results(2, False, [])
    yield results(2, False, changes(near(0.2), near(-0.3), near(0.0)))
    yield results(1, False, changes(near(0.0)))
    yield results(1, False, changes(ONE))


def papers() -> Iterator[str]:
    """The table of ODMA's."""

    def result(name: str, centre: float) -> DatasetResult:
        placed = FigurePlacement("gain", 0.23, near(centre), 0.0, 0.3, 5, "inside", None)
        cells = [MapCell(0.2, 1024, {"gain": near(0.23)}), MapCell(0.4, 1024, {"gain": near(0.5)})]
        return DatasetResult(name, 0.23, [placed], cells, {"gain": 0.23})

    yield from paper_sentences.paper([result("alpaca", 0.02), result("nq", 0.1)])


def explanations() -> Iterator[str]:
    causes: list[dict[str, float]] = [{"holes": 0.1, "reservation": 0.4, "copies": 0.0}, {}]
    for found in causes:
        parts = [CausePart(k, "", near(v), near(0), near(0)) for k, v in found.items()]
        yield explanation_page.sentence(
            Explanation("card", "a", "b", near(0.5), parts, near(0), {}, [])
        )


def random_accesses() -> Iterator[str]:
    base = Condition("channel", 1.0, 32, 32, None)
    deep = Condition("channel", 1.0, 64, 64, None)
    found = RandomAccess("card", 16384, 0.7, base, near(0.86), "undecided", [(deep, near(0.6))],
                         4096, 65536, (2048, 80.0), {"flat": near(0.5)}, ["flat"])  # fmt: skip
    yield from random_access(found)
    yield from random_access(
        replace(found, answer="random-access bound", reached_at=None, longest=64)
    )


KINDS: list[Callable[[], Iterable[str]]] = [
    numbers, figures, verdicts, groups, conditions_of_runs, what_ifs, break_evens, answers, studies,
    comparisons, papers, explanations, random_accesses,
]  # fmt: skip


def said() -> str:
    """A line a sentence, under the name of its kind."""
    return "".join(
        f"{kind.__name__}\n" + "".join(f"  {line}\n" for line in kind()) for kind in KINDS
    )


def test_every_sentence_is_as_it_was_last_looked_at() -> None:
    held("sentences", said())


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
