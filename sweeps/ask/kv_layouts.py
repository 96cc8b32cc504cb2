"""On a device, what the order of KV costs where it is read: by the shape of a token's KV, under the
map of channels that the device has and under others that it may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.measure.through import Through, silent
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kv_order import LAYOUTS
from policies.memory.layout_read import (
    BLOCK,
    GEOMETRIES,
    Geometry,
    LayoutRead,
    channels_engaged,
    layout_gbps,
)

ORDERS = {
    "tokens": "layer_kv_token", "heads in a block": "layer_kv_block_head",
    "heads": "layer_kv_head_block",
}  # fmt: skip
"""What lies outermost, and a layout of that order."""
READS: dict[str, dict[str, Any]] = {
    "decode": {}, "decode in blocks": {"block": BLOCK}, "prefill": {"heads_at_once": 1},
    "prefill in blocks": {"block": BLOCK, "heads_at_once": 1},
}  # fmt: skip
"""All heads at once, or one after another; tokens in one run, or in shuffled blocks."""
AS_DESCRIBED = "as described"
MAPS: dict[str, dict[str, str]] = {
    AS_DESCRIBED: {},
    "no hash": {"channel_hash": "none"},
    "256 B, no hash": {"interleave": "256B", "dma.request": "256B", "channel_hash": "none"},
    "rotated": {"channel_hash": "rotate"},
    "xor": {"channel_hash": "xor"},
}
"""Maps of channels that are plausible where a device's is not known; 256 B without a hash is that
of strix-halo, the one LPDDR device whose map is public."""


@dataclass(frozen=True)
class LayoutRow:
    """Of one shape and order under one map: channels of a head's rows, and GB/s by kind of read,
    without and with the pad."""

    geometry: Geometry
    order: str
    map: str
    channels: int
    gbps: dict[str, float]
    padded: dict[str, float]


@dataclass(frozen=True)
class KvLayouts:
    """What was simulated of a device."""

    device: Device
    pad_bytes: int
    rows: list[LayoutRow]

    @property
    def maps(self) -> list[str]:
        """Those that the device can have."""
        return list(dict.fromkeys(row.map for row in self.rows))

    def cost(self, map: str, read: str, padded: bool = False) -> tuple[float, Geometry]:
        """(the least of `shares`, its shape)."""
        shares = self.shares(map, read, padded)
        worst = min(shares, key=shares.__getitem__)
        return shares[worst], worst

    def shares(self, map: str, read: str, padded: bool = False) -> dict[Geometry, float]:
        """By shape, the share of the rate with heads outermost that tokens outermost, or these with
        the pad, are read at under a map."""
        by = {(row.geometry, row.order): row for row in self.rows if row.map == map}
        shares = {}
        for shape, _ in by:
            tokens = by[shape, "tokens"]
            own = (tokens.padded if padded else tokens.gbps)[read]
            shares[shape] = own / by[shape, "heads"].gbps[read]
        return shares


def kv_layouts(
    name: str, overrides: Sequence[str] = (), pad_bytes: int = 16, through: Through = silent,
    reads: Sequence[str] = tuple(READS), geometries: Sequence[Geometry] = GEOMETRIES,
) -> KvLayouts:  # fmt: skip
    """Simulate the reads of a device, each a layer of one sequence. Raises DescriptionError where
    the memory is given, or is no accelerator's."""
    device = load_device(name, list(overrides))
    if device.accelerator is None:
        raise DescriptionError(f"{device.name} is a memory; KV is read by an accelerator")
    device.memory  # noqa: B018 - raises where it is given
    maps = dict(_maps(name, overrides, device))
    wanted = [(m, g, o) for m in maps for g in geometries for o in ORDERS]
    found = [_row(maps[m], m, g, o, pad_bytes, reads) for m, g, o in through(wanted, len(wanted))]
    return KvLayouts(device, pad_bytes, found)


def _maps(name: str, overrides: Sequence[str], own: Device) -> Iterator[tuple[str, Device]]:
    """(name, device) of each map that differs from those before, and that the device can have."""
    seen: list[tuple[Any, ...]] = []
    for label, changes in MAPS.items():
        sets = [f"{path}={value}" for path, value in changes.items()]
        try:
            device = load_device(name, [*overrides, *sets]) if sets else own
        except DescriptionError:  # xor needs a power of two
            continue
        assert device.accelerator is not None
        key = device.accelerator.interleave, device.accelerator.channel_hash
        if key not in seen:
            seen.append(key)
            yield label, device


def _row(
    device: Device, map: str, geometry: Geometry, order: str, pad_bytes: int, reads: Sequence[str]
) -> LayoutRow:
    read = LayoutRead.model_validate(
        {"kv_heads": geometry.kv_heads, "head_dim": geometry.head_dim,
         "order": LAYOUTS[ORDERS[order]]}
    )  # fmt: skip
    shapes = {kind: read.model_copy(update=READS[kind]) for kind in reads}
    padded = {kind: each.model_copy(update={"pad": pad_bytes}) for kind, each in shapes.items()}
    return LayoutRow(
        geometry, order, map, channels_engaged(device, read),
        {kind: layout_gbps(device, each) for kind, each in shapes.items()},
        {kind: layout_gbps(device, each) for kind, each in padded.items()},
    )  # fmt: skip
