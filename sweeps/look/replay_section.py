"""What a replay says: the figures of a trace, its banks and causes; logged steps, one a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.device import Device
from sweeps.ask.logged_kv_read import BlockReplay, Totals, totals
from sweeps.look.low_bandwidth_section import why
from sweeps.sections.formats import confidence_text, counted, share
from sweeps.sections.section import Block, Grid, Say, Section

_SHADES = " ▁▂▃▄▅▆▇█"


def trace(device: Device, result: dict[str, Any]) -> Section:
    """One figure a line, the banks, and why it is below the peak, as far as these are there."""
    rows = [[name, text] for name, text in _figures(result).items()]
    blocks: list[Block] = [Grid("", [device.name, result["pattern"]], rows, text=True)]
    if "banks" in result:
        blocks += _banks(result["banks"])
    threads = counted(result["threads"], "thread")
    blocks.append(Say(f"Simulated in {result['wall_s']:.3f} s on {threads}."))
    if result["timed"]:
        blocks.append(Say("Accesses arrive at the times of the trace; without them: --at-once."))
    if "explanation" in result:
        blocks.append(why(result["explanation"]))
    return Section(f"{result['pattern']} on {device.name}", blocks)


def _figures(found: dict[str, Any]) -> dict[str, str]:
    bound, letter = found.get("bound_gbps"), found["energy_confidence"]
    lines = {
        "requests": f"{found['requests']:,} ({found['bytes']:,} bytes)",
        "cycles": f"{found['cycles']:,} of {found['tck_ns']} ns",
        "bandwidth": f"{found['bandwidth_gbps']:,.2f} GB/s, {found['utilization']:.1%} of "
        f"{found['peak_gbps']:,.1f} GB/s" + (f" (bound {bound:,.2f})" if bound else ""),
        "moved": f"{found['moved_gbps']:,.2f} GB/s, with check bytes and the reads before partial "
        "writes, without what was forwarded",
        "rows": f"{found['row_hits']:,} hits, {found['row_misses']:,} misses, "
        f"{found['row_conflicts']:,} conflicts",
        "commands": _pairs(found["commands"]),
        "latency ns": _pairs(found["latency_ns"]),
        "of writes ns": _pairs(found["write_latency_ns"]),
        "energy": f"{found['energy_nj']:,.1f} nJ, confidence {confidence_text(letter)}",
        "energy nJ": _pairs(found["energy"]),
    }
    if found["bytes"] == found["requested_bytes"]:
        del lines["moved"]
    if not found["write_latency_ns"]:
        del lines["of writes ns"]
    return lines


def _pairs(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value}"
    return ", ".join(
        f"{k} {v:,.1f}" if isinstance(v, float) else f"{k} {v:,}" for k, v in value.items() if v
    )


def _banks(found: dict[str, list[list[int]]]) -> list[Block]:
    """A line a channel, a mark a bank: the taller, the more, up to the most of all."""
    activations, conflicts = (np.array(found[name]) for name in ("activations", "conflicts"))
    heads = ["channel", "activations by bank", "all", "conflicts by bank", "all"]
    rows = [
        [str(channel), _marks(opened, activations.max()), f"{opened.sum():,}",
         _marks(lost, conflicts.max()), f"{lost.sum():,}"]
        for channel, (opened, lost) in enumerate(zip(activations, conflicts, strict=True))
    ]  # fmt: skip
    most = f"The tallest mark is {activations.max():,} activations of a bank"
    even = activations.sum(axis=1)
    spread = f"{even.max() / max(even.mean(), 1e-9):.2f} times the mean of channels"
    note = (
        f"{most}, and {conflicts.max():,} conflicts. The busiest channel has {spread}. A"
        " conflict: the bank was closed for another row, and opened again."
    )
    return [Grid("Channel by bank", heads, rows, text=True), Say(note)]


def _marks(counts: NDArray[np.int64], most: int) -> str:
    """A mark for each bank, none for nothing."""
    parts = counts / max(int(most), 1) * (len(_SHADES) - 1)
    return "".join(_SHADES[int(np.ceil(each))] for each in parts)


def logged(replay: BlockReplay, steps: Sequence[dict[str, Any]]) -> Section:
    """A row a step, and what they come to."""
    heads = ["time s", "sequences", "tokens", "runs", "extent B", "GB/s", "row hits",
             "contiguous GB/s", "contiguous row hits", "of contiguous"]  # fmt: skip
    rows = [
        [f"{each['time_s']:,.2f}", f"{each['sequences']:,}", f"{each['tokens']:,}",
         f"{each['runs']:,}", f"{each['extent_bytes']:,.0f}", f"{each['kv_gbps']:,.1f}",
         share(each["row_hit_rate"], 1), f"{each['contiguous_gbps']:,.1f}",
         share(each["contiguous_row_hit_rate"], 1), f"{each['of_contiguous']:.3f}"]
        for each in steps
    ]  # fmt: skip
    what = (
        f"{replay.log.path}: KV of {replay.model.name} on {replay.device.name}, peak"
        f" {replay.device.peak_gbps:,.1f} GB/s."
    )
    blocks: list[Block] = [Say(what), Grid("", heads, rows), Say(_sum(totals(steps)))]
    return Section("Logged decode steps", blocks)


def _sum(every: Totals) -> str:
    found = every.record()
    if not every.steps:
        return "No steps."
    return (
        f"{counted(every.steps, 'step')}: {found['kv_gbps']:,.1f} GB/s where the blocks are, "
        f"{found['contiguous_gbps']:,.1f} GB/s if contiguous: {found['of_contiguous']:.3f} of it."
    )
