"""`bankwise transfer pause` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise

ASKED = (
    "transfer", "pause", "pcie4-a30-batched", "--device", "a100-80gb", "--model", "llama-2-7b",
)  # fmt: skip


def test_waste_by_pause(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--seconds", "0.01,100", "--json", cwd=tmp_path).stdout)
    assert [pause["least"] for pause in found["pauses"]] == ["keep", "swap"]
    hidden = found["hidden_tokens_a_step"]
    assert 0 < hidden["as it lies"] <= hidden["whole blocks"]
    assert "Keeping wastes as much as dropping at" in bankwise(*ASKED, cwd=tmp_path).stdout
