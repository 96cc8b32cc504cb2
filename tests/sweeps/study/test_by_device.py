"""Is a study run device by device, with a model that fits, and told in one table?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from sweeps.analyse.statistics import Interval
from sweeps.cli.run_command import own_devices
from sweeps.report.chart import Bars, Spans
from sweeps.report.device_sheet import sheet
from sweeps.report.section import Grid, Say
from sweeps.study.by_device import DeviceFound, assignments, by_setting
from sweeps.study.study_spec import load_study
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.study.studies import TINY

SETS = [part for item in TINY if "trials" not in item for part in ("--set", item)]
GAP = Interval(0.19, 0.1, 0.3, 5)


def test_no_sweep_has_the_name_of_a_study() -> None:
    assert not {*names("sweeps")} & {*names("studies")}


@pytest.mark.parametrize(
    ("device", "overrides", "made"),
    [
        ("mlu370-x4", [], []),
        ("l4", [], ["serving.memory.fidelity=analytic"]),
        ("tpu-v5e", [], ["serving.weights=int8"]),
        ("tpu-v5e", ["model=llama-3.2-3b"], []),
    ],
)
def test_a_device_has_a_model_that_fits_it(
    device: str, overrides: list[str], made: list[str]
) -> None:
    found = assignments("odma", device, overrides)
    assert found == [f"device={device}", *made]
    assert load_study("odma", [*found, *overrides]).base.device == device


@pytest.mark.long
@pytest.mark.parametrize("device", names("accelerators"))
def test_every_accelerator_is_served(device: str) -> None:
    assert load_study("odma", assignments("odma", device, [])).points


def test_a_study_lists_devices_unless_one_is_set() -> None:
    assert own_devices("odma", [], (None, None)) == ["mlu370-x4", "a100-80gb"]
    assert own_devices("odma", ["device=mlu370-x4"], (None, None)) == []
    assert own_devices("quick", [], (None, None)) == []
    assert "devices" not in load_study("odma", []).config


def test_a_memory_serves_nothing() -> None:
    with pytest.raises(DescriptionError, match="is a memory; a study serves, and needs an accel"):
        assignments("odma", "lpddr5-6400-x16", [])


def test_the_table_says_when_no_search_was_needed() -> None:
    over = {"paper": GAP, "odma-best": None, "paged": GAP}
    plain = DeviceFound("l4", "m", "analytic", [64, 256], [0.25, 0.9], 0.1, "trial 3", 9.0,
                        "tokens/s", "tuned (trial 2)", GAP, over, "KV memory 90%",
                        {"serving.policy.tau": 0.4, "x": 0.2}, None)  # fmt: skip
    same = plain._replace(
        device="h200", scattered=0.31, fidelity="sampled", added=None, first="tuned (trial 2)"
    )
    tie = plain._replace(added=Interval(0.0, -0.01, 0.01, 5), bounds=None, pool_share=None)
    shown = sheet("odma", [plain, same, tie], {"x": "x: no model fits"})
    (grid,) = [block for block in shown.blocks if isinstance(block, Grid)]
    assert grid.rows[0][:9] == [
        "l4 *", "m", "64, 256", "2", "10", "9", "+19 % (10 to 30)", "–", "+19 % (10 to 30)",
    ]  # fmt: skip
    assert [row[9] for row in grid.rows] == [
        "search, +19 % (10 to 30) over tuned (trial 2)", "tuned (trial 2)",
        "no better than tuned (trial 2)",
    ]  # fmt: skip
    assert grid.rows[2][2:5] == ["–", "–", "–"]
    assert grid.rows[1][10:14] == ["tau 40 %, x 20 %", "31", "0.25, 0.90", "KV memory 90%"]
    buckets, pools = (block for block in shown.blocks if isinstance(block, (Spans, Bars)))
    assert buckets.names[0] == "h200 (31 %)"  # where scattered blocks cost the most
    assert [tuple(span)[1:3] for span in buckets.spans[:2]] == [(0, 64), (64, 256)]
    assert [bar.value.mean for bar in pools.bars] == [10, 10]
    says = [block.text for block in shown.blocks if isinstance(block, Say)]
    assert says[-1] == "left out: x: no model fits" and "analytic" in says[2]
    assert says[0] == (
        "Of 3 devices: the search adds something significant to what needed none on 1; the best"
        " keeps a safety pool apart on 2; it serves significantly more than the paper's numbers on"
        " 3; paged serves significantly more than the best on 0, less on 3."
    )


def test_what_mattered_isby_setting() -> None:
    one = Interval(0.2, 0.1, 0.3, 9)
    found = {"p.align": Interval(0.3, 0.2, 0.4, 9), "p.levels[0]": one, "p.levels[1]": one,
             "p.levels.by": one}  # fmt: skip
    assert by_setting(found) == pytest.approx({"p.levels": 0.6, "p.align": 0.3})


def test_devices_have_directories_and_one_table_and_are_resumed(tmp_path: Path) -> None:
    devices = ("--device", "mlu370-x4", "--device", "lpddr5-6400-x16")
    asked = ("run", "quick", *devices, "--out", "out", "--jobs", "1", *SETS, "--trials")
    done = bankwise(*asked, "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "left out: lpddr5-6400-x16: is a memory" in done.stdout
    (found,) = json.loads((tmp_path / "out/devices.json").read_text())
    assert found["device"] == "mlu370-x4" and found["bounds"] == sorted(found["bounds"])
    assert (tmp_path / "out/mlu370-x4/report.html").is_file()
    assert (tmp_path / "out/devices.html").is_file()
    more = bankwise(*asked, "3", "--resume", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    lines = (tmp_path / "out/mlu370-x4/results.jsonl").read_text().splitlines()
    assert len(lines) == 3
    again = bankwise(*asked, "2", cwd=tmp_path)
    assert again.returncode == 2 and "already contains a run" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("quick --device mlu370", "no shipped device 'mlu370'; did you mean 'mlu370-x4'?"),
        ("quick --device all --device l4", "--device all: stands alone"),
        ("smoke --device mlu370", "no shipped device 'mlu370'; did you mean 'mlu370-x4'?"),
    ],
)
def test_a_mistake_is_one_line(words: str, said: str, tmp_path: Path) -> None:
    assert said in refusal("run", *words.split(), cwd=tmp_path)


def test_a_sweep_compares_the_devices(tmp_path: Path) -> None:
    asked = ("run", "smoke", "--device", "mlu370-x4", "--device", "l4", "--dry-run")
    done = bankwise(*asked, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("4 points, 8 results")
