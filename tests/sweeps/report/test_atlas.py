"""Does the atlas say what its cells say, and is what it measures what it states?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.specs.device import load_device
from sweeps.plan.atlas import COSTLY
from sweeps.plan.sweep import load_sweep
from sweeps.report.atlas_page import heat
from sweeps.report.contents import read_report
from sweeps.report.picture import pictures
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import RESULTS

SMALL = [
    "axes.device_set=[{memory: lpddr5-6400-x16, channels: 24, capacity: 4GiB},"
    " {memory: hbm2-2.0, channels: 10, capacity: 4GiB}]",
    "axes.device_set.interleave=[512B]", "axes.device_set.controller=[{}, {read_queue: 128}]",
    "axes.device_set.dma=[{engines: 32, descriptor_cost: 100ns}]",
    "axes.extent=[64B, 4KiB, 16KiB]", "measured=500ns", "replications=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("atlas") / "run"
    assert not run_sweep(
        load_sweep(RESULTS / "atlas.yaml", SMALL), out, False, 1, Progress(False)
    ).failures
    return out


def test_the_map_is_its_cells(directory: Path, tmp_path: Path) -> None:
    report = read_report(directory)
    atlas = report.found.own
    found, chart = atlas.cells, heat(atlas)
    assert len(found) == 12 and len(chart.rows()) == 6
    assert list(chart.cells) == ["lpddr5-6400-x16", "hbm2-2.0"]
    # as described is the first queue, and lies within what all of them reach
    described = [c.efficiency for c in found if c.row == "hbm2-2.0" and c.described]
    assert [spot.value for spot in chart.cells["hbm2-2.0"]] == described
    assert all(s.low <= s.value <= s.high for spots in chart.cells.values() for s in spots)
    # a descriptor for each 64 B costs much, against 16 KiB
    lost = {(c.row, c.extent): c.lost for c in found if c.described}
    assert lost["hbm2-2.0", 64] > COSTLY and lost["hbm2-2.0", 16384] == 0
    assert all(1 <= place <= 2 for places in chart.lines.values() for place in places)
    least = {each.row: (each.described, each.worst) for each in atlas.enough}
    assert least["hbm2-2.0"][0] in (4096, 16384) and least["lpddr5-6400-x16"][1] is not None
    picture = pictures(report)["atlas"]
    assert "4 KiB" in picture.save(tmp_path / "atlas.svg").read_text()
    assert (directory / "summary.csv").read_text().count("\n") == 13


def test_padding_is_held_against_what_it_gains(tmp_path: Path) -> None:
    settings = ["axes.device_set=[{memory: hbm3-6.4, channels: 6, capacity: 4GiB,"
                " dma.descriptor_cost: 0ns}]", "axes.align=[1B, 64B, 1KiB]",
                "axes.extent=[512B, 576B, 64KiB]", "measured=2us", "replications=1"]  # fmt: skip
    assert not run_sweep(
        load_sweep(RESULTS / "atlas-odd.yaml", settings), tmp_path / "r", False, 1, Progress(False)
    ).failures
    report = read_report(tmp_path / "r")
    found = {(each.extent, each.size): each for each in report.found.own.slots}
    assert {size for extent, size in found if extent == 576} == {576, 1024}  # 64 B divide 576
    assert found[576, 576].padding == 0 and found[576, 576].gained == 1
    assert found[576, 1024].padding == 1 - 576 / 1024
    assert found[512, 1024].gained < 0.8  # every other block, and so half of the pseudo-channels
    assert "What aligned slots cost and gain" in [grid.title for grid in report.grids]


def test_the_memories_of_the_atlas_have_one_peak() -> None:
    sweep = load_sweep(RESULTS / "atlas.yaml")
    for value in sweep.spec.axes["device_set"]:
        settings = [f"{key}={each}" for key, each in value.items()]
        assert load_device("mlu370-x4", settings).peak_gbps == pytest.approx(307.2, rel=0.05)
