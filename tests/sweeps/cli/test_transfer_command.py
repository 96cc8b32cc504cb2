"""`bankwise transfer` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise


def test_block_tables_of_a_real_server_are_a_source(tmp_path: Path) -> None:
    log = Path(__file__).parents[3] / "docs" / "block-tables.jsonl"
    asked = ("--model", "qwen3-8b", "--tokens", "700", "--tables", log, "--json")
    found = json.loads(bankwise("transfer", "nvme-pcie4", *asked, cwd=tmp_path).stdout)
    assert found["cases"]["neighbours merged"]["runs"] > 20
