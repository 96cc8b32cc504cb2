"""Does an estimate of a long run stay short?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwmodel.description.yaml_writer import to_yaml
from sweeps.plan.sweep import load_sweep
from sweeps.run import dry_run
from tests.sweeps.cli.test_command_line import bankwise, refusal


def test_where_one_point_takes_long_no_other_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = load_sweep("smoke", ["requests=20", "warmup_requests=10"])
    assert dry_run.dry_run(sweep).timed == 2
    monkeypatch.setattr(dry_run, "ENOUGH_S", -1.0)
    assert dry_run.dry_run(sweep).timed == 1


def test_a_dry_run_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    """Here that no point fits its device."""
    axes = {"serving.policy": ["paged"]}
    config = {"kind": "sweep", "name": "mine", "summary": "Mine.", "axes": axes,
              "compare": "serving.policy",
              "base": {"device": "mlu370-x4", "model": "llama-3.3-70b", "workload": "alpaca",
                       "warmup_requests": 1, "requests": 5, "replications": 1}}  # fmt: skip
    (tmp_path / "mine.yaml").write_text(to_yaml(config))
    for words in (["--dry-run"], ["--out", "run"]):
        text = refusal("run", "mine.yaml", *words, cwd=tmp_path)
        assert text.startswith("mine.yaml: mlu370-x4 is too small")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_study_says_how_long_it_takes_and_writes_nothing(tmp_path: Path) -> None:
    done = bankwise("run", "quick", "--dry-run", "--set", "requests=20", cwd=tmp_path)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
    said = (
        r"24 trials of 1 replication, a finale of 12 results, (less than a|about \d\.\d) CPU minute"
    )
    assert re.match(said, done.stdout)
