"""Does `bankwise calibrate` answer mistakes in a line, and write what it found?"""

from __future__ import annotations

from pathlib import Path

from tests.sweeps.ask.test_calibrate import SHARED, made
from tests.sweeps.cli.test_command_line import bankwise

PAIR = ("--device", "rtx-4090", "--model", "llama-3.1-8b")


def test_a_log_becomes_a_server(tmp_path: Path) -> None:
    made(tmp_path, "given.efficiency=0.7", count=60)
    sets = [part for each in SHARED for part in ("--set", each)]
    done = bankwise("calibrate", "log.jsonl", *PAIR, *sets, "--out", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0 and "efficiency of memory" in done.stdout
    assert "In other commands: --set given.efficiency=0.7" in done.stdout
    assert "log-calibrated" in (tmp_path / "mine.yaml").read_text()
