"""`bankwise transfer`: descriptors, bytes, time and what limits it, as a section and as JSON."""

from __future__ import annotations

from typing import Any

from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.transfers.transfer import Moved
from sweeps.sections.section import Grid, Say, Section


def record(
    link: LinkSpec, model: TransformerSpec, asked: dict[str, Any], found: dict[str, Moved]
) -> dict[str, Any]:
    """What was asked and found, of the busiest rank."""
    return {
        "link": link.name, "model": model.name, "kv": model.kv, **asked,
        "cases": {name: _figures(moved) for name, moved in found.items()},
    }  # fmt: skip


def _figures(moved: Moved) -> dict[str, Any]:
    pieces, cost = moved.pieces, moved.cost
    return {
        "ranks": moved.ranks,
        **{key: getattr(pieces, key) for key in ("bytes", "regions", "runs", "descriptors")},
        "smallest_bytes": int(pieces.sizes[0]),
        "largest_bytes": int(pieces.sizes[-1]),
        "posting_ms": cost.posting_ns / 1e6,
        "bytes_ms": cost.bytes_ns / 1e6,
        "total_ms": cost.total_ns / 1e6,
        "gbps": moved.gbps,
        "limited_by": cost.limit,
    }


def sheet(
    link: LinkSpec, model: TransformerSpec, asked: dict[str, Any], found: dict[str, Moved]
) -> Section:
    """A line for the transfer as asked and for each alternative."""
    first = found["as asked"]
    near, far = (
        f"{layout}, blocks of {block}, {pages}" + (f", {cards} cards" if cards > 1 else "")
        for layout, block, pages, cards in zip(
            asked["layout"], asked["block"], asked["pages"], asked["tp"], strict=True
        )
    )
    told = (
        f"{asked['tokens']:,} tokens of {model.name}, {model.kv}:"
        f" {first.pieces.bytes / 1e6:,.1f} MB"
        + (f" by each of {first.ranks} ranks, the busiest" if first.ranks > 1 else "")
        + f", from {near} to {far}."
    )
    columns = ["", "regions", "runs", "descriptors", "of", "posting ms", "bytes ms", "ms", "GB/s",
               "limit"]  # fmt: skip
    rows = [[name, *_row(moved)] for name, moved in found.items()]
    return Section("Transfer", [Say(f"{link.name}: {link.summary}."), Say(told),
                                Grid("", columns, rows)])  # fmt: skip


def _row(moved: Moved) -> list[str]:
    pieces, cost = moved.pieces, moved.cost
    low, high = (_size(int(size)) for size in (pieces.sizes[0], pieces.sizes[-1]))
    return [
        f"{pieces.regions:,}", f"{pieces.runs:,}", f"{pieces.descriptors:,}",
        low if low == high else f"{low} to {high}",
        f"{cost.posting_ns / 1e6:,.2f}", f"{cost.bytes_ns / 1e6:,.2f}",
        f"{cost.total_ns / 1e6:,.2f}", f"{moved.gbps:,.1f}", cost.limit,
    ]  # fmt: skip


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
