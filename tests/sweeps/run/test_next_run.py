"""Is a question put to a gap answered once, with loads of its own, and counted?"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.statistics import Interval, interval
from sweeps.plan.next_question import QUESTIONS, ProposedChange
from sweeps.plan.sweep import load_sweep
from sweeps.run import kept_simulations, next_run
from sweeps.run.kept_simulations import Failure
from sweeps.run.next_answer import NextAnswer, Reply
from sweeps.run.next_answer import read as read_answers
from sweeps.run.next_run import ask_next
from sweeps.run.progress import Progress, ProgressStep
from sweeps.run.sweep_run import run_sweep

SWEEP: dict[str, Any] = {
    "kind": "sweep", "name": "two", "summary": "beyond the better one's capacity",
    "base": {
        "device": "mlu370-x4", "model": "llama-3.1-8b", "workload": "constant", "requests": 30,
        "replications": 2, "load": {"relative": 1.5},
        "serving": {
            "kv_tokens": 8000, "weights": "w4a16",
            "memory": {"fidelity": "analytic", "efficiency": 0.8},
        },
    },
    "axes": {"serving.policy": ["static", "paged"]},
    "compare": "serving.policy",
}  # fmt: skip


class Counted(Progress):
    """Keeps of each stage its name, total, what was done before, and steps."""

    def __init__(self) -> None:
        super().__init__(terminal=False)
        self.stages: list[list[Any]] = []

    @contextmanager
    def stage(
        self, name: str, total: int, done: int = 0, late_s: float = 0.0, after: int = 0
    ) -> Iterator[ProgressStep]:
        self.stages.append([name, total, done, 0])

        def step(note: str = "") -> None:
            self.stages[-1][3] += 1

        yield step

    def of(self, name: str) -> list[tuple[int, int, int]]:
        """(total, done before, steps) of the stages of a name."""
        return [(total, done, steps) for each, total, done, steps in self.stages if each == name]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "two-1"
    run_sweep(load_sweep(SWEEP), path, False, 1, Progress(terminal=False))
    return path


@pytest.fixture
def run(simulated: Path, tmp_path: Path) -> Path:
    """A copy, of which nothing has been asked yet."""
    return Path(shutil.copytree(simulated, tmp_path / simulated.name))


def test_questions_are_simulated_once_at_loads_of_their_own(run: Path) -> None:
    first, again, more = Counted(), Counted(), Counted()
    found = ask_next(run, "paged,static", ["seed"], 1, first)
    assert not found.failures
    (gap,) = found.answers
    assert (gap.winner, gap.loser) == ("paged", "static")
    assert all(reply.gap is not None and reply.gap.count == 2 for reply in gap.replies)
    seeds = 4 * len(gap.replies)  # of two sides in two replications
    assert first.of("capacity") == first.of("counterfactuals") == [(seeds, 0, seeds)]
    known = (run / "explain/results.jsonl").read_bytes()
    assert ask_next(run, "paged,static", ["seed"], 1, again).answers == found.answers
    assert not again.stages and (run / "explain/results.jsonl").read_bytes() == known
    both = ask_next(run, "paged,static", ["seed", "limit"], 1, more).answers[0]
    limits = 4 * sum(reply.question == "limit" and reply.gap is not None for reply in both.replies)
    assert limits and more.of("counterfactuals") == [(seeds + limits, seeds, limits)]
    ((total, before, steps),) = more.of("capacity")
    assert before == seeds and steps == total - seeds >= limits
    kept = json.loads((run / "explain/next.json").read_text())
    assert {reply["question"] for each in kept["answers"] for reply in each["replies"]} == {
        "seed", "limit",
    }  # fmt: skip


def test_the_gap_of_the_report_is_asked_about_where_none_is_named(run: Path) -> None:
    (found,) = ask_next(run, "", ["seed"], 1, Progress(terminal=False)).answers
    assert (found.winner, found.loser) == ("paged", "static")


def test_only_sweeps_for_the_best_have_gaps(tmp_path: Path) -> None:
    least = load_sweep(SWEEP, [
        "rule=least", "axes.serving.kv_tokens=[8000, 9000]", "load={rate_per_s: 0.1}",
        "least={axis: serving.kv_tokens, metric: tpot_s.mean, at_most: 10}",
    ])  # fmt: skip
    run_sweep(least, tmp_path / "least-1", False, 1, Progress(terminal=False))
    with pytest.raises(DescriptionError, match="rule is that of the best"):
        ask_next(tmp_path / "least-1", "", ["seed"], 1, Progress(terminal=False))


class Side(NamedTuple):
    """As much of an experiment as rates and gaps ask for."""

    name: str
    load: Any


def load(**given: Any) -> Any:
    return SimpleNamespace(**{"relative": None, "rate_per_s": None, "of": "best", **given})


CAPACITIES: dict[str, Any] = {"a 1": 4.0, "a 2": 5.0, "b 1": 6.0, "b 2": 3.0, "c 1": "no room"}


@pytest.mark.parametrize(
    ("names", "given", "offered"),
    [
        ("ab", None, ([None, None], [None, None])),
        ("ab", load(rate_per_s=7.0), ([7.0, 7.0], [7.0, 7.0])),
        ("ab", load(relative=1.5), ([9.0, 7.5], [9.0, 7.5])),
        ("ab", load(relative=1.5, of="own"), ([6.0, 7.5], [9.0, 4.5])),
        ("ac", load(relative=1.5, of="own"), "no room"),
        ("ca", load(relative=1.5), "no room"),
    ],
)
def test_what_a_change_is_offered_is_by_its_own_capacities(
    names: str, given: Any, offered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_run, "capacity_key", lambda side, r: f"{side.name} {r}")
    sides: Any = tuple(Side(name, given) for name in names)
    pair: Any = SimpleNamespace(rates={1: 0.0, 2: 0.0})
    change = next_run.Change("seed", ProposedChange("x", {}), sides)
    found = next_run._rates(change, pair, CAPACITIES)
    if isinstance(offered, str):
        assert found == offered
        assert next_run._reply(change, pair, CAPACITIES, {}, {}) == Reply(
            "seed", "x", None, offered
        )
        assert not next_run._wanted([change], pair, CAPACITIES)
    else:
        assert found == tuple(dict(zip((1, 2), each, strict=True)) for each in offered)


def test_a_gap_is_of_the_replications_that_both_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(side: Side, rate: float) -> str:
        return f"{side.name} at {rate:g}"

    monkeypatch.setattr(next_run, "key", key)
    sides: Any = Side("a", load(rate_per_s=2.0)), Side("b", load(rate_per_s=2.0))
    known: Any = {
        "a at 2": {r: {THROUGHPUT: rate} for r, rate in enumerate((30.0, 44.0, 0.0, 50.0), 1)},
        "b at 2": {r: {THROUGHPUT: rate} for r, rate in enumerate((20.0, 40.0, 9.0), 1)},
        "b at 3": {1: {THROUGHPUT: 1.0}},
    }
    pair: Any = SimpleNamespace(rates=dict.fromkeys((1, 2, 3, 4), 9.0))
    change = next_run.Change("seed", ProposedChange("x", {}), sides)
    reply = next_run._reply(change, pair, {}, known, {})
    assert reply == Reply("seed", "x", interval([math.log(1.5), math.log(1.1)]))
    assert {name for name, _ in next_run._wanted([change], pair, {})} == {"a at 2", "b at 2"}
    none = next_run._reply(change, pair, {}, {}, {("b at 2", 1): Failure("by hand", True)})
    assert none == Reply("seed", "x", None, "by hand")
    other = {("b at 3", 1): Failure("of another", True)}
    assert next_run._reply(change, pair, {}, {}, other).why == "no result"


def test_answers_are_kept_beside_those_to_other_questions_and_on_other_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_run, "provenance", lambda *_: {"version": "mine"})
    first, second = (Interval(each, each - 1, math.inf, 2) for each in (0.5, 0.25))

    def answer(loser: str, *replies: Reply) -> NextAnswer:
        return NextAnswer("card", "paged", loser, first, [*replies])

    old, new = Reply("seed", "2", first), Reply("seed", "2", second)
    limit, none = Reply("limit", "64", second), Reply("load", "0.8", None, "no room")
    sweep: Any = None
    for each in (answer("odma", none, old), answer("static", old), answer("odma", limit, new)):
        next_run._keep(tmp_path, [each], sweep, {})
    kept = {each.loser: each.replies for each in read_answers(tmp_path)}
    order = [each for each in QUESTIONS if each in ("limit", "seed", "load")]
    assert [reply.question for reply in kept["odma"]] == order
    assert {*kept["odma"]} == {limit, new, none} and kept["static"] == [old]
    text = (tmp_path / "explain/next.json").read_text()
    assert json.loads(text)["version"] == "mine" and text.endswith("}\n")


@pytest.mark.parametrize("at_fault", [False, True])
def test_a_simulation_that_fails_leaves_its_question_open_and_is_said_unless_it_was_asked_for(
    at_fault: bool, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(task: Any) -> Any:
        raise (DescriptionError if at_fault else ZeroDivisionError)("by hand")

    monkeypatch.setattr(kept_simulations, "measure", fails)
    monkeypatch.setattr(kept_simulations, "rehearse", lambda *_: None)
    found = ask_next(run, "paged,static", ["seed"], 1, Progress(terminal=False))
    (answer,) = found.answers
    assert all(each.gap is None and "by hand" in each.why for each in answer.replies)
    assert bool(found.failures) != at_fault
    assert capsys.readouterr().err.count("failed: ") == len(found.failures)
