"""Is a study run device by device, with a model that fits, and told in one table?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from sweeps.analyse.statistics import Interval
from sweeps.cli.run_command import own_devices
from sweeps.plan.experiment import device_of
from sweeps.report.device_sheet import sheet
from sweeps.study.by_device import DeviceFound, Winner, assignments, counts, started
from sweeps.study.study_spec import load_study
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.report.golden import held, text_of
from tests.sweeps.study.studies import SHORT

SETS = [part for item in SHORT for part in ("--set", item)]
GAP = Interval(0.19, 0.1, 0.3, 5)


@pytest.mark.long
@pytest.mark.parametrize("device", names("accelerators"))
def test_every_accelerator_is_served(device: str) -> None:
    assert load_study("odma", assignments("odma", device, [])).points


def device(**changes: Any) -> DeviceFound:
    """One where the search's trial serves 19 % more than all others."""
    pool = {"gain": {"mean": -0.12, "low": -0.14, "high": -0.1, "count": 5}}
    found = DeviceFound("l4", "m", "analytic", [64, 256], [0.25, 0.9], 0.1, "trial 3", 9.0,
                        "tokens/s", "tuned (trial 2)", GAP,
                        {"paper": GAP, "odma-best": None, "paged": GAP, "static": GAP},
                        "KV memory 90%", {"compaction": GAP}, ["tau"], {"a pool": pool}, "tpe",
                        0.1, None)  # fmt: skip
    return found._replace(**changes)


def test_the_table_of_devices_is_as_it_was_last_looked_at() -> None:
    """Of one whose memory is simulated, where arithmetic proposed the best; and of two others."""
    same = device(device="h200", scattered=0.31, fidelity="sampled", added=None, phase="first",
                  first="tuned (trial 2)")  # fmt: skip
    bare = device(bounds=None, pool_share=None, families={})
    shown = sheet("odma", [device(), same, bare], {"x": "x: no model fits"})
    held("devices", text_of(shown))


def test_counts_are_of_one_family_and_of_what_is_more_than_a_percent() -> None:
    sure = Interval(0.05, 0.04, 0.06, 5)
    small = Interval(0.0056, 0.004, 0.0072, 5)  # significant, and nothing
    alone = Interval(0.02, 0.001, 0.04, 5)  # significant alone, not among five
    less = Interval(-0.04, -0.05, -0.03, 5)
    found = {"a": sure, "b": small, "c": alone, "d": less, "e": alone}
    assert counts([*found.items(), ("f", None)]) == (5, 1, 1)
    assert counts([("c", alone)]) == (1, 1, 0)


def test_a_study_begins_with_what_won_where_requests_have_similar_room(tmp_path: Path) -> None:
    study = load_study("odma", [])
    own = {"serving.policy.pool_share": 0.3, "serving.policy.levels": [0.4, 0.9],
           "serving.policy.buckets": 2, "serving.policy.space": "arena"}  # fmt: skip
    far, near = Winner("far", study.quarter / 9, {}), Winner("near", study.quarter * 1.5, own)
    (known,) = started([far, near], study, tmp_path)
    begun = load_study("odma", [known])
    assert [*begun.spec.known] == ["partitioned as in the paper", "won on near"]
    first = begun.first[-1]
    made = begun.space.overrides(first.params)
    assert first.name == "won on near"
    assert made["serving.policy.levels"] == pytest.approx([0.4, 0.9])
    # a share of the memory is whole quarters of the largest request there
    quarters = made["serving.policy.pool_share"] / begun.quarter
    assert quarters == pytest.approx(round(quarters), abs=1e-4)
    assert started([], study, tmp_path) == []


def test_devices_have_directories_and_one_table_and_are_resumed(tmp_path: Path) -> None:
    devices = ("--device", "mlu370-x4", "--device", "lpddr5-6400-x16")
    asked = ("run", "quick", *devices, "--out", "out", "--jobs", "1", *SETS, "--trials")
    done = bankwise(*asked, "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "left out: lpddr5-6400-x16: is a memory" in done.stdout
    (found,) = json.loads((tmp_path / "out/devices.json").read_text())
    assert found["device"] == "mlu370-x4" and found["bounds"] == sorted(found["bounds"])
    assert (tmp_path / "out/mlu370-x4/report.html").is_file()
    assert (tmp_path / "out/devices.html").is_file()
    more = bankwise(*asked, "2", "--resume", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    lines = (tmp_path / "out/mlu370-x4/results.jsonl").read_text().splitlines()
    assert len(lines) == 2
    again = bankwise(*asked, "1", cwd=tmp_path)
    assert again.returncode == 2 and "already contains a run" in again.stderr


def test_a_sweep_compares_the_devices(tmp_path: Path) -> None:
    asked = ("run", "smoke", "--device", "mlu370-x4", "--device", "l4", "--dry-run")
    done = bankwise(*asked, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("4 points, 8 results")


def test_no_sweep_has_the_name_of_a_study() -> None:
    assert not {*names("sweeps")} & {*names("studies")}


def test_a_study_lists_devices_unless_one_is_set() -> None:
    assert own_devices("odma", [], (None, None)) == ["mlu370-x4", "a100-80gb"]
    assert own_devices("odma", ["device=mlu370-x4"], (None, None)) == []
    assert own_devices("quick", [], (None, None)) == []
    assert "devices" not in load_study("odma", []).config


def test_a_memory_serves_nothing() -> None:
    with pytest.raises(DescriptionError, match="is a memory; a study serves, and needs an accel"):
        assignments("odma", "lpddr5-6400-x16", [])


def test_a_card_whose_memory_has_a_stand_in_is_simulated() -> None:
    study = load_study("odma", assignments("odma", "l4", []))
    assert study.base.serving.memory.fidelity == "sampled"
    card = device_of(study.base)
    assert card.given is None and card.peak_gbps == pytest.approx(300.0)
    assert "stand_ins" not in study.config
