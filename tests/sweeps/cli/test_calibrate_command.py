"""Does `bankwise calibrate` answer mistakes in a line, and write what it found?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.ask.test_calibrate import SHARED, made
from tests.sweeps.cli.test_command_line import bankwise, refusal

PAIR = ("--device", "rtx-4090", "--model", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["absent.jsonl"], "absent.jsonl: no such file, or described server"),
        (["log.jsonl"], "a log needs --device, which it does not name"),
        (["log.jsonl", *PAIR, "--part", "2"], "--part: expected 0.9 at most; got '2'"),
        (["log.jsonl", *PAIR], "log.jsonl"),
        (["vllm-gb200-watermark"], "has no log to calibrate on"),
        (["vllm-gb200-watermark", *PAIR], "its description says what it ran"),
    ],
)
def test_a_mistake_is_answered_in_a_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    assert why in refusal("calibrate", *arguments, cwd=tmp_path)


def test_a_log_becomes_a_server(tmp_path: Path) -> None:
    made(tmp_path, "given.efficiency=0.7", count=60)
    sets = [part for each in SHARED for part in ("--set", each)]
    done = bankwise("calibrate", "log.jsonl", *PAIR, *sets, "--out", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0 and "efficiency of memory" in done.stdout
    assert "In other commands: --set given.efficiency=0.7" in done.stdout
    assert "log-calibrated" in (tmp_path / "mine.yaml").read_text()
