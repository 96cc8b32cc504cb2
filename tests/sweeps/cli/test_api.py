"""Does Python say what the command line says: the same results, the same mistakes?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bankwise import (
    DescriptionError,
    load,
    run,
    simulate,
)
from bankwise.result import Result
from hwmodel.description import yaml_reader
from hwmodel.specs.device import Device
from sweeps.plan.sweep_spec import Sweep
from sweeps.study.study_spec import Study
from tests.sweeps.cli.test_command_line import bankwise, refusal

ROOT = Path(__file__).resolve().parents[3]
FEW: dict[str, Any] = {"requests": 20, "warmup_requests": 5}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run("smoke", set=FEW, out=tmp_path_factory.mktemp("api") / "run", jobs=1)


def test_importing_loads_nothing_heavy() -> None:
    heavy = ("numpy", "numba", "optuna", "pydantic", "yaml", "plotly")
    code = f"import sys, bankwise, sweeps; print([n for n in {heavy!r} if n in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert told.stdout == "[]\n"


def test_a_description_is_loaded_by_its_name_or_its_kind(tmp_path: Path) -> None:
    sweep, study, device = load("smoke", set=FEW), load("quick"), load("mlu370-x4")
    assert isinstance(sweep, Sweep) and sweep.spec.base["requests"] == 20
    assert isinstance(study, Study) and isinstance(device, Device)
    again = load(yaml_reader.load(ROOT / "yaml/sweeps/smoke.yaml").data)
    assert isinstance(again, Sweep) and len(again.points) == len(sweep.points)
    assert isinstance(load(ROOT / "yaml/studies/quick.yaml"), Study)
    memory = load(ROOT / "yaml/memories/lpddr5-6400-x16.yaml", set={"controller.read_queue": 8})
    assert isinstance(memory, Device) and memory.memory.controller.read_queue == 8
    for wrong, why in {
        "smok": "no shipped sweep, study or device 'smok'; did you mean 'smoke'",
        "llama-2-7b": "it is a shipped model", "no/such.yaml": "no such file",
    }.items():  # fmt: skip
        with pytest.raises(DescriptionError, match=why):
            load(wrong)
    with pytest.raises(DescriptionError, match="mapping: expected kind: sweep or study; got None"):
        load({"name": "x"})


def test_what_is_set_is_a_mapping_or_a_list(done: Result) -> None:
    first = done.records[0]
    assert simulate(done.path, 0)["rate_per_s"] == first["rate_per_s"]
    with pytest.raises(DescriptionError, match="expected one of the points: 0 is static; 1 is"):
        simulate("smoke", set=FEW)
    with pytest.raises(DescriptionError, match="set: expected a mapping or a list"):
        simulate("smoke", 0, set="requests=5")  # type: ignore[arg-type]


def test_results_are_those_of_the_command_line(done: Result, tmp_path: Path) -> None:
    assignments = [word for key, value in FEW.items() for word in ("--set", f"{key}={value}")]
    told = bankwise("run", "smoke", "--out", "cli", "--jobs", "1", *assignments, cwd=tmp_path)
    ours = [record["metrics"] for record in done.records]
    assert ours == [record["metrics"] for record in Result(tmp_path / "cli").records]
    assert "\n".join(done.sentences) in told.stdout


def test_the_table_is_plain_rows(done: Result) -> None:
    table = done.table()
    assert [row["serving.policy"] for row in table] == ["static", "paged"]
    metric = "output_tokens_per_s"
    first = [r["metrics"][metric] for r in done.records if r["point"] == 0]
    assert table[0][metric] == pytest.approx(sum(first) / 2)
    assert table[0][f"{metric}.low"] < table[0][metric] < table[0][f"{metric}.high"]
    assert table[metric] == [row[metric] for row in table.rows]
    assert "static" in str(table) and "tokens/s" in str(table)
    assert table.to_csv().splitlines()[0].startswith("serving.policy,control,replications,")


def test_figures_are_those_of_the_report(done: Result, tmp_path: Path) -> None:
    assert {"throughput", "latencies"} <= set(done.figures)
    figure = done.figure("throughput")
    assert sorted(row["name"] for row in figure.rows) == ["paged", "static"]
    assert "<svg" in figure._repr_html_() and "| static |" in figure._repr_markdown_()
    assert "vega-lite" in figure.save(tmp_path / "f.html").read_text()
    assert figure.save(tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
    assert (
        figure.to_csv().splitlines()[0] == "group,chart,name,Output tokens/s,low,high,replications"
    )
    with pytest.raises(DescriptionError, match="did you mean 'throughput'"):
        done.figure("thruput")
    with pytest.raises(DescriptionError, match=r"ends in one of"):
        figure.save(tmp_path / "f.doc")


def test_a_notebook_shows_sentences_and_figures(done: Result, tmp_path: Path) -> None:
    html = done._repr_html_()
    assert html.startswith('<div class="bankwise">') and "<table" in html
    assert "body {" not in html and ":root" not in html  # the notebook keeps its looks
    assert done.sentences[0].split(":")[0] in done._repr_markdown_()
    assert str(done).startswith(done.sentences[0])
    assert "<html" in done.save(tmp_path / "whole.html").read_text()


def test_a_mapping_is_as_good_as_a_file(done: Result, tmp_path: Path) -> None:
    content = yaml_reader.load(ROOT / "yaml/sweeps/smoke.yaml").data
    again = run(content, set=FEW, out=tmp_path / "mapping", jobs=1)
    assert [r["metrics"] for r in again.records] == [r["metrics"] for r in done.records]
    with pytest.raises(DescriptionError) as error:
        run({**content, "base": {**content["base"], "reqests": 9}})
    assert str(error.value) == "mapping: reqests: unknown key; did you mean 'requests'?"


@pytest.mark.parametrize(
    "assignment",
    ["polcy=paged", "policy=pagd", "timing.tRCD=20ns", "requests=0", "workload=missing.csv.gz"],
)
def test_a_mistake_has_the_command_lines_message(
    assignment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, value = assignment.split("=")
    with pytest.raises(DescriptionError) as error:
        run("smoke", set={path: json.loads(value) if value.isdigit() else value})
    assert str(error.value) == refusal("run", "smoke", "--set", assignment, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_jobs_below_one_and_a_taken_directory_are_refused(done: Result) -> None:
    with pytest.raises(DescriptionError, match="--jobs: expected 1 or more; got 0"):
        run("smoke", jobs=0)
    with pytest.raises(DescriptionError, match="already contains a run"):
        run("smoke", set=FEW, out=done.path)
    again = run("smoke", set=FEW, out=done.path, resume=True)
    assert again.records == done.records
