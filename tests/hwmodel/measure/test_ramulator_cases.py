"""The cases measured with Ramulator 2.1, on the memories that copy its setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.replay import figures
from hwmodel.specs.device import load_device
from tools.peers.streams import pcg

REFERENCE = Path(__file__).parents[2] / "reference"
CASES = json.loads((REFERENCE / "ramulator21.json").read_text())
MEMORIES = {
    "LPDDR5": "ramulator-lpddr5-6400-x16",
    "HBM2": "ramulator-hbm2-2.0",
    "HBM3": "ramulator-hbm3-6.4",
}
MAPPING = "bank_group_interleaved"
"""The address map that these memories have."""


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['memory']}-{c['stream']}-{c['refresh']}")
def test_bandwidth_and_row_hits_agree_with_ramulator(case: dict[str, Any]) -> None:
    assert case["mapping"] == MAPPING
    settings = [f"controller.{key}={case[key]}" for key in ("refresh", "read_queue", "write_queue")]
    device = load_device(MEMORIES[case["memory"]], settings)
    run = OpenLoop(device.memory)
    run.feed(0, *pcg(case["stream"]))
    run.finish()
    found = figures(device, run, 1, case["stream"])
    assert found["requests"] == case["requests"]
    assert found["utilization"] == pytest.approx(case["utilization"], rel=0.01)
    assert found["row_hits"] == pytest.approx(case["hits"], rel=0.01)
