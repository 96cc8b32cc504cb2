"""Traces in, figures out: formats, mistakes, chunking, and the command log."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hwmodel.measure.trace
from hwmodel.description.description import DescriptionError
from hwmodel.kernel.channel_state import EXACT_LATENCIES, LATENCY_BINS
from hwmodel.kernel.issue import latency_bin
from hwmodel.measure.open_loop import OpenLoop, longest_in_bin
from hwmodel.measure.replay import figures, replay, split
from hwmodel.measure.trace import TraceChunk
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import read_csv
from hwmodel.specs.device import Device, load_device
from tests.hwmodel.oracle.reference import simulate

LPDDR5 = "lpddr5-6400-x16"


def text(path: Path, count: int = 2000) -> Path:
    rng = np.random.default_rng(3)
    address = rng.integers(0, 1 << 25, count) * 32
    path.write_text("".join(f"{'RW'[i % 3 == 0]} {a:#x}\n" for i, a in enumerate(address.tolist())))
    return path


def same(a: dict, b: dict) -> bool:
    ignored = ("wall_s", "pattern")
    return {k: v for k, v in a.items() if k not in ignored} == {
        k: v for k, v in b.items() if k not in ignored
    }


@pytest.mark.parametrize("device", [LPDDR5, "mlu370-x4"])
def test_the_size_of_chunks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    trace = text(tmp_path / "t.txt")
    whole = replay(load_device(device), trace)
    monkeypatch.setattr(hwmodel.measure.trace, "CHUNK", 4)
    assert same(whole, replay(load_device(device), trace))


@pytest.mark.parametrize("name", [LPDDR5, "hbm2e-3.2", "mlu370-x4"])
def test_the_command_log_is_legal_and_complete(tmp_path: Path, name: str) -> None:
    device = load_device(name)
    log = tmp_path / "commands.csv"
    found = replay(device, text(tmp_path / "t.txt"), commands=log)
    logs = read_csv(device.memory, log)
    assert len(logs) == device.channels
    assert sum(len(part.tick) for _, part in logs) == sum(found["commands"].values())
    for _, part in logs:
        assert audit(device.memory, part) == []


def test_a_bad_trace_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(gzip.compress(b"R 0x20\n" * 5000, mtime=0)[:-20])
    with pytest.raises(DescriptionError, match="truncated or damaged gzip"):
        replay(load_device(LPDDR5), tmp_path / "t", commands=tmp_path / "commands.csv")
    assert not list(tmp_path.glob("commands*"))


def test_a_wrong_npz_is_the_users_mistake(tmp_path: Path) -> None:
    device = load_device(LPDDR5)
    np.savez(tmp_path / "x.npz", address=np.zeros(3, np.uint64))
    with pytest.raises(DescriptionError, match="has no array 'write'"):
        replay(device, tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(b"not a zip")
    with pytest.raises(DescriptionError, match=r"not an \.npz"):
        replay(device, tmp_path / "y.npz")


def traffic(device: Device, count: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(7)
    bursts = device.capacity_bytes // device.memory.organisation.burst_bytes
    address = chance.integers(0, bursts, count) * device.memory.organisation.burst_bytes
    return address, (chance.random(count) < 0.3).astype(np.int64)


def test_channels_in_threads_give_the_figures_of_one_thread() -> None:
    device = load_device("mlu370-x4")
    address, kind = traffic(device, 200_000)
    found = []
    for threads in (1, 3):
        run = OpenLoop(device.memory, device.channels, threads=threads)
        for part in range(0, len(address), 50_000):
            chunk = TraceChunk(address[part : part + 50_000], kind[part : part + 50_000])
            run.feed_all(split(device, chunk, False))
        run.finish()
        assert run.threads == threads
        found.append(figures(device, run, device.channels, "traffic") | {"threads": 0})
    assert same(*found)


def test_threads_are_as_many_as_there_is_work_for(tmp_path: Path) -> None:
    trace, device = text(tmp_path / "t.txt"), load_device("mlu370-x4")
    assert replay(device, trace)["threads"] == min(os.cpu_count() or 1, device.channels)
    assert replay(device, trace, single_channel=True)["threads"] == 1
    assert replay(device, trace, commands=tmp_path / "log.csv")["threads"] == 1


def test_forwarded_reads_and_reads_of_partial_writes_are_counted_apart(tmp_path: Path) -> None:
    """Sixteen writes, the odd ones of 8 bytes; then reads of the same bursts."""
    address = np.tile(np.arange(16) * 32, 2)
    write = np.arange(32) < 16
    size = np.where(write & (np.arange(32) % 2 == 1), 8, 32)
    np.savez(tmp_path / "t.npz", address=address, write=write, size=size)
    settings = ["controller.write_forwarding=true", "controller.refresh=none"]
    masked, modify = (
        replay(load_device(LPDDR5, [*settings, f"controller.partial_write={how}"]), file)
        for how, file in (("masked", tmp_path / "t.npz"), ("read_modify_write", tmp_path / "t.npz"))
    )
    assert masked["requests"] == modify["requests"] == 32
    assert masked["forwarded_requests"] == 8, "a masked write does not answer a read"
    assert masked["forwarded_bytes"] == 8 * 32 and masked["rmw_reads"] == 0
    assert masked["bytes"] == (32 - 8) * 32
    assert modify["rmw_reads"] == 8
    assert modify["bytes"] == (32 + 8 - modify["forwarded_requests"]) * 32


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (np.array([32, 0]), "0 B at index 1; expected 1 to 1,048,576 B"),
        (np.array([32, 1 << 21]), "2097152 B at index 1"),
        (np.array([32]), "as long as"),
        (np.array([32.0, 8.0]), "integers"),
    ],
)
def test_a_size_is_of_some_bytes(tmp_path: Path, size: np.ndarray, message: str) -> None:
    trace = tmp_path / "t.npz"
    np.savez(trace, address=np.array([0, 40], np.uint64), write=np.ones(2, bool), size=size)
    with pytest.raises(DescriptionError, match=message):
        replay(load_device(LPDDR5), trace)


def test_an_address_beyond_what_a_number_holds_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "t.npz"
    np.savez(trace, address=np.array([0, 1 << 63], np.uint64), write=np.zeros(2, bool))
    with pytest.raises(DescriptionError, match="beyond any memory"):
        replay(load_device(LPDDR5), trace)


RESIDENT = """
import re
from pathlib import Path
import numpy as np
from hwmodel.specs.device import load_device
from hwmodel.kernel.channel_state import EXACT_LATENCIES, LATENCY_BINS
from hwmodel.kernel.issue import latency_bin
from hwmodel.measure.open_loop import OpenLoop, longest_in_bin

def stream(bursts, chunk=1 << 18):
    chance = np.random.default_rng(1)
    for at in range(0, bursts, chunk):
        count = min(chunk, bursts - at)
        page = chance.integers(0, 1 << 18, count // 32 + 1)
        yield (page[:, None] * 32 + np.arange(32)).ravel()[:count] * 32

memory = load_device("lpddr5-6400-x16").memory
run = OpenLoop(memory)
fed, marks = 0, []
for burst in stream({bursts}):
    run.feed(0, burst, np.zeros(len(burst), np.int64))
    fed += len(burst)
    # ru_maxrss would begin at that of the process which started this one
    status = Path("/proc/self/status").read_text()
    marks.append((fed, int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1])))
run.finish()
assert run.total("requests") == {bursts}
print(next(kib for fed, kib in marks if fed >= 1_000_000), marks[-1][1])
"""


def resident_kib(bursts: int) -> tuple[int, int]:
    """Largest resident set after 1 M bursts and at the end, in a process of its own."""
    code = RESIDENT.format(bursts=bursts)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, last = map(int, done.stdout.split())
    return first, last


def test_memory_does_not_grow_with_the_stream() -> None:
    first, last = resident_kib(5_000_000)
    assert last - first < 4096, "KiB between 1 M and 5 M bursts"


@pytest.mark.long
def test_a_stream_of_100_million_bursts_stays_under_500_mib() -> None:
    _, last = resident_kib(100_000_000)
    assert last < 500 * 1024


def test_latency_quantiles_of_deep_queues_are_those_of_the_oracle() -> None:
    memory = load_device(
        "ddr5-4800-x32", ["controller.read_queue=256", "clock.ticks_per_ck=4"]
    ).memory
    address = np.random.default_rng(5).integers(0, 1 << 28, 700) * 64
    run = OpenLoop(memory)
    run.feed(0, address, np.zeros(700, np.int64))
    run.finish()
    found = run.latency_ns()
    requests = [(0, int(a), 0) for a in address]
    exact = np.sort(simulate(memory, requests).read_latency_ticks)
    assert exact[len(exact) // 2] >= EXACT_LATENCIES
    assert found is not None
    tick_ns = memory.tick_clock.ns_of_ticks(1)
    assert found["max"] == exact[-1] * tick_ns
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        at = exact[int(np.ceil(share * len(exact))) - 1] * tick_ns
        assert at <= found[name] <= at * (1 + 1 / 128)
    assert found["p50"] < found["p99"] < found["max"]


@pytest.mark.parametrize("ticks", [2047, 2048, 2063, 2064, 4095, 4096, 10**6, 2**40, 2**60])
def test_no_latency_leaves_the_histogram(ticks: int) -> None:
    number = ticks if ticks < EXACT_LATENCIES else int(latency_bin.py_func(ticks))
    assert number < LATENCY_BINS
    assert ticks <= longest_in_bin(number) <= ticks * (1 + 1 / 128)
    assert longest_in_bin(number - 1) < ticks
