"""`bankwise memory --layouts`: what the order of KV costs a device, as JSON and as a section."""

from __future__ import annotations

from typing import Any

from sweeps.ask.kv_layouts import AS_DESCRIBED, MAPS, READS, KvLayouts, LayoutRow
from sweeps.sections.chart import Axis, Lines, Series
from sweeps.sections.section import Grid, Say, Section

_KNOWN = {
    "known": "its map of channels is published or measured",
    "borrowed": "its map of channels is borrowed from another device",
    "drawn": "its map of channels is drawn, as nothing is public",
    None: "whether its map of channels is known is not said",
}


def record(found: KvLayouts) -> dict[str, Any]:
    """All rows: GB/s by kind of read, without and with the pad."""
    assert found.device.accelerator is not None
    return {
        "device": found.device.name, "channels": found.device.channels,
        "channel_map": found.device.accelerator.channel_map, "pad_bytes": found.pad_bytes,
        "maps": {name: MAPS[name] for name in found.maps},
        "cost": {name: {read: found.cost(name, read)[0] for read in READS} for name in found.maps},
        "rows": [
            {**row.geometry._asdict(), "spacing_bytes": row.geometry.spacing_bytes,
             "outermost": row.order, "map": row.map, "channels_engaged": row.channels,
             "gbps": row.gbps, "padded_gbps": row.padded}
            for row in found.rows
        ],
    }  # fmt: skip


def sheet(found: KvLayouts) -> Section:
    """A line a shape and order under the device's map, then a line a map."""
    device = found.device
    assert device.accelerator is not None
    heads = ["KV heads x size", "outermost", "channels", "decode", "in blocks", "prefill",
             f"prefill, pad of {found.pad_bytes} B", "in blocks, pad"]  # fmt: skip
    rows = [_line(row) for row in found.rows if row.map == AS_DESCRIBED]
    grid = Grid("GB/s of one layer's KV, as described", heads, rows)
    title = f"{device.name}: {device.channels} channels; {_KNOWN[device.accelerator.channel_map]}"
    note = (
        "decode: blocks of all heads are read at once; prefill: one head after another, as where a"
        " head has more blocks than there are cores. In blocks: shuffled blocks of 16 tokens."
        " channels: those that one head's rows lie in. Cores walk at their own pace."
    )
    return Section(title, [Say(title), grid, _maps(found), Say(_sentence(found)), Say(note)])


def chart(found: KvLayouts) -> Lines:
    """What a prompt's KV is read at with tokens outermost, over heads outermost, by the distance of
    rows, with and without the pad, a line a map."""
    series = []
    for name in found.maps:
        for padded in (False, True):
            shares = found.shares(name, "prefill", padded)
            points = sorted({shape.spacing_bytes: share for shape, share in shares.items()}.items())
            label = name + f", pad of {found.pad_bytes} B" * padded
            series.append(Series(label, [x for x, _ in points], [y for _, y in points]))
    title = f"{found.device.name}: a prompt's KV with tokens outermost, over heads outermost"
    return Lines(title, Axis("from one token's row to the next, B", "bytes"),
                 Axis("share of the rate, times"), series, figure="layouts")  # fmt: skip


def _line(row: LayoutRow) -> list[str]:
    shape = f"{row.geometry.kv_heads} x {row.geometry.head_dim}"
    figures = (row.gbps["decode"], row.gbps["decode in blocks"], row.gbps["prefill"],
               row.padded["prefill"], row.padded["prefill in blocks"])  # fmt: skip
    return [shape, row.order, str(row.channels), *(f"{each:,.0f}" for each in figures)]


def _maps(found: KvLayouts) -> Grid:
    """By map, the shape that loses most."""
    rows = []
    for name in found.maps:
        shares = [found.cost(name, read)[0] for read in READS]
        padded = found.cost(name, "prefill", padded=True)[0]
        rows.append([name, *(f"{share:.2f}" for share in (*shares, padded))])
    heads = ["map", *READS, f"prefill, pad of {found.pad_bytes} B"]
    return Grid("Tokens over heads outermost, the shape that loses most", heads, rows)


def _sentence(found: KvLayouts) -> str:
    share, shape = found.cost(AS_DESCRIBED, "prefill")
    padded = found.cost(AS_DESCRIBED, "prefill", padded=True)[0]
    decode = found.cost(AS_DESCRIBED, "decode")[0]
    worst = f"{shape.kv_heads} x {shape.head_dim}"
    return (
        f"With tokens outermost a prompt's KV is read at {share:.2f} of the rate of contiguous"
        f" heads at worst ({worst}), with a pad of {found.pad_bytes} B a row at {padded:.2f};"
        f" in decode at {decode:.2f}."
    )
