"""Do replay, bandwidth and audit keep the contract on a user's own traces?"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sweeps.cli import main

MEMORY = "lpddr5-6400-x16"
KEYS = {
    "device", "pattern", "requests", "bytes", "cycles", "tck_ns", "bandwidth_gbps", "peak_gbps",
    "utilization", "bound_gbps", "row_hits", "row_misses", "row_conflicts", "commands",
    "latency_ns", "energy_nj", "threads", "wall_s",
}  # fmt: skip


class Done(NamedTuple):
    code: int
    out: str
    err: str


def bankwise(*arguments: str | Path) -> Done:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return Done(int(left.value.code or 0), out.getvalue(), err.getvalue())


def found(*arguments: str | Path) -> Any:
    """The JSON that a command prints."""
    done = bankwise(*arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """2,000 accesses in address order, every fifth a write."""
    lines = [f"{'W' if i % 5 == 0 else 'R'} {32 * i:#x}" for i in range(2000)]
    (tmp_path / "trace.txt").write_text("\n".join(lines))
    return tmp_path / "trace.txt"


def test_replay_gives_every_figure_of_the_contract(trace: Path) -> None:
    one = found("replay", "mlu370-x4", trace)
    assert set(one) >= KEYS
    assert (one["device"], one["requests"], one["bytes"]) == ("mlu370-x4", 2000, 64000)
    assert one["peak_gbps"] == pytest.approx(307.2)
    assert one["commands"]["RD"] == 1600 and one["commands"]["WR"] == 400
    assert 0 < one["bandwidth_gbps"] <= one["peak_gbps"]


def test_a_trace_may_be_text_gzip_or_npz(trace: Path, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.gz", "wt") as file:
        file.write(trace.read_text())
    address = np.arange(2000, dtype=np.uint64) * 32
    np.savez(tmp_path / "t.npz", address=address, write=np.arange(2000) % 5 == 0)
    cycles = {found("replay", MEMORY, trace.parent / name)["cycles"] for name in
              ("trace.txt", "t.gz", "t.npz")}  # fmt: skip
    assert len(cycles) == 1


def test_channel_simulates_one_channel(trace: Path) -> None:
    one, all_channels = (
        found("replay", "mlu370-x4", trace, "--channel"),
        found("replay", "mlu370-x4", trace),
    )
    assert one["peak_gbps"] == pytest.approx(12.8)
    assert one["cycles"] > 10 * all_channels["cycles"]


@pytest.mark.parametrize(
    "assignment",
    ["timing.RL=40nCK", "controller.page_policy=closed", "controller.write_queue=2",
     "timing.tRCD=60ns", "address_map=[column:6,bankgroup:2,bank:2,row]"],
)  # fmt: skip
def test_set_changes_the_answer(assignment: str, trace: Path) -> None:
    plain, changed = (
        found("replay", MEMORY, trace),
        found("replay", MEMORY, trace, "--set", assignment),
    )
    assert plain["cycles"] != changed["cycles"] or plain["commands"] != changed["commands"]


LOGGED = [["mlu370-x4"], [MEMORY], ["a100-80gb"], ["a100-80gb", "--channel"]]


@pytest.mark.parametrize("arguments", LOGGED)
def test_a_command_log_passes_the_audit(arguments: list[str], trace: Path, tmp_path: Path) -> None:
    device, *rest = arguments
    assert bankwise("replay", device, trace, *rest, "--commands", tmp_path / "log.csv").code == 0
    done = bankwise("audit", device, tmp_path / "log.csv")
    assert done.code == 0, done.out
    assert "0 violations" in done.out


def test_a_log_edited_by_hand_fails_the_audit(trace: Path, tmp_path: Path) -> None:
    bankwise("replay", MEMORY, trace, "--commands", tmp_path / "log.csv")
    lines = (tmp_path / "log.csv").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if ",RD," in line)
    lines[at] = lines[at - 1].split(",")[0] + "," + lines[at].split(",", 1)[1]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    done = bankwise("audit", MEMORY, tmp_path / "log.csv")
    assert done.code == 1
    assert "violations" in done.out


def test_a_bad_line_is_placed_and_no_log_is_left(trace: Path, tmp_path: Path) -> None:
    lines = trace.read_text().splitlines()
    lines[16] = "R twelve"
    trace.write_text("\n".join(lines))
    done = bankwise("replay", MEMORY, trace, "--commands", tmp_path / "log.csv")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"{trace}:17: ")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.txt"]


def test_a_missing_trace_and_an_address_outside_are_refused(tmp_path: Path) -> None:
    assert bankwise("replay", MEMORY, tmp_path / "none.txt").code == 2
    (tmp_path / "far.txt").write_text("R 0xffffffffffff\n")
    done = bankwise("replay", MEMORY, tmp_path / "far.txt")
    assert done.code == 2 and "outside" in done.err


def test_bandwidth_gives_a_figure_a_pattern() -> None:
    patterns = ["--pattern", "sequential", "--pattern", "random_64B"]
    sequential, random = found("bandwidth", MEMORY, *patterns, "--set", "controller.refresh=none")
    assert set(sequential) >= KEYS and set(random) >= KEYS
    assert sequential["utilization"] >= 0.99
    assert (
        random["bandwidth_gbps"] < sequential["bandwidth_gbps"] <= sequential["bound_gbps"] * 1.0001
    )
    table = bankwise("bandwidth", MEMORY, "--pattern", "sequential").out
    assert "sequential" in table and "bound" in table


def test_an_unknown_pattern_gets_the_nearest(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        done = bankwise("bandwidth", MEMORY, "--pattern", "sequentiel")
    assert done.code == 2
    assert done.err == "no pattern 'sequentiel'; did you mean 'sequential'?\n"
