"""Do channels that a host drives by calls do what `replay` does, however the calls are cut?"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bankwise
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, WRITE
from hwmodel.kernel.timing import lower
from hwmodel.measure.channels import Channels, Completions
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.replay import figures, split
from hwmodel.measure.simulator_traces import kinds, to_bursts
from hwmodel.measure.trace import TraceChunk
from hwmodel.measure.trace_format import Accesses
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.device import Device, load_device
from tests.hwmodel.memories import Case, cases
from tests.hwmodel.one_channel import simulate_channel
from tests.rotation import LONG

LPDDR5 = "lpddr5-6400-x16"
OWN = ("wall_s", "threads", "pattern")
Stream = tuple[np.ndarray, ...]
"""tick, address, size, write."""


def stream(device: Device, count: int, gap: float, seed: int = 1) -> Stream:
    """Accesses of 1 to 2,000 bytes, a third of them writes, half of them to a few lines."""
    chance = np.random.default_rng(seed)
    tick = np.cumsum(chance.poisson(gap, count))
    size = chance.integers(1, 2_000, count)
    far = chance.integers(0, device.capacity_bytes - 2_000, count)
    near = chance.integers(0, 4_000, count)
    return tick, np.where(chance.random(count) < 0.5, far, near), size, chance.random(count) < 0.3


def replayed(device: Device, accesses: Stream) -> dict[str, Any]:
    """The figures of `replay` for the bursts of a stream."""
    tick, address, size, write = accesses
    each = to_bursts(Accesses(address, write.astype(np.int64), size, tick, tick),
                     device.memory.organisation.burst_bytes)  # fmt: skip
    kind = kinds(each.write, each.size, device.memory.organisation.burst_bytes)
    run = OpenLoop(device.memory, device.channels)
    run.feed_all(split(device, TraceChunk(each.address, kind, each.cycle), False))
    run.finish()
    return shown(figures(device, run, device.channels, ""))


def shown(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in OWN}


def joined(parts: list[Completions]) -> list[tuple[int, int]]:
    """(tick, tag) of all, in order."""
    return sorted((int(k), int(g)) for part in parts for g, k in zip(*part, strict=True))


def driven(channels: Channels, accesses: Stream, stops: list[int], first: bool = False) -> Any:
    """Completions and figures where the host stops at ticks and submits what arrives until the next
    of them; `first`: at each completion as well."""
    found, begin = [], 0
    for stop in [*stops, None]:
        end = len(accesses[0]) if stop is None else int(np.searchsorted(accesses[0], stop))
        channels.submit(*(part[begin:end] for part in accesses), tag=np.arange(begin, end))
        begin = end
        while first and stop is not None and channels.now < stop:
            found.append(channels.next_completions(stop))
            assert len(set(found[-1].tick.tolist()) | {channels.now}) == 1
        found.append(channels.drain() if stop is None else channels.advance(stop))
    for part in found:
        assert (np.diff(part.tick) >= 0).all()
    assert channels.outstanding == 0
    return joined(found), shown(channels.statistics())


@settings(max_examples=500 if LONG else 15)
@given(case=cases(), data=st.data())
def test_any_split_of_a_stream_gives_the_commands_of_replay(case: Case, data: Any) -> None:
    tick, address, kind = map(np.array, zip(*case.requests, strict=True))
    tick = np.maximum.accumulate(tick)
    expected = simulate_channel(case.memory, tick, address, kind)
    device = Device("generated", case.memory, None, {}, {})
    burst = case.memory.organisation.burst_bytes
    size = np.where(kind == PARTIAL_WRITE, 1, burst)
    accesses = tick, address // burst * burst, size, kind >= WRITE
    stops = sorted(data.draw(st.lists(st.integers(0, int(tick[-1])), max_size=6)))
    whole = driven(Channels(device), accesses, [])
    for first in (False, True):
        channels = Channels(device, keep_commands=True)
        assert driven(channels, accesses, stops, first) == whole
        got = channels.commands()[0]
        assert all(map(np.array_equal, got, expected.commands))
    assert len(whole[0]) == len(tick)
    assert whole[1]["forwarded_requests"] == expected.forwarded


CHECKED = ["controller.inline_ecc=8", "controller.partial_write=read_modify_write"]


@pytest.mark.parametrize(
    ("name", "gap", "settings"),
    [
        (LPDDR5, 1, []), (LPDDR5, 60, []), ("hbm2e-3.2", 20, []), ("mlu370-x4", 3, []),
        (LPDDR5, 1, CHECKED), ("mlu370-x4", 3, [*CHECKED, "capacity=21GiB"]),
    ],
)  # fmt: skip
def test_any_split_gives_the_completions_of_one_batch_and_the_figures_of_replay(
    name: str, gap: float, settings: list[str]
) -> None:
    device = load_device(name, settings)
    accesses = stream(device, 400, gap)
    whole = driven(Channels(device), accesses, [])
    assert whole[1] == replayed(device, accesses)
    assert sorted(tag for _, tag in whole[0]) == list(range(400))
    last = int(accesses[0][-1])
    for stops in ([last // 2], list(range(0, last, 97 + last // 50)), [1, 2, last // 3, last]):
        assert driven(Channels(device), accesses, stops) == whole
    assert driven(Channels(device), accesses, [last], first=True) == whole


def test_an_access_completes_at_the_end_of_its_last_data() -> None:
    device = load_device(LPDDR5)
    channels = Channels(device, keep_commands=True)
    count = 600
    place = np.random.default_rng(5).permutation(count) * 4096
    write = np.arange(count) % 3 == 0
    channels.submit(np.arange(count) * 20, place, 64, write)
    tick = dict(zip(*channels.drain(), strict=True))
    read_end, write_end = lower(device.memory)["data_end"][0].tolist()
    log = channels.commands()[0]
    reads = log.tick[log.command == CODE["RD"]] + read_end
    writes = log.tick[log.command == CODE["WR"]] + write_end
    ends = np.array([tick[tag] for tag in range(count)])
    assert set(ends[~write]) <= set(reads.tolist()) and set(ends[write]) <= set(writes.tolist())
    assert len(reads) == 2 * (~write).sum() and len(writes) == 2 * write.sum()
    latency = channels.statistics()["latency_ns"]["max"]
    assert ends[~write].max() >= reads.max() and latency > 0


def test_a_read_that_a_waiting_write_answers_completes_a_tick_after_it_is_taken() -> None:
    channels = Channels(load_device(LPDDR5, ["controller.write_forwarding=true"]))
    channels.submit([0, 7], [64, 64], write=[True, False])
    found = channels.drain()
    assert found.tag.tolist() == [1, 0] and found.tick[0] == 8
    assert channels.statistics()["forwarded_requests"] == 1


@pytest.mark.parametrize(
    ("name", "outstanding"), [(LPDDR5, 1), (LPDDR5, 300), ("mlu370-x4", 7), ("mlu370-x4", 100)]
)
def test_a_closed_loop_is_that_of_a_host_that_waits_for_each_completion(
    name: str, outstanding: int
) -> None:
    device = load_device(name)
    _, address, size, write = stream(device, 200, 0)
    closed = Channels(device, outstanding=outstanding)
    closed.submit(0, address, size, write)
    cut = joined([closed.advance(100), closed.advance(500), closed.drain()])
    host, found, begun = Channels(device), [], min(outstanding, 200)
    host.submit(0, address[:begun], size[:begun], write[:begun])
    while len(joined(found)) < 200:
        found.append(host.next_completions(host.now + 1_000_000))
        end = min(200, begun + len(found[-1].tag))
        part = slice(begun, end)
        host.submit(np.full(end - begun, host.now), address[part], size[part], write[part])
        begun = end
    assert cut == joined(found)
    assert shown(closed.statistics()) == shown(host.statistics())


def test_refreshes_of_idle_time_are_issued_when_an_access_arrives() -> None:
    channels = Channels(load_device(LPDDR5))
    assert len(channels.advance(100_000).tag) == 0 and channels.now == 100_000
    idle = channels.statistics()
    assert idle["requests"] == 0 and sum(idle["commands"].values()) == 0
    assert idle["energy"]["background_precharged"] > 0
    channels.submit(100_000, 0)
    assert channels.drain().tick[0] > 100_000
    found = channels.statistics()["commands"]
    assert found["REFAB"] + found["REFPB"] > 10


def test_a_snapshot_goes_back_with_all_that_is_under_way() -> None:
    device = load_device("mlu370-x4")
    tick, *rest = stream(device, 2_000, 2)
    channels = Channels(device, keep_commands=True)
    channels.submit(tick, *rest)
    begin = channels.advance(int(tick[1_000]))
    saved = pickle.loads(pickle.dumps(channels.snapshot()))
    end, figures_then = channels.drain(), shown(channels.statistics())
    for other in (channels, Channels(device, keep_commands=True)):
        other.restore(saved)
        again = other.drain()
        assert joined([again]) == joined([end]) and shown(other.statistics()) == figures_then
        commands = sum(len(log.tick) for log in other.commands())
        assert commands == sum(figures_then["commands"].values())
    assert len(begin.tag) + len(end.tag) == 2_000
    with pytest.raises(ValueError, match="another memory"):
        Channels(load_device(LPDDR5)).restore(saved)


def test_the_log_of_commands_is_that_of_replay(tmp_path: Path) -> None:
    address = np.random.default_rng(1).integers(0, 1 << 24, 3_000) * 32
    np.savez(tmp_path / "t.npz", address=address.astype(np.uint64), write=address % 5 == 0)
    bankwise.replay(LPDDR5, tmp_path / "t.npz", commands=tmp_path / "replay.csv")
    channels = bankwise.open_device(LPDDR5, keep_commands=True)
    channels.submit(0, address, write=address % 5 == 0)
    channels.advance(20_000)
    assert audit(channels.device.memory, channels.commands()[0]) == []
    channels.drain()
    channels.write_commands(tmp_path / "calls.csv")
    assert (tmp_path / "calls.csv").read_bytes() == (tmp_path / "replay.csv").read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tick": [10, 9]}, "tick 9 at index 1 is before now, which is 10"),
        ({"tick": 1 << 43}, "beyond 4398046511104"),
        ({"size": [32, -1]}, "size -1 at index 1; expected at least 1 B"),
        ({"address": [-32, 0]}, "32 B from address -0x20 at index 0 lie outside the"),
        ({"address": [0, 1 << 30]}, "lie outside the 1073741824 B"),
        ({"address": 0, "size": 1 << 62}, "lie outside"),
        ({"tag": [1]}, "arrays are of unequal length: address 2, tag 1"),
        ({"tag": np.array([0, 1 << 63], np.uint64)}, "tag: 9223372036854775808 does not fit"),
        ({"tag": [0, 1 << 70]}, "tag: expected whole numbers of 64 bits"),
        ({"tick": [10.5, 11.5]}, "tick: expected whole numbers"),
        ({"address": [[0, 32]]}, "address: expected whole numbers of 64 bits, one or a row"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_submits_nothing(given: Any, message: str) -> None:
    channels = Channels(load_device(LPDDR5))
    channels.advance(10)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        channels.submit(**{"tick": 10, "address": [0, 32], **given})
    assert message in str(error.value)
    assert channels.outstanding == 0


def test_time_does_not_go_back_and_nobody_waits_for_nothing() -> None:
    channels = Channels(load_device(LPDDR5))
    channels.advance(10)
    with pytest.raises(ValueError, match="tick 9; expected a whole number from 10, which is now"):
        channels.advance(9)
    with pytest.raises(ValueError, match="outstanding is 0; expected at least 1"):
        bankwise.open_device(LPDDR5, outstanding=0)
    with pytest.raises(ValueError, match="open with keep_commands=True"):
        channels.commands()
    assert len(channels.submit([], [])) == 0 and len(channels.drain().tag) == 0
