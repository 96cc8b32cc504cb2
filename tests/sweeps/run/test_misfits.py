"""Is a point that does not fit a cell of its run, and the others run?"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import read_report
from sweeps.run.misfits import FILE
from sweeps.run.progress import Progress
from sweeps.run.store import SUMMARY
from sweeps.run.sweep_run import SweepRun, run_sweep
from sweeps.sections.section import Grid
from tests.sweeps.cli.test_command_line import bankwise

SETS = [
    "serving.memory={fidelity: analytic, efficiency: 0.8}", "skip=[control]", "requests=40",
    "warmup_requests=10", "replications=2", "load={rate_per_s: 2}", "device=mlu370-x4",
]  # fmt: skip
MODELS = "axes.model=[llama-2-7b, llama-2-13b]"


def ran(out: Path, *sets: str, resume: bool = False) -> SweepRun:
    return run_sweep(load_sweep("smoke", [*SETS, *sets]), out, resume, 1, Progress(False))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """llama-2-13b does not fit the card, llama-2-7b does."""
    out = tmp_path_factory.mktemp("misfits") / "run"
    done = ran(out, MODELS)
    assert not done.failures and done.total == len(done.records) == 4
    return out


def test_the_others_run_and_it_says_why_and_what_would_fit(run: Path) -> None:
    found = json.loads((run / FILE).read_text())
    assert {each["overrides"]["model"] for each in found} == {"llama-2-13b"}
    assert len(found) == 2  # policies
    assert "the weights take 24.24 GiB of 21.29 GiB" in found[0]["why"]
    assert found[0]["fits_with"] == {"serving.weights": "int8"}
    assert not ran(run.parent / "told", "model=llama-2-13b", "serving.weights=int8").failures


def test_every_form_of_a_report_has_it(run: Path) -> None:
    report = read_report(run)
    assert report.table.state == "4 results"
    said = "Does not fit: llama-2-13b (would with serving.weights=int8)."
    assert said in report.sentences
    assert [each["point"] for each in report.record()["findings"]["does_not_fit"]] == [1, 3]
    with (run / SUMMARY).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["replications"] for row in rows] == ["2", "0", "2", "0"]
    assert rows[1]["does_not_fit"].startswith("mlu370-x4 is too small for llama-2-13b")
    assert rows[1]["fits_with"] == "serving.weights=int8"


def test_it_is_a_cell_beside_those_that_fit(tmp_path: Path) -> None:
    out = tmp_path / "run"
    devices = "axes.device=[mlu370-x4, a100-80gb]"
    ran(out, devices, "axes.serving.policy=[paged]", "compare=device", "model=llama-2-13b")
    report = read_report(out)
    grids = [each for each in report.section.walk() if isinstance(each, Grid)]
    cells = [row[1] for each in grids for row in each.rows if row[0] == "mlu370-x4"]
    assert "does not fit" in cells


def test_a_request_that_never_fits_is_one_too(tmp_path: Path) -> None:
    """Static gives each as many slots as the longest may take, which no card of these has."""
    rows = ["arrival_s,prompt_tokens,output_tokens", *(f"{i},{40 + i % 9},20" for i in range(120))]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    sets = [f"workload={tmp_path / 't.csv'}", "serving.kv_tokens=1024",
            "policy=[{name: static, reserve: max_model_len}, paged]"]  # fmt: skip
    done = ran(tmp_path / "run", *sets, "load=null")
    assert len(done.records) == 2 and not done.failures
    (found,) = done.misfits.points
    assert found.overrides["serving.policy"]["name"] == "static"


def test_where_none_fits_it_is_a_mistake_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="is too small for llama-2-13b"):
        ran(tmp_path / "run", "model=llama-2-13b")
    assert not (tmp_path / "run").exists()


def test_the_least_that_fits(tmp_path: Path) -> None:
    sets = ["rule=least", "axes.device_set.capacity=[14GiB, 20GiB, 24GiB]",
            "least={axis: device_set.capacity, metric: tpot_s.mean, at_most: 10}"]  # fmt: skip
    ran(tmp_path / "run", *sets)
    found = read_report(tmp_path / "run").findings.own[0]
    assert (found.value, list(found.known)) == ("20GiB", ["20GiB", "24GiB"])


def test_the_command_ends_with_0(tmp_path: Path) -> None:
    sets = [part for each in [*SETS, MODELS] for part in ("--set", each)]
    done = bankwise("run", "smoke", "--jobs", "1", *sets, cwd=tmp_path)
    assert done.returncode == 0 and "would with serving.weights=int8" in done.stdout
    assert "does not fit: static, llama-2-13b, and 1 more: mlu370-x4 is too small" in done.stderr
