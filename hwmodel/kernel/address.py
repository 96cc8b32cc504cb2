"""Where an address lives: device address -> channel and local address -> bank, row, column.

Blocks of `interleave` bytes go round the channels. With N channels, block b is the r-th of its row
q (b = q N + r) and lies in channel r (`none`), (r + q) mod N (`rotate`), or r XOR (q mod N)
(`xor`); its place in the channel is always q. Every form is a bijection for any N (`xor`: powers
of two).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import inlined
from hwmodel.kernel.timing import lower
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec

Int = NDArray[np.int64]
HASH_NONE, HASH_ROTATE, HASH_XOR = 0, 1, 2
CHANNEL_HASHES = {"none": HASH_NONE, "rotate": HASH_ROTATE, "xor": HASH_XOR}


@inlined
def channel_of(block: int, channels: int, hashed: int) -> tuple[int, int]:
    """(channel, number of the block in it) of a block of the interleave; `hashed`: HASH_NONE,
    HASH_ROTATE or HASH_XOR. Python gives it arrays, too."""
    row = block // channels
    channel = block - row * channels
    if hashed == HASH_ROTATE:
        channel = (channel + row) % channels
    elif hashed == HASH_XOR:
        channel = channel ^ (row & (channels - 1))
    return channel, row


def to_channel(device: Device, address: Int) -> tuple[Int, Int]:
    """(channel, local byte address) of device byte addresses, both shape (n,)."""
    if device.accelerator is None:
        return np.zeros_like(address), address
    a = device.accelerator
    block, within = np.divmod(address, a.interleave)
    split = channel_of.py_func(block, a.channels, CHANNEL_HASHES[a.channel_hash])  # type: ignore[attr-defined]
    return split[0], split[1] * a.interleave + within


def by_channel(channel: Int, count: int) -> list[Int]:
    """Places in `channel` (n,) of the accesses of each of `count` channels, in order."""
    order = np.argsort(channel, kind="stable")
    edges = np.searchsorted(channel[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(edges)]


def to_device(device: Device, channel: Int, local: Int) -> Int:
    """Device byte addresses of (channel, local byte address): the inverse of `to_channel`."""
    if device.accelerator is None:
        return local
    size, count = device.accelerator.interleave, device.channels
    row, within = np.divmod(local, size)
    place = channel
    if device.accelerator.channel_hash == "rotate":
        place = (channel - row) % count
    elif device.accelerator.channel_hash == "xor":
        place = channel ^ (row & (count - 1))
    return (row * count + place) * size + within


def decode(memory: MemorySpec, local: Int) -> tuple[Int, Int, Int]:
    """(flat bank, row, column) of local byte addresses; banks numbered pseudo-channel outermost."""
    c = lower(memory)[0]
    burst = local // memory.organisation.burst_bytes
    column, bank, row = np.zeros_like(burst), np.zeros_like(burst), np.zeros_like(burst)
    for right, mask, left, destination in c["fields"][: c["n_fields"]]:
        (column, bank, row)[destination][...] |= ((burst >> right) & mask) << left
    rest = burst >> c["odd_from"]
    for values, left, destination in c["odd"][: c["n_odd"]]:
        rest, part = np.divmod(rest, values)
        (column, bank, row)[destination][...] |= part << left
    for row_bit, mask, left in c["hashes"][: c["n_hashes"]]:
        bank ^= ((row >> row_bit) & mask) << left
    return bank, row, column


def encode(memory: MemorySpec, bank: Int, row: Int, column: Int) -> Int:
    """Local byte addresses of (flat bank, row, column), as wide as they are: the inverse of
    `decode`."""
    c = lower(memory)[0]
    bank = bank.copy()
    for row_bit, mask, left in c["hashes"][: c["n_hashes"]]:
        bank ^= ((row >> row_bit) & mask) << left
    burst = np.zeros_like(bank)
    for values, left, destination in c["odd"][: c["n_odd"]][::-1]:
        mask = (1 << (int(values) - 1).bit_length()) - 1
        burst = burst * values + (((column, bank, row)[destination] >> left) & mask)
    burst <<= c["odd_from"]
    for right, mask, left, destination in c["fields"][: c["n_fields"]]:
        burst |= (((column, bank, row)[destination] >> left) & mask) << right
    return burst * memory.organisation.burst_bytes
