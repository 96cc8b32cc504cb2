"""Is the largest cause that is found the one that a trace was built to have?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps.ask.low_bandwidth as low_bandwidth
from hwmodel.description.library import names
from hwmodel.kernel.address import decode, encode
from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.kernel.timing import lower
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.replay import replay
from hwmodel.measure.trace import TraceChunk
from hwmodel.measure.without import CAUSES, WithoutCase, placed, without
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.device import Device, load_device
from sweeps.ask.low_bandwidth import Ladder, explain
from sweeps.ask.memory_changes import address_maps, candidates
from sweeps.look.low_bandwidth_section import why as section_of
from sweeps.sections.section import Say
from tests.rotation import shared
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.cli.test_memory_commands import found

LPDDR5, DDR5 = "lpddr5-6400-x16", "ddr5-4800-x32"
COUNT = 4_000
TURN = np.arange(COUNT)


def of(device: Device, address: Any, kind: Any = READ, arrival: Any = None) -> WithoutCase:
    kinds = np.broadcast_to(np.asarray(kind, np.int64), address.shape).copy()
    return placed(device, TraceChunk(np.asarray(address, np.int64), kinds, arrival), False)


def in_order(device: Device) -> WithoutCase:
    return of(device, TURN * device.memory.organisation.burst_bytes)


def one_bank(device: Device) -> WithoutCase:
    rows = TURN * 7 % device.memory.organisation.rows
    return of(device, encode(device.memory, 0 * TURN, rows, 0 * TURN))


def one_group(device: Device) -> WithoutCase:
    o = device.memory.organisation
    visit, column = np.divmod(TURN, o.columns)
    bank = visit % o.banks_per_group  # of group 0
    return of(device, encode(device.memory, bank, visit // o.banks_per_group, column))


def alternating(device: Device) -> WithoutCase:
    return of(device, TURN * device.memory.organisation.burst_bytes, TURN % 2)


def one_channel(device: Device) -> WithoutCase:
    block, within = np.divmod(TURN, 16)  # bursts of 32 B in an interleave of 512 B
    return of(device, block * device.channels * 512 + within * 32)


def slow(device: Device) -> WithoutCase:
    return of(device, TURN * device.memory.organisation.burst_bytes, READ, 10 * TURN)


def extents(bursts: int) -> Callable[[Device], WithoutCase]:
    """So many bursts side by side, at random."""

    def built(device: Device) -> WithoutCase:
        o, rng = device.memory.organisation, np.random.default_rng(5)
        size = bursts * o.burst_bytes
        start = rng.integers(0, o.capacity_bytes // size, COUNT // bursts) * size
        return of(device, (start[:, None] + np.arange(bursts) * o.burst_bytes).ravel())

    return built


NO_HASH = ["channels=4", "capacity=4GiB", "channel_hash=none"]
KNOWN = {
    "in order, refreshes alone are left": (in_order, DDR5, [], "refresh"),
    "another row of one bank each time": (one_bank, LPDDR5, [], "row misses"),
    "rows of one bank group": (one_group, DDR5, [], "bank groups"),
    "reads and writes in turn": (alternating, LPDDR5, [], "read/write turnaround"),
    "one channel of a device": (one_channel, "mlu370-x4", NO_HASH, "channel imbalance"),
    "slow arrivals": (slow, LPDDR5, [], "arrivals"),
    "queues of two": (extents(8), LPDDR5, ["controller.read_queue=2"], "too few in flight"),
    "few activations": (extents(2), LPDDR5, ["timing.tFAW=200ns"], "activation windows"),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_the_largest_cause_is_the_one_that_the_trace_was_built_for(name: str) -> None:
    build, device, overrides, cause = KNOWN[name]
    found = Ladder(build(load_device(device, overrides))).losses()
    assert max(found["causes"], key=lambda each: each["gbps"])["cause"] == cause
    parts = sum(each["gbps"] for each in found["causes"]) + found["not_explained_gbps"]
    assert parts == pytest.approx(found["gap_gbps"], abs=1e-9)
    assert found["gap_gbps"] > 0.02 * found["peak_gbps"]
    assert abs(found["not_explained_gbps"]) < 0.1 * found["peak_gbps"]


def test_the_case_as_described_and_a_change_are_what_replay_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [["interleave=1KiB"], ["controller.page_policy=ajar"]]
    monkeypatch.setattr(low_bandwidth, "candidates", lambda device, single_channel: changes)
    device = load_device("mlu370-x4", NO_HASH)
    rng = np.random.default_rng(3)
    address, write = rng.integers(0, 1 << 27, 4000) * 32, rng.random(4000) < 0.3
    np.savez(tmp_path / "t.npz", address=address, write=write)
    played = replay(device, tmp_path / "t.npz")
    why = explain(device, "mlu370-x4", NO_HASH, tmp_path / "t.npz", 4000)
    assert why["achieved_gbps"] == pytest.approx(played["bandwidth_gbps"])
    [best], [refused] = why["changes"], why["refused"]
    assert refused["set"] == changes[1] and "'open', 'closed'" in refused["why"]
    changed = replay(load_device("mlu370-x4", NO_HASH + best["set"]), tmp_path / "t.npz")
    assert best["gbps"] == pytest.approx(changed["bandwidth_gbps"])
    assert why["window"] == {"first": 0, "accesses": 4000, "of": 4000}


@pytest.mark.parametrize("name", shared(names("memories")))
def test_every_memory_stays_legal_without_any_cause(name: str) -> None:
    device = load_device(name)
    case = of(
        device, TURN[:2000] * 96 % device.capacity_bytes, np.where(TURN[:2000] % 5, READ, WRITE)
    )
    for cause in CAUSES:
        lower(cause.remove(case).memory)
    ideal = without(case, frozenset(cause.name for cause in CAUSES))
    logs: list[CommandLog] = []
    run = OpenLoop(ideal.memory, 1, lambda channel, log: logs.append(log))
    run.feed_all(ideal.parts(0, 2000))
    run.finish()
    whole = CommandLog(*map(np.concatenate, zip(*logs, strict=True)))
    assert not audit(ideal.memory, whole)


def test_accesses_are_spread_evenly_and_no_rows_become_one() -> None:
    case = one_channel(load_device("mlu370-x4", NO_HASH))
    spread = without(case, frozenset({"channel imbalance"})).stream
    load = np.bincount(spread.channel, minlength=4)
    assert load.sum() == COUNT and load.max() < 1.1 * COUNT / 4
    assert (spread.bank == case.stream.bank).all() and (spread.column == case.stream.column).all()
    rows = np.stack([spread.channel, spread.bank, spread.row])
    both = np.concatenate([rows, case.stream.row[None]])
    assert np.unique(rows, axis=1).shape[1] == np.unique(both, axis=1).shape[1]


def test_maps_that_are_tried_hold_every_place() -> None:
    device = load_device("hbm3-6.4")
    for fields in address_maps(device.memory):
        other = load_device("hbm3-6.4", [f"address_map=[{', '.join(fields)}]"]).memory
        address = TURN * 4096 % other.organisation.capacity_bytes
        assert (encode(other, *decode(other, address)) == address).all()
    shipped = load_device("a100-80gb")
    assert ["bank_hash=[]"] in candidates(shipped)  # a plausible variant of the device
    assert ["channel_hash=none"] in candidates(shipped)
    assert ["channel_hash=none"] not in candidates(shipped, single_channel=True)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lines = [f"{'W' if i % 3 == 0 else 'R'} {32 * (i * 37 % 5000):#x}" for i in range(3000)]
    (tmp_path / "trace.txt").write_text("\n".join(lines))
    return tmp_path / "trace.txt"


def test_replay_explains_itself_in_words(trace: Path) -> None:
    told = bankwise("replay", LPDDR5, trace, "--explain")
    assert told.returncode == 0 and "not explained" in told.stdout and "arrive" not in told.stdout
    assert re.search("helps most .* --set ", told.stdout)


def test_that_the_load_limits_comes_before_anything_about_the_memory(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", address=TURN * 32, write=TURN < 0, picosecond=TURN * 20_000)
    why = found("replay", LPDDR5, tmp_path / "t.npz", "--explain")["explanation"]
    assert why["peak_gbps"] - why["achieved_gbps"] == pytest.approx(why["gap_gbps"])
    assert why["load"]["limits"] and not why["helps"]
    said = [block.text for block in section_of(why).blocks if isinstance(block, Say)]
    assert said[1].startswith("the load limits, not the memory: accesses arrive at 1.60 GB/s")
    assert said[-1].endswith("none helps beyond noise")


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_a_run_and_its_log_give_the_same_timeline(ending: str, trace: Path, tmp_path: Path) -> None:
    one, other, log = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}", tmp_path / "log.csv"
    run = bankwise("replay", LPDDR5, trace, "--commands", log, "--timeline", one)
    assert run.returncode == 0 and f"wrote {one}" in run.stdout
    assert bankwise("audit", LPDDR5, log, "--timeline", other).returncode == 0
    drawn, again = one.read_text(), other.read_text()
    assert "GB/s, " in drawn or ending == "svg"
    assert "</b>: 0 violations." in again or ending == "svg"
    lead = re.compile('<p class="lead">.*</p>')  # what it reaches, and whether it is legal
    assert lead.sub("", drawn) == lead.sub("", again)
    if ending == "svg":
        assert "data bus" in drawn and "group 3 bank 3" in drawn and "row open" in drawn
