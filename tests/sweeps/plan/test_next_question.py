"""Does the next question change one thing for both sides, and is what it finds what a run finds?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.statistics import Interval, interval
from sweeps.plan.experiment import ExperimentSpec
from sweeps.plan.next_question import QUESTIONS, GapSides, ProposedChange, chosen
from sweeps.plan.sweep import load_sweep
from sweeps.report.next_page import chart, grid, sentence
from sweeps.run import next_answer
from sweeps.run.next_answer import NextAnswer, Reply
from sweeps.sections.section import Say, Section
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.report import golden

SETTINGS = (
    "policy=[static, oracle]", "serving.engine.max_tokens=2000", "serving.kv_tokens=8000",
    "requests=40", "warmup_requests=10", "load=null", "serving.memory.efficiency=0.8",
    "workload_set.arrivals.process=all_at_once",
)  # fmt: skip


def held(*overrides: str) -> GapSides:
    found = load_sweep("quickstart", ["axes.device=[mlu370-x4]", *overrides]).points
    sides: dict[str, Any] = {
        p.overrides["serving.policy"]: p.experiment for p in found if not p.control
    }
    for side in sides.values():
        assert isinstance(side, ExperimentSpec)
    return GapSides(sides["paged"], sides["odma"], ("paged", "odma"), kv_slots=1000)


def asked(question: str, of: GapSides) -> list[ProposedChange]:
    return [*QUESTIONS[question].ask(of)]


def test_every_question_but_that_of_the_router_asks_something_of_the_headline() -> None:
    names = [each.name for q in QUESTIONS for each in asked(q, held())]
    assert len(set(names)) == len(names)
    assert [q for q in QUESTIONS if not asked(q, held())] == ["clients", "router"]
    assert asked("router", held("serving.cluster.cards=2"))


def test_what_is_there_already_is_not_asked() -> None:
    of = held("serving.engine.max_num_seqs=64", "workload=azure-code", "serving.weights=w4a16")
    assert "at most 64 sequences" not in [each.name for each in asked("cap", of)]
    assert "azure-code" not in [each.set["workload"] for each in asked("workload", of)]
    assert not asked("weights", of)
    assert asked("kv", held()) == [
        ProposedChange("half the room for KV", {"serving.kv_tokens": 500})
    ]
    assert asked("kv", held("serving.kv_tokens=8000")) == [
        ProposedChange("the card's own room for KV", {"serving.kv_tokens": None})
    ]
    assert not asked("predictor", held("policy=[paged, odma]", "serving.predictor={kind: oracle}"))


def test_a_chunk_is_what_the_engine_calls_it() -> None:
    sglang = asked("chunk", held("serving.engine={name: sglang}"))
    assert {path for each in sglang for path in each.set} == {"serving.engine.chunked_prefill_size"}


def test_clients_are_changed_alone_and_with_the_room_that_was_set() -> None:
    closed = held("arrivals={process: closed, clients: 8}", "load=null", "serving.kv_tokens=9000")
    assert [each.set for each in asked("clients", closed)] == [
        {"arrivals.clients": 2}, {"arrivals.clients": 32},
        {"arrivals.clients": 32, "serving.kv_tokens": None},
    ]  # fmt: skip


def test_what_a_side_would_set_is_for_it_alone() -> None:
    assert {each.of for each in asked("answer", held())} == {"paged"}


def test_questions_are_chosen_by_name() -> None:
    assert chosen("all") == list(QUESTIONS)
    assert chosen("seed, limit,seed") == ["seed", "limit"]
    for text in ("limits", "", "all,seed"):
        with pytest.raises(DescriptionError, match="--questions"):
            chosen(text)


def answer(*gaps: tuple[str, float, float]) -> NextAnswer:
    replies = [Reply("limit", name, Interval(mean, mean - half, mean + half, 5))
               for name, mean, half in gaps]  # fmt: skip
    lost = Reply("workload", "agents", None, "too long, by far")
    return NextAnswer("card", "paged", "odma", Interval(0.5, 0.4, 0.6, 5), [*replies, lost])


def test_what_was_asked_next_is_told_as_it_was_last_looked_at(tmp_path: Path) -> None:
    found = answer(("a", 0.7, 0.01), ("b", -0.3, 0.01), ("c", 0.0, 0.5))
    golden.held(
        "next", golden.text_of(Section("", [Say(sentence(found)), chart(found), grid(found)]))
    )
    (tmp_path / "explain").mkdir()
    text = json.dumps(next_answer.record([found], {"version": "1"}))
    (tmp_path / "explain/next.json").write_text(text)
    assert next_answer.read(tmp_path) == [found]


def test_a_change_gives_what_a_run_with_it_gives_and_is_kept(tmp_path: Path) -> None:
    settings = [word for each in SETTINGS for word in ("--set", each)]
    for more in ([], ["--set", "seed=2"]):
        assert (
            bankwise("run", "smoke", "--jobs", "1", *settings, *more, cwd=tmp_path).returncode == 0
        )
    ask = ["explain", "next", "runs/smoke-1", "oracle,static", "--jobs", "1", "--questions"]
    done = bankwise(*ask, "seed,workload", "--json", cwd=tmp_path)
    assert done.returncode == 0, done
    (found,) = json.loads(done.stdout)["answers"]
    gaps = {each["change"]: each["gap"] for each in found["replies"]}
    rates: dict[str, list[float]] = {"oracle": [], "static": []}
    for line in (tmp_path / "runs/smoke-2/results.jsonl").read_text().splitlines():
        record = json.loads(line)
        rates[record["overrides"]["serving.policy"]].append(record["metrics"][THROUGHPUT])
    ratios = [math.log(a / b) for a, b in zip(rates["oracle"], rates["static"], strict=True)]
    assert gaps["seed 2"]["mean"] == pytest.approx(interval(ratios).mean)
    long = next(each for each in found["replies"] if each["change"].startswith("sharegpt"))
    assert long["gap"] is None and "can never be served" in long["why"]
    results = tmp_path / "runs/smoke-1/explain/results.jsonl"
    before = results.read_bytes()
    again = bankwise(*ask, "seed", cwd=tmp_path)  # what was asked before stays on the page
    assert again.returncode == 0 and results.read_bytes() == before
    page = (tmp_path / "runs/smoke-1/report.md").read_text()
    assert "with one thing changed" in page.split("##")[0] and "sharegpt" in page
    assert "did you mean 'seed'?" in refusal(*ask, "seeds", cwd=tmp_path)
