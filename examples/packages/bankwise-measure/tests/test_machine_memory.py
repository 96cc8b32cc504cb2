"""Do the files of a measured machine say what was measured, and compare as others do?"""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from bankwise_measure.access_points import AccessPoint
from bankwise_measure.machine import Machine
from bankwise_measure.machine_memory import (
    block_ratios,
    device_to_compare,
    measurements,
    overlay,
    write,
)
from bankwise_measure.median import Median, median
from bankwise_measure.rounds import Benchmark, Effort, Measured, MeasuredLatency

import yaml
from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from policies.memory.measured import load_measurements
from sweeps.ask import validation

DATE = datetime.date(2026, 11, 23)
MACHINE = Machine("A CPU", (0, 1), 1 << 20, "powersave", False, None, None)


def measured(point: AccessPoint, gbps: float, half: float | None = None) -> Measured:
    middle = Median(gbps, 0.96 * gbps, 1.04 * gbps, 12)
    return Measured(point, middle, half and Median(half, half, half, 6), (gbps, 2 * gbps))


def benchmark(gbps: float = 200.0) -> Benchmark:
    """In order at the memory's limit, random extents at that of the threads."""
    found = (
        measured(AccessPoint("walk", 4096), gbps, gbps),
        measured(AccessPoint("random", 64), 10.0, 5.0),
        measured(AccessPoint("blocks", 4096), 60.0, 60.0),
        measured(AccessPoint("run", 4096), 120.0, 120.0),
    )
    latency = MeasuredLatency(4 << 20, Median(100.0, 92.0, 108.0, 12))
    return Benchmark(MACHINE, 2, 16 << 20, 0.5, Effort((), 12, 0.05), found, (latency,))


def test_measurements_are_read_back_by_validate(tmp_path: Path) -> None:
    device = device_to_compare("mlu370-x4")
    files = write(tmp_path, benchmark(), device, "mlu370-x4")
    spec = load_measurements(str(files[0]))
    assert spec.device == "mlu370-x4"
    assert [str(cell.measured) for cell in spec.cells][:2] == ["200 GB/s", "10 GB/s"]
    assert [cell.stands for cell in spec.cells][:2] == ["measured", "lower_limit"]
    assert [cell.tolerance for cell in spec.cells][-2:] == ["spread 5", "spread 10"]
    assert all(cell.confidence == "A" for cell in spec.cells)
    found = validation.compared(spec)
    assert [item.cell.kind for item in found] == ["bandwidth"] * 4 + ["latency"]


def test_a_machine_that_others_use_gives_lower_limits() -> None:
    shared = replace(benchmark(), machine=replace(MACHINE, virtual=True, load=3.0))
    told = measurements(shared, "", DATE)
    assert {cell["stands"] for cell in told["cells"]} == {"lower_limit"}
    assert {cell["confidence"] for cell in told["cells"]} == {"C"}
    assert told["sources"]["measured"].endswith("; others ran, load 3")


def test_measurements_of_no_named_device_are_compared_with_one_that_is(tmp_path: Path) -> None:
    file = str(write(tmp_path, benchmark(), None, "")[0])
    with pytest.raises(DescriptionError, match="--device names what to compare with"):
        load_measurements(file)
    assert load_measurements(file, "mlu370-x4").device == "mlu370-x4"


def test_the_overlay_reads_in_order_as_fast_as_was_measured(tmp_path: Path) -> None:
    device = load_device("mlu370-x4")
    files = write(tmp_path, benchmark(), device, "mlu370-x4")
    found = load_device(str(files[1]))
    in_order = AccessPoint("walk", 4096)
    spec = load_measurements(str(files[0]), str(files[1]))
    cells = [cell for cell in spec.cells if cell.what == in_order.name]
    reached = validation.compared(spec.model_copy(update={"cells": cells}))[0].model
    assert reached == pytest.approx(200, rel=1e-3)
    ends = [found.plausible[f"{end} measured"].overrides for end in ("lower", "upper")]
    assert [round(each[0][1] / found.derate, 2) for each in ends] == [0.96, 1.04]


def test_the_overlay_of_a_given_memory_has_its_efficiency(tmp_path: Path) -> None:
    told = overlay(benchmark(), load_device("l4"), "l4", DATE)
    assert told["given"]["efficiency"]["value"] == pytest.approx(200 / 300, abs=1e-4)
    (tmp_path / "l4.yaml").write_text(yaml.safe_dump(told))
    assert load_device(str(tmp_path / "l4.yaml")).given is not None


def test_a_device_slower_than_what_was_measured_is_another_memory() -> None:
    with pytest.raises(DescriptionError, match="it is not this memory, or its rate is too low"):
        overlay(benchmark(400.0), load_device("mlu370-x4"), "mlu370-x4", DATE)


def test_a_channel_is_no_machine() -> None:
    with pytest.raises(DescriptionError, match="one channel of a memory"):
        device_to_compare("ddr5-4800-x32")


def test_blocks_and_runs_are_paired_by_round() -> None:
    pairs = dict(block_ratios(benchmark()))
    assert pairs == {4096: median([0.5, 0.5])}
