"""Does `bankwise size --device` say what it will try, and answer mistakes in a line?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise, refusal

SHARED = ("--workload", "sharegpt", "--slo", "ttft=2s,tpot=50ms")
PAIR = ("size", "--device", "rtx-4090", "--model", "llama-3.1-8b")


def test_a_dry_run_says_what_is_tried_and_how_long_it_takes(tmp_path: Path) -> None:
    done = bankwise(*PAIR, *SHARED, "--only", "kv,chunk", "--requests", "20", "--dry-run",
                    cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("at most 45 goodputs, ")
    assert re.search(r", (less than a|about \d+\.\d) CPU minutes?; tried: ", done.stderr)
    assert "kv fp8_e4m3, chunk 512, chunk 1024, chunk 4096, chunk 8192" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*PAIR, *SHARED[:3], "ttft=2s,tpt=50ms"], "--slo: tpt: unknown key; did you mean 'tpot'?"),
        ([*PAIR, *SHARED, "--only", "blok"], "--only: no 'blok'; did you mean 'block'?"),
        (
            ["size", "--device", "rtx-4090", "--model", "qwen3-32b", *SHARED],
            "it fits with --weights w4a16",
        ),
        ([*PAIR, *SHARED, "--vary", "l4"], "--vary: does not go with --device"),
        ([*PAIR, *SHARED, "--rate", "2"], "--rate: does not go with --device"),
        ([*PAIR, *SHARED[:2]], "--device: needs --slo"),
        (["size", *PAIR[3:], *SHARED, "--only", "kv"], "--only: needs --device"),
        ([*PAIR, *SHARED, "--fidelity", "exact"], "expected sampled or analytic; got 'exact'"),
    ],
)
def test_a_mistake_is_answered_in_a_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    assert why in refusal(*arguments, cwd=tmp_path)
