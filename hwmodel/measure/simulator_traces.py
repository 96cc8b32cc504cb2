"""Text formats of access traces: what a line of each says, and how it is read and written.

- `bankwise`: `R 0x1f40` or `W 0x1f40`;
- `ramulator`: `LD 0x1f40` or `ST 0x1f40`, the LoadStoreTrace of Ramulator 2.0 and 2.1, which maps
  the address itself (src/ramulator/frontend/impl/memory_trace/loadstore_trace.cpp);
- `ramulator-vector`: `R 0,0,1,2,100,32`, its ReadWriteTrace (readwrite_trace.cpp): channel,
  pseudo-channel (where there is more than one), rank (where there is more than one, or no
  pseudo-channel), stack (where there is more than one), bank group, bank, row, column in bursts;
- `dramsim3`: `0x1F40 READ 30`, address, READ or WRITE, cycle (DRAMsim3, src/common.cc);
- `gem5`: `r,8000,64,4000`, command, decimal address, bytes, tick of 1 ps, as gem5's
  util/encode_packet_trace.py takes it.

In all but gem5's a line is one burst; gem5's has a size, and may be several or a part of one.
The last two have times, at which accesses arrive when a trace is read: cycles of the memory's
clock, and ps, to the nearest tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.kernel.address import decode, encode, to_channel, to_device
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE
from hwmodel.kernel.timing import Int
from hwmodel.specs.device import Device

MOST_BYTES = 1 << 20
"""Of one line."""


class Accesses(NamedTuple):
    """Accesses in order; int64 (n,)."""

    address: Int
    """Bytes, of the device or, where only one channel is meant, of that channel."""
    write: Int
    size: Int
    """Bytes."""
    cycle: Int
    """When it reaches its channel, in clock cycles of the memory."""
    picosecond: Int


Parsed = tuple[list[int], int, int, int]


class Format(NamedTuple):
    """A text format. `parse`: the fields of a line -> (numbers of the address, kind, bytes or 0
    for a burst, time or 0), or ValueError or KeyError."""

    name: str
    example: str
    lacks: str
    """What it does not keep."""
    parse: Callable[[list[bytes]], Parsed]
    lines: Callable[[Accesses], Iterator[str]]
    separator: bytes | None = None
    sized: bool = False
    """Whether a line has a size; else it is a burst."""
    vector: bool = False
    """Whether a line has a number for each level instead of an address."""
    time: Literal["", "cycle", "picosecond"] = ""
    """What the time of a line counts; nothing where it has none."""


_LETTERS = {b"R": READ, b"r": READ, b"W": WRITE, b"w": WRITE}
_LOADS = {b"LD": READ, b"ST": WRITE}
_WORDS = {b"READ": READ, b"read": READ, b"WRITE": WRITE, b"write": WRITE}


def _plain(kinds: dict[bytes, int]) -> Callable[[list[bytes]], Parsed]:
    def parse(fields: list[bytes]) -> Parsed:
        kind, number = fields
        return [int(number, 0)], kinds[kind], 0, 0

    return parse


def _parse_vector(fields: list[bytes]) -> Parsed:
    kind, numbers = fields
    return [int(number) for number in numbers.split(b",")], _LETTERS[kind], 0, 0


def _parse_dramsim3(fields: list[bytes]) -> Parsed:
    address, word, cycle = fields
    return [int(address, 16)], _WORDS[word], 0, int(cycle)


def _parse_gem5(fields: list[bytes]) -> Parsed:
    kind, address, size, tick = fields
    if not 1 <= int(size) <= MOST_BYTES:
        raise ValueError
    return [int(address)], _LETTERS[kind], int(size), int(tick)


def _two_words(read: str, write: str) -> Callable[[Accesses], Iterator[str]]:
    def lines(a: Accesses) -> Iterator[str]:
        for address, kind in zip(a.address.tolist(), a.write.tolist(), strict=True):
            yield f"{write if kind else read} {address:#x}\n"

    return lines


def _lines_of_vectors(a: Accesses) -> Iterator[str]:
    for vector, kind in zip(a.address.tolist(), a.write.tolist(), strict=True):
        yield f"{'W' if kind else 'R'} {','.join(map(str, vector))}\n"


def _lines_of_dramsim3(a: Accesses) -> Iterator[str]:
    for address, kind, cycle in zip(
        *(x.tolist() for x in (a.address, a.write, a.cycle)), strict=True
    ):
        yield f"0x{address:X} {'WRITE' if kind else 'READ'} {cycle}\n"


def _lines_of_gem5(a: Accesses) -> Iterator[str]:
    columns = (x.tolist() for x in (a.write, a.address, a.size, a.picosecond))
    for kind, address, size, tick in zip(*columns, strict=True):
        yield f"{'w' if kind else 'r'},{address},{size},{tick}\n"


FORMATS = (
    Format(
        "bankwise", "R 0x1f40", "times; writes of less than a burst become whole ones",
        _plain(_LETTERS), _two_words("R", "W"),
    ),
    Format(
        "ramulator", "LD 0x1f40", "times; writes of less than a burst become whole ones",
        _plain(_LOADS), _two_words("LD", "ST"),
    ),
    Format(
        "ramulator-vector", "R 0,0,1,2,100,32",
        "times; writes of less than a burst become whole ones",
        _parse_vector, _lines_of_vectors, vector=True,
    ),
    Format(
        "dramsim3", "0x1F40 READ 30", "writes of less than a burst become whole ones",
        _parse_dramsim3, _lines_of_dramsim3, time="cycle",
    ),
    Format(
        "gem5", "r,8000,64,4000", "the channel map of the device",
        _parse_gem5, _lines_of_gem5, separator=b",", sized=True, time="picosecond",
    ),
)  # fmt: skip


def format_of(line: bytes) -> Format | None:
    """The format of which this is a line; None where it is of none."""
    for each in FORMATS:
        try:
            each.parse(line.split(each.separator))
        except (ValueError, KeyError):
            continue
        return each
    return None


def to_bursts(a: Accesses, burst_bytes: int) -> Accesses:
    """Each access as those of the bursts that it touches, with the size of what it moves there."""
    first, end = a.address // burst_bytes, a.address + a.size
    count = (end - 1) // burst_bytes - first + 1
    of = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    low = np.maximum(a.address[of], (first[of] + nth) * burst_bytes)
    high = np.minimum(end[of], (first[of] + nth + 1) * burst_bytes)
    return Accesses(low, a.write[of], high - low, a.cycle[of], a.picosecond[of])


def kinds(write: Int, size: Int, burst_bytes: int) -> Int:
    """READ, WRITE or PARTIAL_WRITE of accesses within a burst each."""
    return np.where(write == 0, READ, np.where(size < burst_bytes, PARTIAL_WRITE, WRITE))


def level_sizes(device: Device, single_channel: bool) -> list[int]:
    """Instances of each level of a vector, the channel first."""
    o = device.memory.organisation
    inner = [
        *([o.pseudochannels] if o.pseudochannels > 1 else []),
        *([o.ranks] if o.ranks > 1 or o.pseudochannels == 1 else []),
        *([o.stacks] if o.stacks > 1 else []),
    ]
    channels = 1 if single_channel else device.channels
    return [channels, *inner, o.bankgroups, o.banks_per_group, o.rows, o.columns]


def level_names(device: Device) -> list[str]:
    """Names of the levels of `level_sizes`."""
    o = device.memory.organisation
    return [
        "channel",
        *(["pseudo-channel"] if o.pseudochannels > 1 else []),
        *(["rank"] if o.ranks > 1 or o.pseudochannels == 1 else []),
        *(["stack"] if o.stacks > 1 else []),
        *("bank group", "bank", "row", "column"),
    ]


def to_vectors(device: Device, address: Int, single_channel: bool) -> Int:
    """(n, levels) of `ramulator-vector` for byte addresses as in `Accesses`."""
    channel, local = np.zeros_like(address), address
    if not single_channel:
        channel, local = to_channel(device, address)
    bank, row, column = decode(device.memory, local)
    levels = np.unravel_index(bank, level_sizes(device, single_channel)[1:-2])
    return np.stack([channel, *levels, row, column], 1)


def to_addresses(device: Device, vector: Int, single_channel: bool) -> Int:
    """The inverse of `to_vectors`."""
    columns = [np.ascontiguousarray(column) for column in vector.T]
    sizes = level_sizes(device, single_channel)
    bank = np.ravel_multi_index(tuple(columns[1:-2]), sizes[1:-2]).astype(np.int64)
    local = encode(device.memory, bank, columns[-2], columns[-1])
    return local if single_channel else to_device(device, columns[0], local)
