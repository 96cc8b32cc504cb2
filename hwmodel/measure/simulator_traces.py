"""Access traces of simulators: which text formats there are, and the places that they name.

In all but gem5's a line is one burst. Times, where a format has them, are those at which accesses
arrive when a trace is read: cycles of the memory's clock, and ps, to the nearest tick.
"""

from __future__ import annotations

import numpy as np

from hwmodel.kernel.address import decode, encode, to_channel, to_device
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE
from hwmodel.kernel.limits import Int
from hwmodel.measure.trace_format import Accesses, Format
from hwmodel.measure.trace_formats.bankwise import FORMAT as BANKWISE
from hwmodel.measure.trace_formats.csv_columns import of_header
from hwmodel.measure.trace_formats.dramsim3 import FORMAT as DRAMSIM3
from hwmodel.measure.trace_formats.gem5 import FORMAT as GEM5
from hwmodel.measure.trace_formats.ramulator import FORMAT as RAMULATOR
from hwmodel.measure.trace_formats.ramulator_vector import FORMAT as RAMULATOR_VECTOR
from hwmodel.specs.device import Device

FORMATS: tuple[Format, ...] = (BANKWISE, RAMULATOR, RAMULATOR_VECTOR, DRAMSIM3, GEM5)
"""In the order in which they are tried."""


def format_of(line: bytes) -> Format | None:
    """The format of which this is a line; None where it is of none."""
    for each in FORMATS:
        try:
            each.parse(line.split(each.separator))
        except (ValueError, KeyError):
            continue
        return each
    return of_header(line)


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
