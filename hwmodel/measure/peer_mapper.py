"""Byte addresses that another simulator's own mapper decodes to the places of our map.

- `RoBaRaCoCh`, `ChRaBaRoCo`: Ramulator 2.1 (src/ramulator/controller/addr_mapper/impl), the channel
  by CacheLineInterleave with `interleave_bits` 0, right above the burst;
- `rochrababgco` or another order of these six: DRAMsim3's `address_mapping` (src/configuration.cc),
  the most significant first. It has no pseudo-channels and no stacks: ours are its channels, ranks.

The other simulator must have our organisation and burst.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.kernel.limits import Int
from hwmodel.measure.simulator_traces import level_names, level_sizes, to_vectors
from hwmodel.specs.device import Device

RAMULATOR = ("RoBaRaCoCh", "ChRaBaRoCo")
_LEVELS = {
    "ch": ("pseudo-channel", "channel"), "ra": ("stack", "rank"), "bg": ("bank group",),
    "ba": ("bank",), "ro": ("row",), "co": ("column",),
}  # fmt: skip
"""Of a field of DRAMsim3's, from the least significant up."""


class PeerMapper(NamedTuple):
    """`order`: indices into a vector of levels, from the least significant up; `bits` of each."""

    name: str
    order: tuple[int, ...]
    bits: tuple[int, ...]

    def encode(self, device: Device, address: Int, single_channel: bool) -> Int:
        """Addresses for the peer's mapper, (n,), of byte addresses of our map."""
        vectors = to_vectors(device, address, single_channel)
        burst, shift = np.zeros_like(address), 0
        for level, bits in zip(self.order, self.bits, strict=True):
            burst |= vectors[:, level] << shift
            shift += bits
        return burst * device.memory.organisation.burst_bytes


def peer_mapper(name: str, form: str, device: Device, single_channel: bool) -> PeerMapper:
    """The mapper of the peer that reads `form`. Raises DescriptionError for an unknown name, and
    for a level that is no power of two, which no peer's mapper has."""
    names, sizes = level_names(device), level_sizes(device, single_channel)
    column, row = len(names) - 1, len(names) - 2
    if form == "ramulator":
        if name not in RAMULATOR:
            why = f"unknown mapper {name!r} of Ramulator; {nearest(name, list(RAMULATOR))}"
            raise DescriptionError(why, "--mapper")
        upward = range(1, column) if name == "RoBaRaCoCh" else range(row, 0, -1)
        order = (0, column, *upward)
    elif form == "dramsim3":
        fields = [name[at : at + 2] for at in range(0, len(name), 2)]
        if sorted(fields) != sorted(_LEVELS):
            why = f"expected an order of ch, ra, bg, ba, ro and co, as rochrababgco; got {name!r}"
            raise DescriptionError(why, "--mapper")
        order = tuple(
            names.index(level)
            for field in reversed(fields)
            for level in _LEVELS[field]
            if level in names
        )
    else:
        why = f"is for --format ramulator or dramsim3; got {form}"
        raise DescriptionError(why, "--mapper")
    for level, size in zip(names, sizes, strict=True):
        if size & (size - 1):
            hint = "; choose one by --channel" if level == "channel" else ""
            why = f"{name} takes powers of two; {device.name} has {size} {level}s{hint}"
            raise DescriptionError(why, "--mapper")
    burst = device.memory.organisation.burst_bytes
    if burst & (burst - 1):
        why = f"{name} takes powers of two; a burst of {device.name} has {burst} B"
        raise DescriptionError(why, "--mapper")
    return PeerMapper(name, order, tuple(sizes[level].bit_length() - 1 for level in order))


def not_linear(device: Device, single_channel: bool) -> list[str]:
    """What a map of ours has that a peer's linear mapper cannot follow; words."""
    memory, found = device.memory, []
    if memory.bank_hash:
        found.append("bank hashes")
    fields = [field for field, _ in memory.resolved_address_map()]
    if len(set(fields)) < len(fields):
        found.append("split fields")
    if not single_channel and device.accelerator is not None:
        if device.accelerator.channel_hash != "none":
            found.append("a channel hash")
        if device.channels & (device.channels - 1):
            found.append(f"{device.channels} channels")
    return found
