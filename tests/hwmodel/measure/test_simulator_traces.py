"""Is a trace the requests of the memory model, and does each format give the same figures again?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.kernel.address import decode, encode, to_device
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure import trace_writer as writing
from hwmodel.measure.issued import Issued, Issuer
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.replay import replay
from hwmodel.measure.simulator_traces import FORMATS
from hwmodel.measure.trace import read_trace
from hwmodel.measure.trace_writer import trace_writer
from hwmodel.specs.device import Device, load_device

BY_NAME = {form.name: form for form in FORMATS}
DEVICE = "mlu370-x4"


def stream(align: int = 32, count: int = 300) -> Descriptors:
    """Extents of a few engines at random places, every fifth written."""
    rng = np.random.default_rng(5)
    engine = np.sort(rng.integers(0, 6, count))
    start = rng.choice(1 << 20, count, replace=False) * (8192 // align) * align
    size = rng.integers(1, 4096 // align, count) * align
    return Descriptors(engine, start + (8 if align == 8 else 0), size, np.arange(count) % 5 == 0)


def issue(device: Device, descriptors: Descriptors) -> Issued:
    parts = list(Issuer(device).issue(descriptors))
    return Issued(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def write(
    path: Path, device: Device, issued: Issued, name: str, channel: int | None = None
) -> writing.TraceWriter:
    with trace_writer(path, BY_NAME[name], device, channel, False, "a remark") as writer:
        writer.add(issued)
    return writer


def figures(*args: Any, **kwargs: Any) -> dict[str, Any]:
    found = replay(*args, **kwargs)
    return {key: value for key, value in found.items() if key not in ("wall_s", "pattern")}


@pytest.mark.parametrize("name", [DEVICE, "a100-80gb"])
@pytest.mark.parametrize("align", [32, 8])
def test_channels_given_the_issued_requests_at_their_ticks_do_what_the_system_did(
    name: str, align: int
) -> None:
    device, descriptors = load_device(name), stream(align)
    issuer = Issuer(device)
    parts = list(issuer.issue(descriptors))
    issued = Issued(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    whole = simulate_system(device, descriptors)
    assert device.memory.tick_clock.ns_of_ticks(issuer.tick) == whole.elapsed_ns
    assert issued.size.sum() >= whole.total_bytes and (np.diff(issued.tick) >= 0).all()
    burst = device.memory.organisation.burst_bytes
    run = OpenLoop(device.memory, device.channels)
    for channel in range(device.channels):
        mine = issued.channel == channel
        count = (issued.local[mine] % burst + issued.size[mine] - 1) // burst + 1
        of = np.repeat(np.flatnonzero(mine), count)
        nth = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        local = issued.local[of] // burst * burst + nth * burst
        run.feed(channel, local, issued.kind[of], issued.tick[of])
    run.finish()
    found = run.total("hits"), run.total("misses"), run.total("conflicts"), run.end_tick
    assert found == (whole.row_hits, whole.row_misses, whole.row_conflicts, issuer.tick)
    assert run.total("requests") == whole.bursts


def test_every_byte_that_is_written_is_there_with_its_size() -> None:
    device, descriptors = load_device(DEVICE, ["dma.minimum_access=32B"]), stream(8)
    issued = issue(device, descriptors)
    partial = issued.kind == PARTIAL_WRITE
    assert partial.any() and (issued.size[partial] < 32).all()
    written = issued.kind != READ
    at = to_device(device, issued.channel, issued.local)[written]
    found = np.concatenate(
        [np.arange(a, a + n) for a, n in zip(at, issued.size[written], strict=True)]
    )
    extents = zip(*(column[descriptors.write] for column in descriptors[1:3]), strict=True)
    assert np.array_equal(
        np.sort(found), np.sort(np.concatenate([np.arange(a, a + n) for a, n in extents]))
    )


@pytest.mark.parametrize("channel", [None, 3])
@pytest.mark.parametrize("name", [DEVICE, "a100-80gb"])
def test_every_format_gives_the_same_figures(
    tmp_path: Path, name: str, channel: int | None
) -> None:
    device = load_device(name)
    issued = issue(device, stream(32))
    one = channel is not None
    files = {"ours.npz": "bankwise", "ours.gz": "bankwise"} | {form: form for form in BY_NAME}
    found = {}
    for file, form in files.items():
        writer = write(tmp_path / file, device, issued, form, channel)
        assert (writer.partial_writes, writer.writes > 0) == (0, True)
        found[file] = figures(device, tmp_path / file, single_channel=one, at_once=True)
    assert found["ours.npz"]["requests"] == writer.accesses
    assert all(each == found["ours.npz"] for each in found.values())
    assert {path.name for path in tmp_path.iterdir()} == set(files), "nothing half-written"


def test_lines_are_what_the_simulators_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHUNK", 1)
    device = load_device("lpddr5-6400-x16")  # one channel, 32 B, 4 groups of 4, tick of 1.25 ns
    columns = [[8, 20], [0, 0], [0x1F40, 0x2000], [64, 16], [READ, PARTIAL_WRITE]]
    issued = Issued(*(np.array(column, np.int64) for column in columns))
    expected = {
        "bankwise": ["# a remark", "R 0x1f40", "R 0x1f60", "W 0x2000"],
        "ramulator": ["LD 0x1f40", "LD 0x1f60", "ST 0x2000"],
        "dramsim3": ["0x1F40 READ 8", "0x1F60 READ 8", "0x2000 WRITE 20"],
        "gem5": ["r,8000,64,10000", "w,8192,16,25000"],
    }
    for name, lines in expected.items():
        write(tmp_path / name, device, issued, name)
        assert (tmp_path / name).read_text().splitlines() == lines
    write(tmp_path / "v", device, issued, "ramulator-vector")
    bank, row, column = decode(device.memory, np.array([0x1F40, 0x1F60, 0x2000]))
    vectors = zip("RRW", bank // 4, bank % 4, row, column, strict=True)
    lines = [f"{kind} 0,0,{group},{inner},{r},{c}" for kind, group, inner, r, c in vectors]
    assert (tmp_path / "v").read_text().splitlines() == lines


@pytest.mark.parametrize("name", ["lpddr5-6400-x16", "hbm3-6.4", "ddr5-4800-x32"])
def test_encode_is_the_inverse_of_decode(name: str) -> None:
    memory = load_device(name).memory
    o = memory.organisation
    local = np.random.default_rng(1).integers(0, o.capacity_bytes // o.burst_bytes, 2000)
    assert np.array_equal(
        encode(memory, *decode(memory, local * o.burst_bytes)), local * o.burst_bytes
    )


def test_a_large_packet_is_its_bursts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwmodel.measure.trace.CHUNK", 4)
    (tmp_path / "t").write_text("w,16,100,7\nr,0,1,9\n")
    chunks = list(read_trace(tmp_path / "t", load_device("lpddr5-6400-x16"), True))
    address, kind, arrival = (np.concatenate(column) for column in zip(*chunks, strict=True))
    assert np.diff(arrival).max() == 0, "2 ps are no tick"
    assert (address // 32).tolist() == [0, 1, 2, 3, 0]
    assert kind.tolist() == [PARTIAL_WRITE, WRITE, WRITE, PARTIAL_WRITE, READ]


def test_accesses_arrive_at_the_times_of_a_trace(tmp_path: Path) -> None:
    """Reads far apart wait for nobody; from the first on, whenever that is; out of order they
    follow those before."""
    device = load_device("lpddr5-6400-x16")
    ck = float(device.memory.clock.tCK)
    cycles = [500 + 1000 * i for i in range(20)]
    ps = [round(cycle * ck * 1000) for cycle in cycles]
    texts = {
        "plain": [f"R {i * 4096:#x}" for i in range(20)],
        "dramsim3": [f"{i * 4096:#x} READ {cycle}" for i, cycle in enumerate(cycles)],
        "gem5": [f"r,{i * 4096},32,{time}" for i, time in enumerate(ps)],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines))
    np.savez(
        tmp_path / "ours.npz", address=np.arange(20) * 4096, write=np.zeros(20, bool),
        picosecond=np.array(ps),
    )  # fmt: skip
    plain = replay(device, tmp_path / "plain", single_channel=True)
    assert not plain["timed"]
    for name in ("dramsim3", "gem5", "ours.npz"):
        timed = replay(device, tmp_path / name, single_channel=True)
        assert timed["timed"] and 19_000 < timed["cycles"] < 19_200, name
        assert timed["latency_ns"]["p50"] < plain["latency_ns"]["p50"]
        again = figures(device, tmp_path / name, single_channel=True, at_once=True)
        assert again == figures(device, tmp_path / "plain", single_channel=True)
    (tmp_path / "back").write_text("0x0 READ 900\n0x1000 READ 100\n0x2000 READ 1900\n")
    assert 1000 < replay(device, tmp_path / "back", single_channel=True)["cycles"] < 1200
