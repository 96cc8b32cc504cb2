"""Does a run take names to filter by, say early what it finds, and complete in a shell?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.plan.narrowed import load_narrowed
from tests.sweeps.cli.test_command_line import ROOT, bankwise

SMALL = ("--set", "requests=20", "--jobs", "1")


@pytest.mark.long
def test_only_keeps_the_values_that_are_named(tmp_path: Path) -> None:
    done = bankwise("run", "smoke", "--only", "paged", *SMALL, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["overrides"] for line in lines] == [{"serving.policy": "paged"}] * 2
    assert "one replication of smoke: paged " in done.stderr
    again = bankwise("run", "smoke", "--only", "paged", *SMALL, "--out", "run", "--resume",
                     cwd=tmp_path)  # fmt: skip
    assert again.returncode == 0 and "one replication" not in again.stderr


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("memory mlu370-x", "mlu370-x4"),
        pytest.param("run quickst", "quickstart", marks=pytest.mark.long),
        pytest.param("expl", "explain", marks=pytest.mark.long),
        pytest.param("fit rtx-4090 llama-3.1", "llama-3.1-8b", marks=pytest.mark.long),
        pytest.param("size --workload share", "sharegpt", marks=pytest.mark.long),
    ],
)
def test_a_shell_completes_commands_and_names(words: str, known: str) -> None:
    told = {"_BANKWISE_COMPLETE": "complete_bash", "COMP_WORDS": f"bankwise {words}",
            "COMP_CWORD": str(len(words.split()))}  # fmt: skip
    code = "import sys; sys.argv[0] = 'bankwise'; from sweeps.cli.main import main; main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **told}, cwd=ROOT,
        capture_output=True, text=True,
    )  # fmt: skip
    assert known in done.stdout.split(), done


@pytest.mark.parametrize(
    ("only", "cases", "competitors"),
    [
        (["l4", "paged"], ["l4, llama-3.1-8b fp8"], 1),
        (["l4", "llama-3.1-8b fp8"], ["l4, llama-3.1-8b fp8"], 4),
        (["odma"], 31, 1),
    ],
)
def test_cases_are_named_as_values_are(
    only: list[str], cases: list[str] | int, competitors: int
) -> None:
    sweep = load_narrowed("library", [], only)
    found = list(sweep.spec.with_role("case"))
    assert found == cases or len(found) == cases
    assert len(sweep.spec.competitors) == competitors
    assert "oracle" in sweep.spec.variants
