"""Does the release run take of a run what its parts say, and are its parts sound?"""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from policies.serving.plugins import load_plugin
from sweeps.plan.sweep import load_sweep, planned_kind
from sweeps.study.study_spec import load_study
from tests.rotation import shared
from tests.sweeps.made import made
from tests.sweeps.plan.test_crossing import run as search
from tools import release
from tools.figures import FigureError, read_part, read_results
from tools.release_readers import READERS

RUNS = [
    pytest.param(shlex.split(typed)[2:], id=name)
    for name, part in release.parts().items() for typed in part.get("commands", ())
    if shlex.split(typed)[1] == "run"
]  # fmt: skip


@pytest.mark.usefixtures("unplugged")
@pytest.mark.parametrize("words", shared([each.values[0] for each in RUNS], every=3))
def test_what_a_part_runs_is_sound(words: list[str]) -> None:
    name, *options = words
    path = release.ROOT / name if "/" in name else name
    for file in (value for word, value in pairwise(options) if word == "--plugin"):
        load_plugin(release.ROOT / file)
    sets = [value for word, value in pairwise(options) if word == "--set"]
    load = {"sweep": load_sweep, "study": load_study}[planned_kind(path)]
    assert load(path, sets).points


def test_each_part_has_a_question_and_readers_that_are_there() -> None:
    for name, part in release.parts().items():
        assert part["question"] and part.keys() <= {"question", "commands", "values", "read"}, name
        assert READERS.keys() >= {*part.get("read", ())}


def test_results_are_of_all_parts_but_those_that_claims_wait_for() -> None:
    there = {file.stem for file in (release.ROOT / release.RESULTS).iterdir()}
    assert there <= release.parts().keys()
    assert release.parts().keys() - there <= release.claimed().keys()
    assert {key.split("/")[0] for key in read_results()} == there


def test_values_are_taken_from_a_run_paired_by_replication(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    paged = {"of": "output_tokens_per_s", "at": {"device": "card", "serving.policy": "paged"}}
    gap = {**paged, "over": {"serving.policy": "odma"}}
    rows = {"ours": {"device": "card", "serving.policy": "paged"}}
    columns = {
        "over": {"of": "output_tokens_per_s", "over": {"serving.policy": "odma"}},
        "itself": {"of": "output_tokens_per_s", "over": {"serving.policy": "paged"}},
        "hit": {"of": "ttft_s.p50", "by": "ttft_s.p99"},
    }
    found = release.taken(
        {"paged": paged, "by": {"gap": gap}, "cells": 21, "t": {"rows": rows, "columns": columns}},
        run,
    )
    assert found["paged"][0] == pytest.approx(102)  # type: ignore[index]
    assert found["by/gap"] == pytest.approx([100 / 130] * 3)
    assert found["cells"] == 21 and "t/ours/itself" not in found
    assert found["t/ours/over"] == found["by/gap"] and found["t/ours/hit"][0] == 0.5  # type: ignore[index]
    with pytest.raises(FigureError, match="no point"):
        release.taken({"s3": {"of": "output_tokens_per_s", "at": {"serving.policy": "s3"}}}, run)
    with pytest.raises(FigureError, match="more than one point"):
        release.taken({"all": {"of": "output_tokens_per_s", "at": {}}}, run)


def test_a_cell_is_taken_from_the_tables_of_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(tmp_path / "run", monkeypatch)
    for label in (["cost"], ["Break-evens", "cost"]):  # behind its section's title
        found = release.taken({"speed": {"cell": [*label, "break-even"]}}, tmp_path / "run")
        assert found == {"speed": "711ns (521ns to 970ns)"}
    with pytest.raises(FigureError, match=r"0 cells in row .'costs'"):
        release.taken({"speed": {"cell": ["costs", "break-even"]}}, tmp_path / "run")


def test_a_part_is_kept_with_its_commit_and_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"question": "Which?", "commands": ["bankwise run quickstart"], "values": {"cells": 21}}
    monkeypatch.setattr(release, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "parts", lambda: {"made": part, "later": part})
    made(tmp_path / "runs/made")
    done = {"commit": "f" * 40, "cpu_s": 90.2, "values": {}}
    (tmp_path / "runs/made" / release.DONE).write_text(json.dumps(done))
    assert release.main(["take"]) == 0
    (file,) = (tmp_path / release.RESULTS).iterdir()
    assert file.name == "made.json"
    assert read_part(file) == {"commit": "f" * 12, "cpu_s": 90, "values": {"cells": 21}}
