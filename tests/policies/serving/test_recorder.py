"""Do the logs of a run add up to its metrics, and does recording change nothing?"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.memory.step_times import PHASES
from policies.requests.requests import Requests
from policies.serving.memory_log import MemoryLog
from policies.serving.perfetto import PerfettoTrace
from policies.serving.recorder import Recorders, RequestLog, StepLog
from policies.serving.serving import ServingResult, serve
from tests.policies.allocators.contract import cases
from tests.policies.small import MODEL, device, mixed, run, spec
from tests.rotation import LONG, shared

CASES = cases()
STREAM = mixed(200)
FEW = STREAM if LONG else STREAM[:120]
CHANGES: dict[str, Any] = {
    "policy": {
        "name": "odma",
        "refresh": 40,
        "window": 80,
        "balance": "requests",
        "space": "arena",
        "first_bounds": "even",
    },
    "predictor": {"kind": "lognormal", "sigma": 0.8},
    "engine": {"max_model_len": 1024},
}
SWAPPING: dict[str, Any] = {
    "engine": {"name": "v0", "max_model_len": 1024, "preemption": "swap"},
    "policy": {"name": "paged", "watermark": 0.0},
}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def record(folder: Path, slots: int, stream: Requests, **changes: Any) -> ServingResult:
    writers = [
        RequestLog(folder / "requests.csv", stream), StepLog(folder / "steps.csv"),
        PerfettoTrace(folder / "trace.json.gz", stream),
    ]  # fmt: skip
    return serve(device(slots), MODEL, spec(**changes), stream, seed=1, recorder=Recorders(writers))


@pytest.mark.parametrize("options", shared((c[1] for c in CASES), 1, 4), ids=[c[0] for c in CASES])
def test_recording_changes_no_figure(tmp_path: Path, options: Any) -> None:
    changes = {**CHANGES, "policy": options}
    recorded = record(tmp_path, 4096, FEW, **changes)
    assert recorded.metrics == run(4096, FEW, **changes).metrics


@pytest.mark.parametrize("changes", [CHANGES, SWAPPING, {"engine": {"max_num_seqs": 30}}])
def test_rows_add_up_to_the_metrics(tmp_path: Path, changes: dict[str, Any]) -> None:
    slots = 2048 if changes is CHANGES else 1024
    result = record(tmp_path, slots, STREAM, **changes)
    metrics = result.metrics
    requests = {int(row["request"]): row for row in rows(tmp_path / "requests.csv")}
    assert sorted(requests) == list(range(len(STREAM)))
    for index, row in requests.items():
        assert float(row["first_token_s"]) == result.first_token_s[index]
        assert float(row["end_s"]) == result.finish_s[index]
        assert float(row["admitted_s"]) >= STREAM.arrival_s[index] == float(row["arrival_s"])
        gone = int(row["recomputed"]) + int(row["swapped"])
        assert int(row["admissions"]) == 1 + gone
    gone = sum(int(row["recomputed"]) + int(row["swapped"]) for row in requests.values())
    assert gone == metrics["preemptions"]
    assert sum(int(row["migrations"]) for row in requests.values()) == metrics["migrations"]
    moved = sum(int(row["migrated_tokens"]) for row in requests.values())
    assert moved == metrics["migrated_tokens"]

    steps = rows(tmp_path / "steps.csv")
    assert sum(int(row["steps"]) for row in steps) == metrics["steps"]
    for name in ("prefill_tokens", "cached_tokens", "swapped_tokens", "copied_tokens"):
        assert sum(int(row[name]) for row in steps) == metrics[name]
    assert sum(int(row["preempted"]) for row in steps) == metrics["preemptions"]
    seconds = np.array([float(row["seconds"]) for row in steps])
    starts = np.array([float(row["start_s"]) for row in steps])
    assert (starts[1:] >= (starts + seconds)[:-1] - 1e-9).all()
    for phase in (*PHASES, "overhead"):
        share = sum(float(row[f"{phase}_s"]) for row in steps) / seconds.sum()
        assert share == pytest.approx(metrics["phase_share"][phase])


@pytest.mark.parametrize("changes", [CHANGES, SWAPPING])
def test_the_trace_is_one_that_viewers_take(tmp_path: Path, changes: dict[str, Any]) -> None:
    slots = 2048 if changes is CHANGES else 1024
    metrics = record(tmp_path, slots, STREAM, **changes).metrics
    found = events(tmp_path / "trace.json.gz")
    assert {event["ph"] for event in found} == {"M", "X", "C", "b", "e", "i"}
    last = 0.0
    for event in found:
        if event["ph"] == "X":  # steps follow one another
            assert event["ts"] >= last - 0.002
            last = event["ts"] + event["dur"]
    tracks: dict[Any, float] = {}
    for event in found:
        kind = "slice" if event["ph"] in "be" else event["ph"]
        track = (kind, event["pid"], event.get("id"), event["name"] if kind == "C" else "")
        assert event["ts"] >= tracks.get(track, 0.0)  # microseconds, ascending
        tracks[track] = event["ts"]
    assert last == pytest.approx(1e6 * metrics["makespan_s"] + STREAM.arrival_s[0] * 1e6, abs=1)
    open_slices: dict[int, str] = {}
    doing: dict[int, list[str]] = {}
    for event in found:
        if event["ph"] == "b":
            assert event["id"] not in open_slices
            open_slices[event["id"]] = event["name"]
            doing.setdefault(event["id"], []).append(event["name"])
        elif event["ph"] == "e":
            assert open_slices.pop(event["id"]) == event["name"]
    assert not open_slices and len(doing) == len(STREAM)
    assert all(names[:3] == ["waiting", "prefill", "decode"] for names in doing.values())
    count = {
        name: sum(event["name"] == name for event in found if event["ph"] == "i")
        for name in ("preemption", "migration", "bucket refresh")
    }
    assert count["preemption"] == metrics["preemptions"]
    assert count["migration"] == metrics["migrations"]
    assert count["bucket refresh"] <= metrics["policy"].get("bucket_refreshes", 0)
    if changes is CHANGES:
        assert count["migration"] and count["bucket refresh"]
    else:
        assert count["preemption"]


def test_a_run_that_fails_leaves_whole_files(tmp_path: Path) -> None:
    class Broken(RequestLog):
        def first_token(self, now_s: float, request: int, replica: int) -> None:
            raise OSError("disk full")

    broken = Recorders(
        [PerfettoTrace(tmp_path / "t.gz", STREAM), Broken(tmp_path / "r.csv", STREAM)]
    )
    with pytest.raises(OSError, match="disk full"):
        serve(device(1024), MODEL, spec(), STREAM, seed=1, recorder=broken)
    assert events(tmp_path / "t.gz")
    assert rows(tmp_path / "r.csv") == []


def test_nothing_is_kept_of_who_has_ended(tmp_path: Path) -> None:
    requests = RequestLog(tmp_path / "r.csv", STREAM)
    trace = PerfettoTrace(tmp_path / "t.gz", STREAM)
    serve(device(1024), MODEL, spec(), STREAM, seed=1, recorder=Recorders([requests, trace]))
    assert not requests._lives and not trace._doing


LINK = "mooncake-rdma-400"
DEPLOYED: dict[str, tuple[int, dict[str, Any]]] = {
    "cards": (1024, {"cluster": {"cards": 3}}),
    "faults": (1024, {"cluster": {"cards": 2}, "faults": [
        {"replica": 0, "at_s": 0.004, "down_s": 0.002}]}),
    "swaps": (1024, {**SWAPPING, "cluster": {"cards": 2}}),
    "pools": (1024, {"pools": {"prefill": {}, "decode": {"replicas": 2}, "link": LINK}}),
    "dropping": (1024, {"cluster": {"cards": 2, "dropping": {
        "link": LINK, "every_s": 0.002, "frame": "64KiB"}}}),
    "migration": (1024, {"cluster": {"cards": 2, "migration": {
        "link": LINK, "every_s": 0.002, "last_blocks": 3}}}),
}  # fmt: skip


@pytest.mark.parametrize("case", DEPLOYED)
def test_replicas_share_logs(tmp_path: Path, case: str) -> None:
    slots, changes = DEPLOYED[case]
    memory = MemoryLog(tmp_path / "memory.csv", STREAM[:60])
    changes = {"engine": {"max_model_len": 1024}, **changes}
    writers = [
        RequestLog(tmp_path / "requests.csv", STREAM[:60]), StepLog(tmp_path / "steps.csv"), memory,
        PerfettoTrace(tmp_path / "trace.json.gz", STREAM[:60]),
    ]  # fmt: skip
    found = serve(
        device(slots), MODEL, spec(**changes), STREAM[:60], seed=1, recorder=Recorders(writers)
    )  # fmt: skip
    assert found.metrics == run(slots, STREAM[:60], **changes).metrics  # without logs
    requests = {int(row["request"]): row for row in rows(tmp_path / "requests.csv")}
    steps = rows(tmp_path / "steps.csv")
    assert len(requests) == len(STREAM[:60]) and {row["replica"] for row in steps} >= {"0", "1"}
    for index, row in requests.items():
        assert float(row["end_s"]) == found.finish_s[index]
        assert float(row["first_token_s"]) == found.first_token_s[index]
        went = sum(int(row[name]) for name in ("recomputed", "swapped", "moved"))
        assert int(row["admissions"]) == 1 + went
    moved = sum(int(row["moved"]) for row in requests.values())
    assert (moved > 0) == (case in ("pools", "dropping", "migration"))
    for number in {row["replica"] for row in steps}:
        own = [row for row in steps if row["replica"] == number]
        starts = np.array([float(row["start_s"]) for row in own])
        ends = starts + [float(row["seconds"]) for row in own]
        assert (starts[1:] >= ends[:-1] - 1e-9).all()
    if case != "pools":
        assert sum(int(row["steps"]) for row in steps) == found.metrics["steps"]
        assert sum(int(row["preempted"]) for row in steps) == found.metrics["preemptions"]
    no_two_hold_a_slot(rows(tmp_path / "memory.csv"))
    doing: dict[int, str] = {}
    for event in events(tmp_path / "trace.json.gz"):
        if event["ph"] == "b":
            assert event["id"] not in doing
            doing[event["id"]] = event["name"]
        elif event["ph"] == "e":
            assert doing.pop(event["id"]) == event["name"]
    assert not doing


def no_two_hold_a_slot(held: list[dict[str, str]]) -> None:
    """At any time, of a replica: what is taken in a stretch counts from its beginning."""
    for number in {row["replica"] for row in held}:
        own = [
            (int(row["first_slot"]), int(row["slots"]), float(row["from_s"]), float(row["until_s"]))
            for row in held if row["replica"] == number
        ]  # fmt: skip
        for at, (first, slots, from_s, until_s) in enumerate(own):
            for other in own[:at]:
                apart = first + slots <= other[0] or other[0] + other[1] <= first
                assert apart or from_s >= other[3] - 1e-9 or other[2] >= until_s - 1e-9
