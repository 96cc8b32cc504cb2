"""Studies for tests: `quick`'s objective with less of everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sweeps.run.progress import Progress
from sweeps.study.search import run_study
from sweeps.study.study_run import StudyRun, Workers
from sweeps.study.study_spec import Study, load_study

ROOT = Path(__file__).resolve().parents[3]
TINY = [
    "trials=10", "batch=4", "warmup_requests=60", "requests=40", "policy.window=60",
    "policy.refresh=20",
]  # fmt: skip
BARE = [*TINY, "finale=null", "memory=table"]
SHORT = [*TINY[1:], "memory=table"]
"""With a finale; `trials` is given beside it."""
QUIET = Progress(terminal=False)


def tiny(*sets: str) -> Study:
    return load_study("quick", [*BARE, *sets])


def run(
    study: Study, out: Path, resume: bool = False, jobs: int = 1, cluster: str | None = None
) -> StudyRun:
    return run_study(study, out, resume, Workers(jobs, cluster), QUIET)


def results(out: Path) -> list[dict[str, Any]]:
    """Lines of results.jsonl without wall times."""
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "wall_s"} for line in lines]


def start(out: Path, *arguments: str, sets: list[str] = BARE) -> subprocess.Popen[str]:
    """A real `bankwise run quick`, in a process group of its own."""
    given = [part for assignment in sets for part in ("--set", assignment)]
    command = [sys.executable, "-m", "sweeps.cli.main", "run", "quick", "--out", str(out), *given]
    return subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
