"""Do the logs of a run add up to its metrics, and does recording change nothing?"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.memory.step_times import PHASES
from policies.serving.memory_log import MemoryLog
from policies.serving.perfetto import PerfettoTrace
from policies.serving.recorder import Recorders, RequestLog, StepLog
from policies.serving.serving import serve
from tests.policies.small import MODEL, device, mixed, run, spec

LINK = "mooncake-rdma-400"
SWAPPING: dict[str, Any] = {
    "engine": {"name": "v0", "preemption": "swap"}, "policy": {"name": "paged", "watermark": 0.0},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "odma": {
        "policy": {
            "name": "odma", "refresh": 20, "window": 80, "balance": "requests", "space": "arena",
            "first_bounds": "even",
        },
        "predictor": {"kind": "lognormal", "sigma": 0.8},
    },
    "swaps": SWAPPING,
    "few at once": {"engine": {"max_num_seqs": 30}},
    "cards": {"cluster": {"cards": 3}},
    "faults": {"cluster": {"cards": 2}, "faults": [
        {"replica": 0, "at_s": 0.004, "down_s": 0.002}]},
    "cards that swap": {**SWAPPING, "cluster": {"cards": 2}},
    "pools": {"pools": {"prefill": {}, "decode": {"replicas": 2}, "link": LINK}},
    "dropping": {"cluster": {"cards": 2, "dropping": {
        "link": LINK, "every_s": 0.002, "frame": "64KiB"}}},
    "migration": {"cluster": {"cards": 2, "migration": {
        "link": LINK, "every_s": 0.002, "last_blocks": 3}}},
}  # fmt: skip
STREAM = mixed(100)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_logs_add_up_to_a_run_that_they_do_not_change(tmp_path: Path, case: str) -> None:
    given, slots = CASES[case], 2048 if case == "odma" else 1024
    changes = {**given, "engine": {"max_model_len": 1024, **given.get("engine", {})}}
    writers = [
        RequestLog(tmp_path / "requests.csv", STREAM), StepLog(tmp_path / "steps.csv"),
        MemoryLog(tmp_path / "memory.csv", STREAM),
        PerfettoTrace(tmp_path / "trace.json.gz", STREAM),
    ]  # fmt: skip
    recorder = Recorders(writers)
    found = serve(device(slots), MODEL, spec(**changes), STREAM, seed=1, recorder=recorder)
    metrics = found.metrics
    assert metrics == run(slots, STREAM, **changes).metrics

    requests = rows(tmp_path / "requests.csv")
    assert sorted(int(row["request"]) for row in requests) == list(range(len(STREAM)))
    total = {
        name: sum(int(row[name]) for row in requests)
        for name in ("recomputed", "swapped", "moved", "migrations", "migrated_tokens")
    }
    for row in requests:
        index = int(row["request"])
        assert float(row["first_token_s"]) == found.first_token_s[index]
        assert float(row["end_s"]) == found.finish_s[index]
        assert float(row["admitted_s"]) >= STREAM.arrival_s[index] == float(row["arrival_s"])
        went = sum(int(row[name]) for name in ("recomputed", "swapped", "moved"))
        assert int(row["admissions"]) == 1 + went
    assert (total["moved"] > 0) == (case in ("pools", "dropping", "migration"))
    assert (total["migrations"], total["migrated_tokens"]) == (
        metrics["migrations"], metrics["migrated_tokens"],
    )  # fmt: skip
    no_two_hold_a_slot(rows(tmp_path / "memory.csv"))

    steps = rows(tmp_path / "steps.csv")
    replicas = {row["replica"] for row in steps}
    assert len(replicas) > 1 or not {"cluster", "pools"} & set(given)
    for number in replicas:
        own = [row for row in steps if row["replica"] == number]
        starts = np.array([float(row["start_s"]) for row in own])
        ends = starts + [float(row["seconds"]) for row in own]
        assert (starts[1:] >= ends[:-1] - 1e-9).all()
    if case != "pools":
        assert sum(int(row["steps"]) for row in steps) == metrics["steps"]
        assert sum(int(row["preempted"]) for row in steps) == metrics["preemptions"]
    if len(replicas) == 1:
        assert total["recomputed"] + total["swapped"] == metrics["preemptions"]
        for name in ("prefill_tokens", "cached_tokens", "swapped_tokens", "copied_tokens"):
            assert sum(int(row[name]) for row in steps) == metrics[name]
        seconds = sum(float(row["seconds"]) for row in steps)
        for phase in (*PHASES, "overhead"):
            share = sum(float(row[f"{phase}_s"]) for row in steps) / seconds
            assert share == pytest.approx(metrics["phase_share"][phase])

    trace = events(tmp_path / "trace.json.gz")
    slices_open_and_close(trace)
    count = Counter(event["name"] for event in trace if event["ph"] == "i")
    if len(replicas) == 1:
        assert count["preemption"] == metrics["preemptions"]
        assert count["migration"] == metrics["migrations"]
        assert count["preemption"] or case != "swaps"
        assert (count["bucket refresh"] > 0 < count["migration"]) == (case == "odma")
        assert count["bucket refresh"] <= metrics["policy"].get("bucket_refreshes", 0)
        last = max(event["ts"] + event["dur"] for event in trace if event["ph"] == "X")
        assert last == pytest.approx(1e6 * (metrics["makespan_s"] + STREAM.arrival_s[0]), abs=1)


def slices_open_and_close(trace: list[dict[str, Any]]) -> None:
    """As viewers take it: times of a track ascend, and a request does one thing at a time."""
    assert {event["ph"] for event in trace} <= {"M", "X", "C", "b", "e", "i"}
    tracks: dict[Any, float] = {}
    doing: dict[int, list[str]] = {}
    busy: dict[int, str] = {}
    for event in trace:
        kind = "slice" if event["ph"] in "be" else event["ph"]
        track = (kind, event["pid"], event.get("id"), event["name"] if kind == "C" else "")
        assert event["ts"] >= tracks.get(track, 0.0)  # microseconds
        tracks[track] = event["ts"]
        if event["ph"] == "b":
            assert event["id"] not in busy
            busy[event["id"]] = event["name"]
            doing.setdefault(event["id"], []).append(event["name"])
        elif event["ph"] == "e":
            assert busy.pop(event["id"]) == event["name"]
    assert not busy and len(doing) == len(STREAM)
    assert all(names[:2] == ["waiting", "prefill"] for names in doing.values())


def test_nothing_is_kept_of_who_has_ended(tmp_path: Path) -> None:
    requests = RequestLog(tmp_path / "r.csv", STREAM)
    trace = PerfettoTrace(tmp_path / "t.gz", STREAM)
    serve(device(1024), MODEL, spec(), STREAM, seed=1, recorder=Recorders([requests, trace]))
    assert not requests._lives and not trace._doing


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
