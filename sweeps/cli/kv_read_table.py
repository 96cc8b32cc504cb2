"""Logged decode steps on the terminal: a line a step as it is read, then what they come to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hwmodel.description.yaml_writer import plain
from sweeps.ask.logged_kv_read import BlockReplay, Totals

_COLUMNS = (
    ("time s", 10), ("sequences", 9), ("tokens", 10), ("runs", 7), ("extent B", 9), ("GB/s", 7),
    ("row hits", 8), ("contiguous", 10), ("row hits", 8), ("of it", 6),
)  # fmt: skip


def print_steps(replay: BlockReplay, steps: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print each step as it comes (as JSON lines: an object each), then the sums."""
    totals = Totals()
    if not as_json:
        print(f"{replay.log.path}: KV of {replay.model.name} on {replay.device.name}, "
              f"peak {replay.device.peak_gbps:,.1f} GB/s\n")  # fmt: skip
        print("  ".join(f"{name:>{width}}" for name, width in _COLUMNS))
    for found in steps:
        totals.add(found)
        print(json.dumps(plain(found)) if as_json else _line(found), flush=True)
    if as_json:
        print(json.dumps(plain({"total": totals.record()})))
    else:
        print(_sum(totals))


def _line(found: dict[str, Any]) -> str:
    cells = (
        f"{found['time_s']:,.2f}", f"{found['sequences']:,}", f"{found['tokens']:,}",
        f"{found['runs']:,}", f"{found['extent_bytes']:,.0f}", f"{found['kv_gbps']:,.1f}",
        f"{found['row_hit_rate']:.1%}", f"{found['contiguous_gbps']:,.1f}",
        f"{found['contiguous_row_hit_rate']:.1%}", f"{found['of_contiguous']:.3f}",
    )  # fmt: skip
    return "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))


def _sum(totals: Totals) -> str:
    found = totals.record()
    if not totals.steps:
        return "\nno steps"
    steps = "1 step" if totals.steps == 1 else f"{totals.steps} steps"
    return (
        f"\n{steps}: {found['kv_gbps']:,.1f} GB/s where the blocks are, "
        f"{found['contiguous_gbps']:,.1f} GB/s if contiguous: {found['of_contiguous']:.3f} of it"
    )
