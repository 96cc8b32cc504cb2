"""Do the command line, Python and JSON give the same answer to each question, and the same refusal
to what does not go together?"""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import bankwise as api
from bankwise import DescriptionError
from hwmodel.measure.refresh_cost import refresh_table
from sweeps.ask import pool_sizing, published_servers, sizing, sizing_runs, tuning
from sweeps.ask.question import Question, core_of, option, typing_of
from sweeps.ask.questions import QUESTIONS, does, question
from sweeps.sections.section import Grid, Section
from tests.sweeps.ask.test_calibrate import made as logged
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.made import made
from tests.sweeps.report.golden import held, text_of
from tests.sweeps.report.test_explanation import SETTINGS

SCHEDULES = "tests/reference/vllm_free_list_schedules.json.gz"
MOST_OPTIONS = 15
ROOT = Path(__file__).resolve().parents[3]
MEMORY = "lpddr5-6400-x16"
SERVED: dict[str, Any] = {"model": "qwen3-0.6b", "workload": "constant", "jobs": 1}
SLO = "ttft=2s,tpot=100ms"
EXAMPLES: dict[str, dict[str, Any]] = {
    "fit": {"names": ["mlu370-x4", "llama-2-7b"], "prompt": 500, "cards": 2},
    "fit devices": {"names": ["a100-80gb", "l4", "mlu370-x4", "llama-3.1-8b", "llama-3.3-70b"],
                    "decode_only": True, "price": {"l4": 2500}, "watts": {"mlu370-x4": 150}},
    "fit states": {"device": "a100-80gb", "model": "qwen3.5-9b", "workload": ["alpaca"],
                   "drafts": 2, "set": {"capacity": "70GiB"}},
    "fit formats": {"model": "llama-2-7b", "devices": ["oaken-hbm", "oaken-lpddr"], "tokens": 999},
    "replay": {"device": MEMORY, "trace": "trace.txt", "channel": True, "banks": True,
               "commands": "log.csv"},
    "explain": {"run": "a", "point": "oracle,static", "jobs": 1},
    "explain next": {"run": "a", "point": "oracle,static", "jobs": 1, "questions": "seed"},
    "report figure": {"run": "a", "name": "throughput", "dark": True},
    "report explore": {"runs": ["a"]},
    "compare": {"run_a": "a", "run_b": "b"},
    "calibrate": {"log": "log.jsonl", "device": "rtx-4090", "model": "llama-3.1-8b",
                  "set": {"serving.kv_tokens": 30000}},
    "audit": {"device": MEMORY, "commands": "log.csv", "timeline": "commands.svg"},
    "validate": {"files": [str(ROOT / "yaml/measurements/u280-hbm2-channel.yaml")]},
    "validate servers": {"model": "llama"},
    "validate schedules": {"files": [str(ROOT / SCHEDULES)]},
    "size": {**SERVED, "devices": ["l4", "rtx-4090"], "slo": SLO, "rate": "500tokens/s",
             "price": {"l4": 2500.0}, "watts": {"l4": 72.0}},
    "size users": {**SERVED, "users": 2, "devices": ["l4"], "slo": SLO, "think": 1.0},
    "size batch": {**SERVED, "devices": ["l4"], "slo": "tpot=9ms", "policy": "static"},
    "size memory": {**SERVED, "device": "l4", "slo": SLO, "weights": "bf16"},
    "size confirm": {**SERVED, "device": "l4", "slo": SLO, "users": 2},
    "size settings": {"device": "l4", "model": "qwen3-0.6b", "workload": "constant", "slo": SLO,
                      "only": ["kv"], "requests": 8, "replications": 2, "jobs": 1},
    "size pools": {**SERVED, "device": "l4", "link": "nvme-4x", "slo": SLO, "rate": "1"},
    "memory": {"device": MEMORY, "pattern": ["sequential"], "extent": ["512B"], "writes": [25.0],
               "set": {"controller.refresh": "none"}},
    "memory latency": {"device": MEMORY, "extent": "512B", "writes": 25.0},
    "memory curve": {"device": MEMORY, "extent": "1KiB", "quick": True},
    "memory refresh": {"device": MEMORY, "set": {"controller.read_queue": 8}},
    "memory layouts": {"device": "strix-halo", "pad": "32B"},
    "transfer": {"link": "pcie5-h100-single", "model": "qwen3-0.6b", "tokens": 1008,
                 "block": (16, 32), "set": {"merges": "any_order"}},
    "transfer restore": {"link": "nvme-pcie4", "model": "llama-2-7b", "device": "a100-80gb",
                         "set": {"capacity": "70GiB"}},
    "transfer pause": {"link": "pcie4-a30-batched", "model": "llama-2-7b", "device": "a100-80gb",
                       "seconds": [0.01, 100], "tokens_each": 512},
}  # fmt: skip
"""Of each question one that is answered in a second."""


def words(verb: str, given: dict[str, Any]) -> list[str]:
    """What one types to ask it."""
    asked, found = question(verb), verb.split()
    for name, value in given.items():
        if isinstance(value, dict):
            flag = option(asked, name)
            found += [w for path, text in value.items() for w in (flag, f"{path}={text}")]
            continue
        pair = isinstance(value, tuple)
        several = value if isinstance(value, (list, tuple)) else [value]
        text = (":" if pair else ",").join(map(str, several))
        if typing_of(asked, name).argument:
            found += map(str, several)
        else:
            found += [option(asked, name), *([] if value is True else [text])]
    return found


def by_place(verb: str, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Values without a name, and the others."""
    asked = question(verb)
    places = [name for name in given if typing_of(asked, name).argument]
    values = [v for name in places for v in (
        given[name] if isinstance(given[name], list) else [given[name]]
    )]  # fmt: skip
    return values, {name: value for name, value in given.items() if name not in places}


def prepare(verb: str) -> None:
    """What its example reads, in this folder."""
    match verb.split()[0]:
        case "compare" | "report":
            made(Path("a"))
            made(Path("b"), odma=156)
        case "replay":
            Path("trace.txt").write_text("".join(f"R {64 * i:#x}\n" for i in range(64)))
        case "audit":
            Path("log.csv").write_text(
                "cycle,command,rank,bankgroup,bank,row,column\n0,ACT1,0,0,0,5,\n2,ACT2,0,0,0,5,\n"
                "40,RD,0,0,0,5,0\n"
            )
        case "calibrate":
            logged(Path(), "given.efficiency=0.7", count=40)
        case "explain":
            sets = dict(each.split("=", 1) for each in SETTINGS) | {"requests": "12"}
            api.run("smoke", set=[f"{path}={text}" for path, text in sets.items()], out="a", jobs=1)


def steady(answer: Any) -> Any:
    """Without how long it took."""
    rows = answer if isinstance(answer, list) else [answer]
    return [{k: v for k, v in row.items() if k not in ("wall_s", "threads")} for row in rows]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes."""
    monkeypatch.setattr("hwmodel.measure.load_latency.BYTES", 1 << 16)
    monkeypatch.setattr("hwmodel.measure.load_latency.ACCESSES", 400)
    monkeypatch.setattr("hwmodel.measure.bandwidth.CHANNEL_BYTES", 1 << 16)
    monkeypatch.setattr("hwmodel.measure.racm.CHANNEL_BYTES", 1 << 16)
    for room in (sizing, sizing_runs, pool_sizing):
        for name in {"REQUESTS", "WARMUP", "DRAWS", "ROUNDS"} & vars(room).keys():
            monkeypatch.setattr(room, name, 2)
    monkeypatch.setattr(sizing_runs, "SATURATED", 32)
    monkeypatch.setattr(sizing, "MOST_RUNS", 2)
    monkeypatch.setattr(sizing, "CONFIRMED", 2)
    monkeypatch.setattr(pool_sizing, "MOST", 2)
    monkeypatch.setattr(tuning, "goodput_task", lambda task: 1.0 + bool(task[0].serving.kv))
    monkeypatch.setattr(tuning, "goodput_s", lambda experiment: 1.0)
    few = partial(refresh_table, size=1 << 14)
    monkeypatch.setattr("sweeps.ask.memory_refresh.refresh_table", few)
    monkeypatch.setattr(published_servers, "ROWS", published_servers.ROWS[:1])
    monkeypatch.setattr(published_servers, "efficiency", lambda device: 0.9)
    monkeypatch.setattr("sweeps.ask.memory_layouts.layout_gbps", lambda device, read: 1 + read.pad)


def test_every_question_has_an_example_and_a_function() -> None:
    assert EXAMPLES.keys() == QUESTIONS.keys()
    assert {verb.replace(" ", "_") for verb in QUESTIONS} <= {*api.__all__}


@pytest.mark.parametrize("verb", QUESTIONS)
def test_the_answer_last_looked_at_is_the_same_on_a_command_line_in_python_and_as_json(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question is answered once."""
    monkeypatch.chdir(tmp_path)
    prepare(verb)
    answers: dict[str, Any] = {}
    answer = question(verb).answer

    def once(self: Question[Any]) -> Any:
        asked = self.model_dump_json()
        if asked not in answers:
            answers[asked] = answer(self)
        return answers[asked]

    monkeypatch.setattr(question(verb), "answer", once)
    given = EXAMPLES[verb]
    places, named = by_place(verb, given)
    ours = getattr(api, verb.replace(" ", "_"))(*places, **named)
    typed = bankwise(*words(verb, given), "--json", "--save", "a.html", cwd=tmp_path)
    assert typed.returncode == (verb == "audit"), typed.stderr
    assert steady(json.loads(typed.stdout)) == steady(json.loads(json.dumps(ours.record())))
    shown = bankwise(*words(verb, given), cwd=tmp_path).stdout
    for block in ours.sections()[0].blocks:
        if isinstance(block, Grid):
            assert all(cell.strip() in shown for row in block.rows for cell in row)
    assert ours.sections()[0].title in (tmp_path / "a.html").read_text()
    held(f"ask/{verb}", text_of(*ours.sections()))


@pytest.mark.parametrize("verb", QUESTIONS)
def test_a_help_is_short_and_whole(verb: str) -> None:
    shown = bankwise(*verb.split(), "--help", cwd=Path.cwd()).stdout
    options = re.findall(r"^  (--[\w-]+)", shown, re.MULTILINE)
    assert len(options) - len({"--help"}) <= MOST_OPTIONS, options
    assert not re.search(r"Instead|With --|Likewise", shown)
    assert does(verb).rstrip(".") in " ".join(shown.split())
    for name, field in question(verb).model_fields.items():
        assert str(field.description)[0].isupper(), name
        assert str(field.description).rstrip(")").endswith((".", "model's")), name


def sample(annotation: Any) -> Any:
    """A value of a type."""
    core = core_of(annotation)
    if get_origin(core) is Literal:
        return get_args(core)[-1]
    if get_origin(core) is tuple:
        inner = [sample(each) for each in get_args(core) if each is not Ellipsis]
        return tuple(inner) if Ellipsis not in get_args(core) else inner
    return {bool: True, int: 3, float: 0.5, str: "x", Path: "x"}[core]


@pytest.mark.parametrize("verb", QUESTIONS)
def test_options_go_together_or_are_refused_in_a_line_by_both(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = question(verb)
    monkeypatch.setattr(asked, "answer", lambda self: self.model_dump(mode="json"))
    monkeypatch.setattr(Question, "section", lambda self, findings: Section("", []))
    monkeypatch.setattr(asked, "failed", lambda self, findings: False)
    needed = {n: v for n, v in EXAMPLES[verb].items() if asked.model_fields[n].is_required()}
    monkeypatch.setattr(asked, "write_files", lambda self, findings: [])
    optional = [name for name in asked.model_fields if name not in needed and name != "set"]
    for names in [(), *((name,) for name in optional), *combinations(optional, 2)]:
        given = needed | {name: sample(asked.model_fields[name].annotation) for name in names}
        typed = bankwise(*words(verb, given), "--json", cwd=tmp_path)
        try:
            one = asked.of(given)
        except DescriptionError as error:
            assert (typed.returncode, typed.stdout) == (2, ""), given
            text = re.sub(r"; got .*", "", str(error))  # "3" on a command line, 3 in Python
            assert typed.stderr.startswith(text) and typed.stderr.count("\n") == 1
        else:
            assert (typed.returncode, typed.stderr) == (0, ""), (given, typed)
            assert json.loads(typed.stdout) == one.model_dump(mode="json")
