"""`bankwise run STUDY` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwmodel.description.library import names
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.study.studies import TINY

SETS = [part for item in TINY if "trials" not in item for part in ("--set", item)]
WINDOWW = ["--set", "space.device_set.dma.windoww={choice: [8KiB]}"]


def test_a_study_from_beginning_to_end(tmp_path: Path) -> None:
    """A search of four trials in its own directory, its report, more trials, its best as a run."""
    done = bankwise("run", "quick", "--trials", "4", "--jobs", "1", *SETS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "runs" / "quick-1"
    for said in ("4 trials", "on 2 replications not used in the search", "\nstatic "):
        assert said in done.stdout, done.stdout
    page = (out / "report.md").read_text()
    assert "Reservation of outputs that stays unused" in page and "least, all lengths known" in page
    assert len((out / "results.jsonl").read_text().splitlines()) == 4
    assert json.loads((out / "provenance.json").read_text())["inputs"]["study"]["name"] == "quick"
    assert bankwise("report", "runs/quick-1", cwd=tmp_path).stdout == done.stdout
    assert "already contains a run" in refusal("run", "quick", "--out", out, *SETS, cwd=tmp_path)
    more = bankwise("run", "quick", "--trials", "6", "--resume", "--jobs", "1", *SETS, cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    lines = (out / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["trial"] for line in lines] == list(range(6))
    sets = ("requests=5", "replications=1", "fidelity=analytic")
    asked = [part for item in sets for part in ("--set", item)]
    best = bankwise("run", out / "best.yaml", "--jobs", "1", *asked, cwd=tmp_path)
    assert best.returncode == 0, best.stderr
    assert (tmp_path / "runs" / "quick-best-1" / "results.jsonl").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "quik"], "no shipped sweep or study 'quik'; did you mean 'quick'?"),
        (["run", "quick", "--trials", "0"], "trials: Input should be greater than or equal to 1"),
        (["run", "quick", "--sampler", "tpee"], "sampler.name: Input should be 'tpe' or"),
        (["run", "quick", "--only", "odma"], "--only: goes with sweeps; this is a study"),
        (["run", "smoke", "--trials", "4"], "--trials: goes with studies; this is a sweep"),
        (["run", "quick", "--jobs", "0"], "--jobs: expected 1 or more; got 0"),
        (["run", "quick", "--jobs", "2", "--cluster", "tcp://h:1"], "--jobs: does not go with"),
        (["run", "quick", "--set", "memory=sampled", *WINDOWW], "did you mean 'window'?"),
        (["run", "quick", "--set", "space={}"], "space: expected at least one parameter"),
        (["run", "quick", "--cluster", "tcp://h:1", "--jobs", "1"], "--jobs: does not go with"),
        (["run", "./quick.yaml"], "./quick.yaml: no such file"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    assert said in refusal(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_space_has_its_line(tmp_path: Path) -> None:
    quick = Path(__file__).resolve().parents[3] / "yaml" / "studies" / "quick.yaml"
    text = quick.read_text().replace("serving.policy.gamma:", "serving.policy.gama:")
    (tmp_path / "mine.yaml").write_text(text)
    line = 1 + next(i for i, row in enumerate(text.splitlines()) if "gama" in row)
    said = refusal("check", "mine.yaml", cwd=tmp_path)
    assert said.startswith(f"mine.yaml:{line}: ") and "did you mean 'gamma'?" in said


def test_studies_are_listed_among_the_sweeps(tmp_path: Path) -> None:
    found = json.loads(bankwise("list", "sweeps", "--json", cwd=tmp_path).stdout)["sweeps"]
    studies = [name for name in names("studies") if name != "quick"]  # of tests, as smoke is
    assert [each["name"] for each in found if each["kind"] == "study"] == studies
    sweeps = {each["name"] for each in found if each["kind"] == "sweep"}
    assert sweeps == {*names("sweeps")} - {"smoke"}
