"""The cases measured with Ramulator 2.1, on the memories that copy its setting.

The cases and the stream maker are third-party material beside the clone; without them the tests
skip.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.replay import figures
from hwmodel.specs.device import load_device

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference"
CASES = REFERENCE / "ramulator21_cases.json"
MEMORIES = {
    "LPDDR5": "ramulator-lpddr5-6400-x16",
    "HBM2": "ramulator-hbm2-2.0",
    "HBM3": "ramulator-hbm3-6.4",
}
MAPPING = "bank_group_interleaved"
"""The address map that these memories have."""


def cases() -> list[Any]:
    if not CASES.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason="../shared/reference is absent"))]
    found = json.loads(CASES.read_text())
    return [
        pytest.param(case, id=f"{case['memory']}-{case['stream']}-{case['refresh']}")
        for case in found
    ]


def stream(name: str) -> tuple[np.ndarray, np.ndarray]:
    spec = importlib.util.spec_from_file_location("streams", REFERENCE / "streams.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    address, write = module.pcg(name)
    return address.astype(np.int64), write.astype(np.int64)


@pytest.mark.parametrize("case", cases())
def test_bandwidth_and_row_hits_agree_with_ramulator(case: dict[str, Any]) -> None:
    assert case["mapping"] == MAPPING
    settings = [f"controller.{key}={case[key]}" for key in ("refresh", "read_queue", "write_queue")]
    device = load_device(MEMORIES[case["memory"]], settings)
    run = OpenLoop(device.memory)
    run.feed(0, *stream(case["stream"]))
    run.finish()
    found = figures(device, run, 1, case["stream"])
    assert found["requests"] == case["requests"]
    assert found["utilization"] == pytest.approx(case["utilization"], rel=0.01)
    assert found["row_hits"] == pytest.approx(case["hits"], rel=0.01)
