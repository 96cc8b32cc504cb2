"""Are causes that are known found, do they add up, and are explanations kept and shown?"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.figures import BACKLOG, THROUGHPUT
from sweeps.analyse.table import Group, Row, Table
from sweeps.plan.counterfactual import chain, key
from sweeps.plan.experiment import ExperimentSpec
from sweeps.plan.sweep import load_sweep
from sweeps.report.explanation_page import chart, sentence
from sweeps.run import explained_run
from sweeps.run.explained_run import Explained, explain_leading
from sweeps.run.explanation import UNSATURATED, Known, RivalPair, explain, read, record
from sweeps.run.findings import find
from sweeps.run.progress import Progress
from sweeps.run.reading import read_sweep
from sweeps.run.store import RunDirectory
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.made import made

SETTINGS = (
    "policy=[static, oracle]", "serving.engine.max_tokens=2000", "serving.kv_tokens=8000",
    "requests=40", "warmup_requests=10", "load=null", "serving.memory.efficiency=0.8",
    "workload_set.arrivals.process=all_at_once",
)  # fmt: skip

RATES = {1: 1.0, 2: 1.1, 3: 0.9}
"""Offered in each replication."""
UNNAMED = dict.fromkeys(RATES)


def sides() -> dict[str, ExperimentSpec]:
    found = load_sweep("quickstart", ["axes.device=[mlu370-x4]"]).points
    named = {p.overrides["serving.policy"]: p.experiment for p in found if not p.control}
    return named  # type: ignore[return-value]


def planted(pair: RivalPair) -> Known:
    """Any throughputs: a state's is drawn from its place in the order of first use."""
    numbers = count(1)
    known: Known = {}
    for state, rates in pair.states():
        if key(state.experiment, rates[1]) not in known:
            level = 100 * math.exp(math.sin(next(numbers)))
            for r, rate in rates.items():
                metrics = {THROUGHPUT: level * (1 + r / 50), BACKLOG: 0.5}
                known.setdefault(key(state.experiment, rate), {})[r] = metrics
    return known


@pytest.mark.parametrize("policy", ["static", "paged", "odma"])
def test_every_policy_ends_at_one_ceiling_in_both_orders(policy: str) -> None:
    found = sides()
    ceiling = key(chain(found["paged"])[-1].experiment, 1.0)
    for reverse in (False, True):
        states = chain(found[policy], reverse)
        assert key(states[-1].experiment, 1.0) == ceiling
        assert states[0].experiment == found[policy]
        assert states[1].removed == ("layout",)


@pytest.mark.parametrize(("backlog", "told"), [(0.0, True), (0.5, False)])
def test_who_does_all_that_comes_is_told_where_more_was_to_come(backlog: float, told: bool) -> None:
    found = sides()
    for saturated in (True, False):
        pair = RivalPair(
            "card", ("paged", "odma"), (found["paged"], found["odma"]), RATES, saturated
        )
        known = planted(pair)
        for results in known.values():
            for metrics in results.values():
                metrics[BACKLOG] = backlog
        said = explain(pair, known).unsaturated
        assert bool(said) == (told and saturated)
        assert {each.split()[0] for each in said} == ({"paged", "odma"} if said else set())


def test_causes_add_up_to_the_gap_in_both_orders() -> None:
    found = sides()
    pair = RivalPair("card", ("paged", "odma"), (found["paged"], found["odma"]), RATES, True)
    why = explain(pair, planted(pair))
    for order in ("forward", "reverse"):
        whole = math.fsum(getattr(part, order).mean for part in why.parts)
        assert whole == pytest.approx(why.total.mean)
    assert why.unexplained.mean == 0
    assert [part.cause for part in why.parts] == [
        "layout", "copies", "prediction", "reservation", "holes", "line", "held", "recompute",
    ]  # fmt: skip
    assert [part.of for part in why.parts] == [""] * 7 + ["paged"]  # odma never preempts
    for part in why.parts:
        both = part.forward.mean - part.reverse.mean
        assert part.interaction.mean == pytest.approx(both)
    assert [bar.name for bar in chart(why).bars][-1] == "paged over odma"


def test_costs_of_hardware_are_gaps_at_loads_that_still_saturate() -> None:
    found = sides()
    pair = RivalPair("card", ("paged", "odma"), (found["paged"], found["odma"]), RATES, True)
    known = planted(pair)
    hardware = explain(pair, known).hardware
    assert {"", "weights", "compute"} <= hardware.keys()
    for cost, gap in hardware.items():
        ours, theirs = (
            known[key(pair.hardware(side, cost).experiment, UNSATURATED)][1][THROUGHPUT]
            for side in pair.sides
        )
        assert gap.mean == pytest.approx(math.log(ours / theirs))


def test_only_replications_that_every_state_has_are_explained() -> None:
    found = sides()
    pair = RivalPair("card", ("paged", "static"), (found["paged"], found["static"]), UNNAMED, False)
    whole = planted(pair)
    known = {state: dict(results) for state, results in whole.items()}
    del known[[*known][1]][2]
    known[[*known][-1]][3] = {THROUGHPUT: 0.0}  # served nothing
    why = explain(pair, known)
    assert (why.total.count, why.parts[0].forward.count) == (1, 1)
    known[[*known][2]] = {}
    with pytest.raises(DescriptionError, match="paged and static have no replication without"):
        explain(pair, known)


def test_explanations_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = sides()
    pair = RivalPair("card", ("paged", "static"), (found["paged"], found["static"]), UNNAMED, False)
    why = explain(pair, planted(pair))
    assert read(tmp_path) == []
    (tmp_path / "explain").mkdir()
    file = tmp_path / "explain/explanation.json"
    file.write_text(json.dumps(plain(record([why], {}))))
    assert read(tmp_path) == [why]
    file.write_text("{")
    assert read(tmp_path) == []


def test_explanations_are_kept_beside_those_of_other_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sides()
    pair = RivalPair("card", ("paged", "static"), (found["paged"], found["static"]), UNNAMED, False)
    one = explain(pair, planted(pair))
    other, again = replace(one, group="fast"), replace(one, unsaturated=["paged"])
    monkeypatch.setattr(explained_run, "provenance", lambda *_: {"version": "mine"})
    for kept in ([], [one], [other], [again]):
        explained_run._keep(tmp_path, kept, None, {})  # type: ignore[arg-type]
        assert bool(kept) == (tmp_path / "explain").is_dir()
    assert read(tmp_path) == [again, other]
    text = (tmp_path / "explain/explanation.json").read_text()
    assert json.loads(text)["version"] == "mine" and text.endswith("}\n")


def rivals(place: str, **rates: float) -> Group:
    """A group of competitors in two replications; `static` has but the second."""
    rows = [
        Row(name, "", {r: {THROUGHPUT: rate + r, BACKLOG: 0.2} for r in (1, 2)},
            dict.fromkeys((1, 2), 3.0), point=at)
        for at, (name, rate) in enumerate(rates.items())
    ]  # fmt: skip
    return Group(f"on {place}", rows, {"device": place})


PLACES = [rivals("card", paged=100, odma=130, static=90), rivals("x", paged=80, odma=70)]
TABLE = Table("made", "", PLACES, 1, 1, {"axes": {}}, {})
ANYWHERE: Any = SimpleNamespace(points=[None] * 3, document=SimpleNamespace(file="run.yaml"))


@pytest.mark.parametrize(
    ("asked", "pairs"),
    [
        ("", ["card odma paged", "card odma static", "x paged odma"]),
        ("card", ["card odma paged", "card odma static"]),
        (" card , odma,", ["card odma paged", "card odma static"]),
        ("odma", ["card odma paged", "card odma static", "x paged odma"]),
        ("static", ["card odma static"]),
        ("paged", ["card odma paged", "x paged odma"]),
        ("paged, odma", ["card paged odma", "x paged odma"]),
        ("odma,paged", ["card odma paged", "x odma paged"]),
        ("x, static", "no two competitors with results"),
        ("y", "no 'y' in this run"),
        ("paged, odma, static", "two competitors at most"),
    ],
)
def test_which_pairs_does_a_point_name(
    asked: str, pairs: list[str] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained_run, "experiment_of", lambda sweep, row: row.name)
    if isinstance(pairs, str):
        with pytest.raises(DescriptionError, match=pairs):
            explained_run.pairs_of(TABLE, ANYWHERE, asked)
        return
    found = explained_run.pairs_of(TABLE, ANYWHERE, asked)
    assert [" ".join([each.group.split()[1], *each.names]) for each in found] == pairs
    for each in found:
        assert (each.sides, each.rates, each.saturated) == (each.names, {1: 3.0, 2: 3.0}, True)
        numbers = {row.name: row.point for group in PLACES for row in group.rows}
        assert each.points == tuple(numbers[name] for name in each.names)


def test_a_pair_needs_one_load_a_replication_of_both_and_points_of_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explained_run, "experiment_of", lambda sweep, row: row.name)
    other, apart, idle, beyond = (rivals("card", paged=100, odma=130) for _ in range(4))
    other.rows[0].rates = {1: 3.0, 2: 4.0}
    with pytest.raises(DescriptionError, match=r"run.yaml: on card: explain needs one load; odma"):
        [*explained_run.pairs_in(other, ANYWHERE, [])]
    apart.rows[0].replications = {3: apart.rows[0].replications[1]}
    assert not [*explained_run.pairs_in(apart, ANYWHERE, [])]
    idle.rows[1].replications[1][BACKLOG] = idle.rows[1].replications[2][BACKLOG] = 0.0
    assert [each.saturated for each in explained_run.pairs_in(idle, ANYWHERE, [])] == [False]
    beyond.rows[0].point = 3  # one that results asked for
    assert not [*explained_run.pairs_in(beyond, ANYWHERE, [])]


def test_a_report_begins_with_the_lead_over_the_strongest_rival_that_is_largest(
    tmp_path: Path,
) -> None:
    found = find(read_sweep(RunDirectory(made(tmp_path / "run", odma=130))))
    assert found.leading_gap is not None
    group, gap = found.leading_gap
    assert (group.title, gap.best, gap.other) == ("card", "odma", "paged")
    even = find(read_sweep(RunDirectory(made(tmp_path / "even", odma=100))))
    assert even.leading_gap is None  # no significant winner


@pytest.mark.parametrize(("left", "odma", "explained"), [(23, 130, True), (24, 130, False),
                                                        (1, 100, False)])  # fmt: skip
def test_a_run_explains_the_gap_that_its_report_begins_with_where_that_is_cheaper_than_the_run(
    left: int, odma: float, explained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SimpleNamespace(wanted=range(left), known={})
    monkeypatch.setattr(explained_run, "unknown", lambda wanted, known: wanted)
    monkeypatch.setattr(explained_run, "_planned", lambda path, choose: plan)
    monkeypatch.setattr(explained_run, "_explained", lambda plan, jobs, progress: Explained([]))
    found = explain_leading(made(tmp_path, odma), 1, Progress(terminal=False))
    assert (found is not None) is explained  # of 24 results; with 100 there is no winner


def test_a_gap_of_reservations_alone_is_found(tmp_path: Path) -> None:
    settings = [word for each in SETTINGS for word in ("--set", each)]
    assert bankwise("run", "smoke", "--jobs", "1", *settings, cwd=tmp_path).returncode == 0
    done = bankwise("explain", "smoke", "oracle,static", "--jobs", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done
    (why,) = json.loads(done.stdout)["explanations"]
    assert (why["winner"], why["loser"]) == ("oracle", "static")
    forward = {part["cause"]: part["forward"]["mean"] for part in why["parts"]}
    assert forward["reservation"] == pytest.approx(why["total"]["mean"])
    assert why["total"]["mean"] > 0.2
    assert why["unexplained"]["mean"] == 0
    run = tmp_path / "runs/smoke-1"
    results = run / "explain/results.jsonl"
    before = results.read_bytes()
    again = bankwise("explain", "smoke", "--jobs", "1", cwd=tmp_path)
    assert "Conditions: mlu370-x4, llama-2-7b" in " ".join(again.stdout.split())
    assert again.returncode == 0
    assert results.read_bytes() == before
    assert sentence(read(run)[0]) in " ".join(again.stdout.split())
    kept = json.loads((run / "findings.json").read_text())["explanations"]
    assert [(each["winner"], each["loser"]) for each in kept] == [("oracle", "static")]
    for file in ("report.md", "report.html"):
        assert "Why: smoke, oracle over static" in (run / file).read_text()
    assert "no 'orakle' in this run; did you mean 'oracle'?" in refusal(
        "explain", "smoke", "orakle", cwd=tmp_path
    )
    provenance = run / "provenance.json"
    provenance.write_text(json.dumps({**json.loads(provenance.read_text()), "version": "0.0.1"}))
    assert "made by version 0.0.1" in refusal("explain", "smoke", cwd=tmp_path)
    assert "nowhere: no such directory" in refusal("explain", "nowhere", cwd=tmp_path)
