"""On a device, what the order of KV costs where it is read: by the shape of a token's KV, under the
map of channels that the device has and under others that it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity
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
from sweeps.ask.question import CardName, Question, SizeText, Typed
from sweeps.run.progress import Progress
from sweeps.sections.chart import Axis, Lines, Series
from sweeps.sections.section import Grid, Say, Section

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


_KNOWN = {
    "known": "its map of channels is published or measured",
    "borrowed": "its map of channels is borrowed from another device",
    "drawn": "its map of channels is drawn, as nothing is public",
    None: "whether its map of channels is known is not said",
}


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

    def record(self) -> dict[str, Any]:
        """All rows: GB/s by kind of read, without and with the pad."""
        assert self.device.accelerator is not None
        return {
            "device": self.device.name, "channels": self.device.channels,
            "channel_map": self.device.accelerator.channel_map, "pad_bytes": self.pad_bytes,
            "maps": {name: MAPS[name] for name in self.maps},
            "cost": {name: {read: self.cost(name, read)[0] for read in READS}
                     for name in self.maps},
            "rows": [
                {**row.geometry._asdict(), "spacing_bytes": row.geometry.spacing_bytes,
                 "outermost": row.order, "map": row.map, "channels_engaged": row.channels,
                 "gbps": row.gbps, "padded_gbps": row.padded}
                for row in self.rows
            ],
        }  # fmt: skip

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


class LayoutsQuestion(Question):
    """Say what the order of KV costs where it is read, by its shape and the map of channels."""

    former: ClassVar[Mapping[str, str]] = {"--chart": "`--save`"}

    device: Annotated[CardName, Typed("DEVICE", ("accelerators",), argument=True)]
    """A shipped accelerator, or a YAML file."""
    pad: SizeText = "16B"
    """Bytes behind each row of KV that would spread rows over channels."""

    def answer(self) -> KvLayouts:
        try:
            pad_bytes = int(parse_quantity(self.pad, "size"))
        except ValueError as error:
            raise DescriptionError(str(error), "--pad") from None
        return kv_layouts(self.device, self.set, pad_bytes, Progress().through("layouts"))

    def section(self, findings: KvLayouts) -> Section:
        """A line a shape and order under the device's map, then a line a map."""
        device = findings.device
        assert device.accelerator is not None
        heads = ["KV heads x size", "outermost", "channels", "decode", "in blocks", "prefill",
                 f"prefill, pad of {findings.pad_bytes} B", "in blocks, pad"]  # fmt: skip
        rows = [_line(row) for row in findings.rows if row.map == AS_DESCRIBED]
        grid = Grid("GB/s of one layer's KV, as described", heads, rows)
        known = _KNOWN[device.accelerator.channel_map]
        title = f"{device.name}: {device.channels} channels; {known}"
        note = (
            "decode: blocks of all heads are read at once; prefill: one head after another, as"
            " where a head has more blocks than there are cores. In blocks: shuffled blocks of 16"
            " tokens. channels: those that one head's rows lie in. Cores walk at their own pace."
        )
        answer = Say(_sentence(findings), "verdict")
        return Section(
            title, [Say(title), grid, _by_map(findings), answer, chart(findings), Say(note)]
        )


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


def chart(layouts: KvLayouts) -> Lines:
    """What a prompt's KV is read at with tokens outermost, over heads outermost, by the distance of
    rows, with and without the pad, a line a map."""
    series = []
    for name in layouts.maps:
        for padded in (False, True):
            shares = layouts.shares(name, "prefill", padded)
            points = sorted({shape.spacing_bytes: share for shape, share in shares.items()}.items())
            label = name + f", pad of {layouts.pad_bytes} B" * padded
            series.append(Series(label, [x for x, _ in points], [y for _, y in points]))
    title = f"{layouts.device.name}: a prompt's KV with tokens outermost, over heads outermost"
    return Lines(title, Axis("from one token's row to the next, B", "bytes"),
                 Axis("share of the rate, times"), series, figure="layouts")  # fmt: skip


def _line(row: LayoutRow) -> list[str]:
    shape = f"{row.geometry.kv_heads} x {row.geometry.head_dim}"
    figures = (row.gbps["decode"], row.gbps["decode in blocks"], row.gbps["prefill"],
               row.padded["prefill"], row.padded["prefill in blocks"])  # fmt: skip
    return [shape, row.order, str(row.channels), *(f"{each:,.0f}" for each in figures)]


def _by_map(layouts: KvLayouts) -> Grid:
    """By map, the shape that loses most."""
    rows = []
    for name in layouts.maps:
        shares = [layouts.cost(name, read)[0] for read in READS]
        padded = layouts.cost(name, "prefill", padded=True)[0]
        rows.append([name, *(f"{share:.2f}" for share in (*shares, padded))])
    heads = ["map", *READS, f"prefill, pad of {layouts.pad_bytes} B"]
    return Grid("Tokens over heads outermost, the shape that loses most", heads, rows)


def _sentence(layouts: KvLayouts) -> str:
    share, shape = layouts.cost(AS_DESCRIBED, "prefill")
    padded = layouts.cost(AS_DESCRIBED, "prefill", padded=True)[0]
    decode = layouts.cost(AS_DESCRIBED, "decode")[0]
    worst = f"{shape.kv_heads} x {shape.head_dim}"
    return (
        f"With tokens outermost a prompt's KV is read at {share:.2f} of the rate of contiguous"
        f" heads at worst ({worst}), with a pad of {layouts.pad_bytes} B a row at {padded:.2f};"
        f" in decode at {decode:.2f}."
    )
