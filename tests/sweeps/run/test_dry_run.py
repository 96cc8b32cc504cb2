"""Does an estimate of a long run stay short?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweeps.plan.sweep import load_sweep
from sweeps.run import dry_run
from tests.sweeps.cli.test_command_line import bankwise


def test_where_one_point_takes_long_no_other_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = load_sweep("smoke", ["requests=20", "warmup_requests=10"])
    assert dry_run.dry_run(sweep).timed == 2
    monkeypatch.setattr(dry_run, "ENOUGH_S", -1.0)
    assert dry_run.dry_run(sweep).timed == 1


def test_a_study_says_how_long_it_takes_and_writes_nothing(tmp_path: Path) -> None:
    done = bankwise("run", "quick", "--dry-run", "--set", "requests=20", cwd=tmp_path)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
    said = (
        r"24 trials of 1 replication, a finale of 12 results, (less than a|about \d\.\d) CPU minute"
    )
    assert re.match(said, done.stdout)
