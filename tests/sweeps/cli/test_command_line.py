"""Does the command line answer as the contract says, as a user types it?"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from sweeps.cli.main import main
from tests.sweeps.made import made

ROOT = Path(__file__).resolve().parents[3]
SWEEP = (ROOT / "yaml/sweeps/smoke.yaml").read_text()
MEMORY = (ROOT / "yaml/memories/lpddr5-6400-x16.yaml").read_text()
HEAVY = ("numpy", "numba", "optuna", "pydantic", "yaml", "rich")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def bankwise(*arguments: str | Path, cwd: str | Path = ".") -> Done:
    """Run the command in `cwd`; whatever happens, it leaves by SystemExit, not by a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main([str(argument) for argument in arguments])
    code = left.value.code
    assert code is None or isinstance(code, int)
    return Done(code or 0, out.getvalue(), err.getvalue())


def refusal(*arguments: str | Path, cwd: Path) -> str:
    """The one line that refuses the user's input."""
    done = bankwise(*arguments, cwd=cwd)
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom sweeps.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


VERBS = {
    "Ask": "fit size transfer",
    "Describe": "list new check",
    "Run": "run memory replay",
    "Look": "report explain compare",
    "Trust": "validate calibrate audit export",
}


def test_help_fits_a_screen_and_names_every_verb_beside_what_it_is_for(tmp_path: Path) -> None:
    done = bankwise("--help", cwd=tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80 and "..." not in "".join(lines[1:])
    listed: dict[str, list[str]] = {}
    for line in lines:
        if row := re.match(r"(\w+ +|          )([a-z]+)  +[A-Z]", line):
            if row[1].strip():
                found = listed.setdefault(row[1].strip(), [])
            found.append(row[2])
    assert {title: " ".join(names) for title, names in listed.items()} == VERBS


def test_a_device_says_what_can_be_asked_of_it(tmp_path: Path) -> None:
    for name, first in {"mlu370-x4": "fit", "lpddr5-6400-x16": "memory", "l4": "fit"}.items():
        done = bankwise(name, cwd=tmp_path)
        asked = re.findall(r"^  bankwise (\w+) .*$", done.stdout, re.MULTILINE)
        assert done.returncode == 0 and asked[0] == first and 3 <= len(asked) <= 4
        assert name in done.stdout.splitlines()[0]
    (tmp_path / "mine.yaml").write_text(MEMORY)
    assert "bankwise memory mine.yaml" in bankwise("mine.yaml", cwd=tmp_path).stdout


def test_what_ships_is_listed_by_kind(tmp_path: Path) -> None:
    every = json.loads(bankwise("list", "--json", cwd=tmp_path).stdout)
    kinds = ("formats", "links", "workloads", "allocators", "predictors", "sweeps")
    for kind in kinds:
        found = json.loads(bankwise("list", kind, "--json", cwd=tmp_path).stdout)[kind]
        assert [each["name"] for each in found] == every[kind]
        assert all(each["kind"] and each["summary"] for each in found)
    assert "nvme-4x" in bankwise("list", "links", cwd=tmp_path).stdout
    assert "quickstart" in bankwise("list", cwd=tmp_path).stdout


def test_a_memory_is_another_one_at_a_rate_and_a_density(tmp_path: Path) -> None:
    asked = ("new", "memory", "mine", "--like", "lpddr5-6400-x16")
    done = bankwise(*asked, "--rate", "5500MT/s", "--density", "16Gb", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "  11 GB/s and 2 GiB a channel"
    assert bankwise("check", "mine.yaml", cwd=tmp_path).returncode == 0
    assert "exists" in refusal(*asked, "--rate", "5500MT/s", cwd=tmp_path)


def test_version(tmp_path: Path) -> None:
    assert bankwise("--version", cwd=tmp_path).stdout.startswith("bankwise ")


def test_devices_lists_peaks_capacities_and_bounds(tmp_path: Path) -> None:
    done = bankwise("list", "devices", "--json", cwd=tmp_path)
    found = {device["name"]: device for device in json.loads(done.stdout)["devices"]}
    mlu = found["mlu370-x4"]
    assert (mlu["kind"], mlu["channels"]) == ("accelerator", 24)
    assert mlu["peak_gbps"] == pytest.approx(307.2)
    assert mlu["capacity_bytes"] == 24 * 2**30
    assert mlu["bounds"]["sequential"]["gbps"] == pytest.approx(307.2)
    assert found["a100-80gb"]["peak_gbps"] == pytest.approx(2039, rel=1e-4)
    assert found["lpddr5-6400-x16"]["peak_gbps"] == pytest.approx(12.8)


def test_set_changes_what_devices_says(tmp_path: Path) -> None:
    def random(*arguments: str) -> float:
        asked = ("list", "devices", "lpddr5-6400-x16", "--json")
        (found,) = json.loads(bankwise(*asked, *arguments, cwd=tmp_path).stdout)["devices"]
        return float(found["bounds"]["random_1_burst"]["gbps"])

    assert random("--set", "timing.tRRD=16nCK") < random()


@pytest.mark.long
def test_check_finds_no_mistake_in_what_ships(tmp_path: Path) -> None:
    done = bankwise("check", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(list((ROOT / "yaml").rglob("*.yaml")))


@pytest.mark.parametrize(
    "target", ["mlu370-x4", "hbm2-2.0", "llama-2-7b", str(ROOT / "yaml/models")]
)
def test_check_takes_names_and_folders(target: str, tmp_path: Path) -> None:
    assert bankwise("check", target, cwd=tmp_path).returncode == 0


def test_check_reports_every_bad_file_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: memry\n")
    (tmp_path / "b.yaml").write_text(SWEEP)
    (tmp_path / "c.yaml").write_text(SWEEP.replace("requests: 100", "requests: 0"))
    done = bankwise("check", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "a.yaml:1: kind: unknown kind 'memry'; did you mean 'memory'?" in done.stderr
    assert "c.yaml:13: requests:" in done.stderr
    assert "b.yaml: sweep, no mistakes" in done.stdout


def test_run_and_report_print_sentences_and_a_table(tmp_path: Path) -> None:
    done = bankwise("run", "smoke", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("smoke: ")
    shown = bankwise("report", "runs/smoke-1", "--html", "all.html", cwd=tmp_path)
    assert shown.returncode == 0
    for heading in ("TTFT", "TPOT", "utilisation", "preemptions", "limit"):
        assert heading in shown.stdout
    assert "row hits" not in shown.stdout  # nothing is simulated here: a column that nobody has
    assert done.stdout.splitlines()[0] in shown.stdout
    assert (tmp_path / "runs/smoke-1/report.md").is_file()
    assert "<html" in (tmp_path / "all.html").read_text()


def test_a_dry_run_says_how_long_a_run_would_take_and_writes_nothing(tmp_path: Path) -> None:
    done = bankwise("run", "smoke", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
    assert done.stdout.startswith("2 points, 4 results, less than a CPU minute, by 2 of them")


def test_does_a_command_finish_whose_reader_leaves(tmp_path: Path) -> None:
    made(tmp_path / "runs/made-1")
    command = f"'{sys.executable}' -m sweeps.cli.main report made | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "runs/made-1/report.html").is_file()
    assert (tmp_path / "runs/made-1/report.md").is_file()


def test_is_the_last_run_of_a_name_reported_and_compared(tmp_path: Path) -> None:
    made(tmp_path / "runs/made-1", odma=140)
    made(tmp_path / "runs/made-2")
    assert "wrote runs/made-2/report.html" in bankwise("report", "made", cwd=tmp_path).stdout
    assert not (tmp_path / "runs/made-1/report.html").exists()
    assert "bit for bit" in bankwise("compare", "made", "runs/made-2", cwd=tmp_path).stdout


def test_report_and_compare_as_json_markdown_and_pages(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b", odma=156)
    told = json.loads(bankwise("report", "a", "b", "--json", cwd=tmp_path).stdout)
    assert [run["run"] for run in told["runs"]] == ["a", "b"]
    assert told["runs"][0]["groups"][0]["best"] == "odma"
    assert told["comparisons"][0]["points"][0]["metrics"][0]["metric"] == "output_tokens_per_s"
    assert not (tmp_path / "a/report.html").exists()
    done = bankwise("report", "a", "b", "--markdown", "all.md", "--html", "all.html", cwd=tmp_path)
    assert done.stdout.endswith("wrote all.html\nwrote all.md\n")
    assert (tmp_path / "all.md").read_text().startswith("# a against b\n")
    done = bankwise("compare", "a", "b", cwd=tmp_path)
    assert done.returncode == 0
    assert " ".join(done.stdout.split()).endswith(
        "Output tokens/s change significantly in 4 of 8 points, the most in card, odma: +20 % (95 %"
        " CI 20 to 20)."
    )
    told = json.loads(bankwise("compare", "a", "b", "--json", cwd=tmp_path).stdout)
    assert told["inputs"] == [] and len(told["points"]) == 8
