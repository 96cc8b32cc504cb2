"""Does the record of physical memory say who held what?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.serving import memory_log
from policies.serving.memory_log import MemoryLog
from policies.serving.recorder import Recorders, StepLog
from policies.serving.serving import serve
from tests.policies.small import MODEL, device, mixed, requests, spec


def rows_of(path: Path, stream: Requests, **changes: Any) -> np.ndarray:
    """Rows of a run on 4096 slots: request, first slot, slots, from, until."""
    logs = Recorders([MemoryLog(path / "memory.csv", stream), StepLog(path / "steps.csv")])
    serve(device(4096), MODEL, spec(**changes), stream, seed=1, recorder=logs)
    text = (path / "memory.csv").read_text()
    assert text.splitlines()[0] == ",".join(MemoryLog.COLUMNS)
    return np.loadtxt(path / "memory.csv", delimiter=",", skiprows=1, ndmin=2)


@pytest.fixture(autouse=True)
def from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_log, "BEGIN", 0.0)


def test_one_request_by_hand(tmp_path: Path) -> None:
    # 10 of prompt and 7 of output: 16 are stored at the end, a block; a 17th needs another
    (row,) = rows_of(tmp_path, requests([0.5], 10, 7))
    assert row[:3].tolist() == [0, 0, 16] and row[3] == 0.5 and row[4] > 0.5
    first, second = rows_of(tmp_path, requests([0.5], 10, 8))
    assert (first[2], second[2]) == (16, 16) and second[3] > first[3] and first[4] == second[4]


@pytest.mark.parametrize("policy", ["static", "paged", "odma", "s3", "orca"])
def test_no_slot_is_two_requests_at_once_and_all_reserved_ones_are_told(
    policy: str, tmp_path: Path
) -> None:
    changes = {"policy": {"name": policy}, "engine": {"max_model_len": 1024}}
    rows = rows_of(tmp_path, mixed(150), predictor={"kind": "lognormal", "sigma": 0.5}, **changes)
    steps = np.genfromtxt(tmp_path / "steps.csv", delimiter=",", names=True, dtype=None)
    for at in range(5, len(steps), 37):
        if steps["steps"][at] > 1:
            continue  # blocks grow within
        now = steps["start_s"][at] + steps["seconds"][at] / 2
        held = rows[(rows[:, 3] <= now) & (now < rows[:, 4])]
        taken = np.zeros(4096, np.int64)
        for request, first, slots in held[:, :3].astype(int):
            del request
            taken[first : first + slots] += 1
        assert taken.max(initial=0) <= 1
        assert taken.sum() == steps["reserved_slots"][at]


def test_recording_begins_late_and_ends_after_so_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(tmp_path, mixed(150))
    monkeypatch.setattr(memory_log, "BEGIN", 0.5)
    late = rows_of(tmp_path, mixed(150))
    assert late[:, 3].min() > whole[:, 3].min() and late[:, 4].max() == whole[:, 4].max()
    monkeypatch.setattr(memory_log, "MOST_ROWS", 300)
    short = rows_of(tmp_path, mixed(150))
    assert 250 <= len(short) <= 400 and short[:, 4].max() < late[:, 4].max()
