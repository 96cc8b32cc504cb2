"""`bankwise transfer` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise

ASKED = ("transfer", "pcie5-h100-single", "--model", "qwen3-0.6b", "--tokens", "1008")


def test_a_transfer_and_what_would_help(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--json", cwd=tmp_path).stdout)["cases"]
    assert {name: case["descriptors"] for name, case in found.items()} == {
        "as described": 28 * 2 * 63,
        "neighbours merged": 28 * 2 * 63,
        "blocks in order, merged": 28 * 2,
        "all layers of a block together": 63,
    }
    assert found["as described"]["limited_by"] == "posting"
    assert "blocks in order, merged" in bankwise(*ASKED, cwd=tmp_path).stdout


def test_block_tables_of_a_real_server_are_a_source(tmp_path: Path) -> None:
    log = Path(__file__).parents[3] / "docs" / "block-tables.jsonl"
    asked = ("--model", "qwen3-8b", "--tokens", "700", "--tables", log, "--json")
    found = json.loads(bankwise("transfer", "nvme-pcie4", *asked, cwd=tmp_path).stdout)
    assert found["cases"]["neighbours merged"]["runs"] > 20
