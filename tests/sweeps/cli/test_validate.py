"""What does `bankwise validate` print, and how does it end?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise

FILE = """kind: measurement
name: mine
summary: one channel
sources: {s: somewhere}
device: hbm2-2.0
tolerances: {near: {within: 3%, reason: assumed}}
cells:
  - {what: near, bandwidth: {size: 1KiB}, measured: 15.9GB/s, tolerance: near, source: s,
     confidence: A, agrees: true}
  - {what: far, bandwidth: {size: 1KiB}, measured: 20GB/s, tolerance: near, source: s,
     confidence: B, prediction: 16GB/s, cause: there is no such channel}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(FILE)
    return file


def test_the_table_has_verdicts_and_causes(mine: Path) -> None:
    one_group = ["--set", "address_map=[column:5, row, bank:2, bankgroup:2, pseudochannel:1]",
                 "--set", "controller.refresh=none", "--set", "bank_hash=[]"]  # fmt: skip
    code, out, _ = bankwise("validate", str(mine), *one_group)
    assert (code, "LOST" in out) == (1, True)
    groups = ["--set", "address_map=[bankgroup:2, column:5, bank:2, row, pseudochannel:1]"]
    code, out, _ = bankwise("validate", str(mine), *groups, *one_group[2:])
    assert code == 0 and "2 cells: 1 within, 1 refuted" in out
    assert "cause: far: there is no such channel" in out


def test_candidates_keep_their_settings_and_on_demand_their_figures(mine: Path) -> None:
    mine.write_text(
        FILE.replace("tolerances:", "candidates: {slow: {clock.tCK: 2ns}}\ntolerances:")
    )
    _, out, _ = bankwise("validate", str(mine), "--json")
    assert json.loads(out)[0]["candidates"] == {"slow": {"set": {"clock.tCK": "2ns"}}}
    _, out, _ = bankwise("validate", str(mine), "--json", "--candidates")
    found = json.loads(out)[0]
    slow, shipped = found["candidates"]["slow"]["cells"][0], found["cells"][0]
    assert slow["model"] < 0.6 * shipped["model"]
    code, out, _ = bankwise("validate", str(mine), "--candidates")
    assert code == 1 and "mine: candidates" in out and "slow" in out
