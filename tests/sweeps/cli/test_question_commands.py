"""Do questions answer as a user types them, and write the files that are asked for?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.sweeps.ask.test_calibrate import SHARED, made
from tests.sweeps.cli.test_command_line import bankwise

SETS = " ".join(f"--set {each}" for each in SHARED)
CARD = "--model llama-3.1-8b"
TUNED = "--workload sharegpt --slo ttft=2s,tpot=50ms --only kv,chunk --requests 20 --dry-run"


@pytest.mark.parametrize(
    ("words", "told", "file", "holds"),
    [
        (
            "fit mlu370-x4 --weights w4a16 --save b.html", ["qwen2.5-32b", "fits with --cards"],
            "b.html", "Capacity against what models need",
        ),
        (
            f"calibrate log.jsonl --device rtx-4090 {CARD} {SETS} --out mine.yaml",
            ["efficiency of memory", "In other commands: --set given.efficiency=0.7"],
            "mine.yaml", "log-calibrated",
        ),
        (
            f"size settings rtx-4090 {CARD} {TUNED}",
            ["^at most 45 goodputs, ", r", (less than a|about \d+\.\d) CPU minutes?; tried: ",
             "kv fp8_e4m3, chunk 512, chunk 1024, chunk 4096, chunk 8192"], "", "",
        ),
    ],
)  # fmt: skip
def test_a_question_is_answered_and_its_file_written(
    words: str, told: list[str], file: str, holds: str, tmp_path: Path
) -> None:
    if words.startswith("calibrate"):
        made(tmp_path, "given.efficiency=0.7", count=60)
    done = bankwise(*words.split(), cwd=tmp_path)
    assert done.returncode == 0 and (file or not done.stderr)
    assert all(re.search(each, " ".join(done.stdout.split())) for each in told)
    assert not file or holds in (tmp_path / file).read_text()


def test_block_tables_of_a_real_server_are_a_source_of_transfers(tmp_path: Path) -> None:
    log = Path(__file__).parents[3] / "docs" / "block-tables.jsonl"
    asked = ("--model", "qwen3-8b", "--tokens", "700", "--tables", log, "--json")
    found = json.loads(bankwise("transfer", "nvme-pcie4", *asked, cwd=tmp_path).stdout)
    assert found["cases"]["neighbours merged"]["runs"] > 20
