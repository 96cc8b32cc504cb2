"""`bankwise run STUDY` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from hwmodel.description.library import names
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.study.studies import SHORT

SETS = [part for item in SHORT for part in ("--set", item)]


def test_a_study_from_beginning_to_end(tmp_path: Path) -> None:
    """A search of four trials in its own directory, its report, its best as a run."""
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
    sets = ("requests=5", "replications=1", "serving.memory={efficiency: 0.8}")
    asked = [part for item in sets for part in ("--set", item)]
    best = bankwise("run", out / "best.yaml", "--jobs", "1", *asked, cwd=tmp_path)
    assert best.returncode == 0, best.stderr
    assert (tmp_path / "runs" / "quick-best-1" / "results.jsonl").is_file()


def test_studies_are_listed_among_the_sweeps(tmp_path: Path) -> None:
    found = json.loads(bankwise("list", "sweeps", "--json", cwd=tmp_path).stdout)["sweeps"]
    studies = [name for name in names("studies") if name != "quick"]  # of tests, as smoke is
    assert [each["name"] for each in found if each["kind"] == "study"] == studies
    sweeps = {each["name"] for each in found if each["kind"] == "sweep"}
    assert sweeps == {*names("sweeps")} - {"smoke"}
