"""Is the KV of an attention kernel read at the rate of its layout?"""

from __future__ import annotations

import pytest

from hwmodel.description.yaml_reader import loads
from hwmodel.specs.device import load_device
from policies.memory.attention_read import AttentionRead, attention_rate
from policies.memory.measured import MeasurementSpec
from policies.memory.measured_cells import ComparedCell, Quantity

SMALL = AttentionRead(sequences=8, tokens=2048, since=1024, kv_heads=2, head_dim=64, block=16)
TEXT = """kind: measurement
name: mine
summary: mine
sources: {here: a test}
device: mlu370-x4
tolerances: {some: {within: 10%, reason: any}}
cells:
  - {what: one, attention: {sequences: 8, tokens: 64, since: 32, kv_heads: 2, block: 16},
     source: here, confidence: A, prediction: 200GB/s, interval: [150GB/s, 250GB/s]}
"""


def test_a_share_is_of_the_two_rates() -> None:
    device = load_device("mlu370-x4")
    rates = [attention_rate(device, SMALL.model_copy(update={"block": n})) for n in (16, 0)]
    assert 0 < rates[0] < rates[1] < device.peak_gbps
    share = attention_rate(device, SMALL.model_copy(update={"against": 0}))
    assert share == pytest.approx(rates[0] / rates[1])


def test_a_prediction_waits_and_is_judged_by_its_interval() -> None:
    cell = loads(TEXT, "mine.yaml").build(MeasurementSpec).cells[0]
    assert ComparedCell(cell, 100.0, 50.0).verdict == "open"
    assert cell.stated == Quantity(200, "GB/s")
    for measured, verdict in ((160.0, "within"), (149.0, "refuted"), (251.0, "refuted")):
        known = cell.model_copy(update={"measured": Quantity(measured, "GB/s")})
        assert ComparedCell(known, 1.0, 50.0).verdict == verdict
