"""Does `bankwise measure` refuse what it cannot do, and write what it found?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bankwise_measure import cpu_benchmark, rounds

from tests.sweeps.cli.test_command_line import bankwise, refusal


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--threads", "4096"], "a core each; got 4096"),
        (["--device", "ddr5-4800-x32"], "is one channel of a memory"),
        (["--device", "mlu370"], "did you mean 'mlu370-x4'?"),
        (["--gpu", "--threads", "2"], "--threads: of CPUs; a GPU is filled"),
        (["--out", "/proc"], "--out /proc: exists and is not empty; name another folder"),
        (["--out", "/proc/mine"], "/proc/mine: No such file or directory"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_measured(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    assert said in refusal("measure", *arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_measured_is_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = rounds.effort(quick=True).points
    short = rounds.Effort((points[0], *points[-2:]), 2, 1e-4)
    monkeypatch.setattr(rounds, "effort", lambda quick: short)
    monkeypatch.setattr(cpu_benchmark, "buffer_size", lambda machine: 4 << 20)
    done = bankwise("measure", "--threads", "1", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == "wrote measured/measurements.yaml\n"
    first = told["bandwidth"][0]
    assert first["pattern"] == "reads in order" and first["threads_bind"]
    assert len(told["blocks_over_run"]) == 1
    shown = bankwise("measure", "--threads", "1", "--out", "again", cwd=tmp_path)
    assert "reads in order" in shown.stdout and "NVIDIA GPUs: --gpu" in shown.stdout
    text = refusal("validate", "again/measurements.yaml", cwd=tmp_path)
    assert text.endswith("device: names none; --device names what to compare with")
