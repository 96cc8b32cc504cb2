"""`bankwise transfer restore` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise

SHARED = ("transfer", "restore", "--model", "llama-2-7b", "--device", "a100-80gb")
ASKED = (*SHARED, "nvme-pcie4")


def test_ways_by_context(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--json", cwd=tmp_path).stdout)
    assert [each["tokens"] for each in found["contexts"]] == [1024, 4096]  # as far as they fit
    ways = found["contexts"][1]["ways"]
    assert list(ways) == ["recompute", "fetch KV", "fetch KV, whole blocks", "HCache"]
    assert found["contexts"][1]["fastest"] == min(ways, key=lambda name: ways[name]["ms"])
    assert found["hidden_over_kv_bytes"] == 0.5
    shown = bankwise(*ASKED, cwd=tmp_path).stdout
    assert "states have 0.5 of KV's bytes" in shown and "HCache *" in shown
