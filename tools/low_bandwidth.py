"""Ten traces explained, for docs/low-bandwidth.md.

    python -m tools.low_bandwidth    # docs/figures/low-bandwidth.json, docs/low-bandwidth.svg

A trace is a small generator here, but for two steps of the quickstart, which are exported. The page
is then written by `make figures`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.measure.replay import replay
from hwmodel.specs.device import Device, load_device
from sweeps.ask.low_bandwidth import explain
from sweeps.cli.timeline_file import drawn, write
from sweeps.report.command_timeline import Kept
from sweeps.run.trace_export import Wanted, export
from tools.figures import ROOT, keep

COUNT = 200_000
"""Bursts of a trace that is made here."""
SHOWN = "a Ramulator user's stream"
"""The trace whose waterfall and timeline are on the page."""
Arrays = dict[str, Any]


class Trace(NamedTuple):
    """A trace on a device with overrides; `make` gives the arrays of an `.npz`."""

    device: str
    make: Callable[[Device], Arrays]
    overrides: tuple[str, ...] = ()


def bursts(device: Device) -> Arrays:
    """In address order."""
    return reads(np.arange(COUNT) * device.memory.organisation.burst_bytes)


def reads(address: Any) -> Arrays:
    """All read."""
    return {"address": address, "write": np.zeros(len(address), bool)}


def random_bursts(device: Device) -> Arrays:
    """Anywhere in the memory."""
    size = device.memory.organisation.burst_bytes
    places = np.random.default_rng(1).integers(0, device.capacity_bytes // size, COUNT)
    return reads(places * size)


def copied(device: Device) -> Arrays:
    """A burst is read, and written 16 MiB above, in turn."""
    size = device.memory.organisation.burst_bytes
    place, write = np.divmod(np.arange(COUNT), 2)
    return {"address": place * size + write * (1 << 24), "write": write == 1}


def matrix_column(device: Device) -> Arrays:
    """A burst of each row of a matrix whose rows are 64 KiB, column by column."""
    size = device.memory.organisation.burst_bytes
    column, row = np.divmod(np.arange(COUNT), 4096)
    return reads(row * 65536 + column * size)


def one_channel(device: Device) -> Arrays:
    """Tiles whose distance is a round of all channels."""
    tile, within = np.divmod(np.arange(COUNT), 16)
    return reads(tile * device.channels * 512 + within * 32)


def arriving(device: Device) -> Arrays:
    """In address order, 5 GB/s of it."""
    found = bursts(device)
    size = device.memory.organisation.burst_bytes
    return {**found, "picosecond": (np.arange(COUNT) * size * 200).astype(np.uint64)}


def stream_42(device: Device) -> Arrays:
    """One channel's part of a stream of 64 B lines, of which one in five, at random, is written.
    CMU-SAFARI/ramulator2 issue 42 names it `stream_5M_R8W2`; made after that name, the counts of
    reads and writes, and the mapper that it states."""
    line = np.random.default_rng(42).random(COUNT // 2) < 0.2
    return {"address": np.arange(COUNT) * 32, "write": np.repeat(line, 2)}


def step(point: int) -> Callable[[Device], Arrays]:
    """The attention of a layer of decode step 2,000 of a point of the quickstart, at once."""

    def made(device: Device) -> Arrays:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "step.npz"
            done = export("quickstart", file, Wanted(steps="2000", at_once=True), point=point)
            assert done.device == device.name
            with np.load(file) as arrays:
                return dict(arrays)

    return made


ROW_BY_ROW = "address_map=[column:6, bank:2, bankgroup:3, row]"
RO_BA_RA_CO = "address_map=[column:5, pseudochannel:1, stack:1, bankgroup:2, bank:2, row]"
TRACES = {
    "in address order": Trace("ddr5-4800-x32", bursts),
    "random lines": Trace("ddr5-4800-x32", random_bursts),
    "a map that fills a row first": Trace(
        "ddr5-4800-x32", bursts, (ROW_BY_ROW, "bank_hash=[]")
    ),
    "5 GB/s of load": Trace("ddr5-4800-x32", arriving),
    "a copy, read and write in turn": Trace("lpddr5-6400-x16", copied),
    "a column of a matrix": Trace("lpddr5-6400-x16", matrix_column, ("bank_hash=[]",)),
    "tiles in one channel": Trace("mlu370-x4", one_channel, ("channel_hash=none",)),
    "a decode step, paged": Trace("mlu370-x4", step(1)),
    "a decode step, paged, HBM": Trace("a100-80gb", step(4)),
    SHOWN: Trace("hbm3-6.4", stream_42, (RO_BA_RA_CO, "bank_hash=[]")),
}  # fmt: skip


def explained(trace: Trace, folder: Path, picture: Path | None = None) -> dict[str, Any]:
    """What `replay --explain --json` says of it; with `picture` its timeline is drawn there."""
    device = load_device(trace.device, trace.overrides)
    file = folder / "trace.npz"
    np.savez(file, **trace.make(device))
    kept = None if picture is None else Kept(device.memory, None)
    found = replay(device, file, log=kept)
    if picture is not None and kept is not None:
        write(picture, device, drawn(device, kept.logs(), None), [])
    return explain(device, trace.device, trace.overrides, file, found["requests"])


def row(trace: Trace, found: dict[str, Any]) -> dict[str, Any]:
    """A line of the page's first table; shares are of the peak."""
    peak = found["peak_gbps"]
    most = max(found["causes"], key=lambda cause: float(cause["gbps"]))
    return {
        "device": trace.device, "GB/s": round(found["achieved_gbps"], 2),
        "of peak": round(found["achieved_gbps"] / peak, 4), "largest cause": most["cause"],
        "its share": round(most["share"], 4), "alone": round(most["first_gbps"] / peak, 4),
        "last": round(most["last_gbps"] / peak, 4),
        "not explained": round(found["not_explained_gbps"] / peak, 4),
    }  # fmt: skip


def change(found: dict[str, Any]) -> dict[str, Any]:
    """A line of its second: what helps most."""
    if not found["helps"]:
        return {"what helps most": "nothing beyond noise", "bandwidth": None, "ties": None}
    best = found["changes"][0]
    gain = [1 + best["gain"], *(1 + end for end in best["interval"])]
    ties = sum(each["ties"] for each in found["changes"]) - 1
    return {
        "what helps most": told(best["set"]), "bandwidth": [round(end, 4) for end in gain],
        "ties": ties,
    }  # fmt: skip


def told(settings: list[str]) -> str:
    """Overrides in the words of a table: a setting a piece, without where it stands."""
    return ", ".join(f"`{each.removeprefix('controller.')}`" for each in settings)


def waterfall(found: dict[str, Any]) -> dict[str, Any]:
    """The causes of one trace as rows, shares of the peak."""
    peak = found["peak_gbps"]
    rows = {
        cause["cause"]: {
            "share": round(cause["share"], 4), "alone": round(cause["first_gbps"] / peak, 4),
            "last": round(cause["last_gbps"] / peak, 4),
        }
        for cause in found["causes"]
    }  # fmt: skip
    rest = round(found["not_explained_gbps"] / peak, 4)
    return rows | {"not explained": {"share": rest, "alone": None, "last": None}}


def main() -> None:
    """Explain every trace, and write the figures."""
    rows, changes, shown = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in TRACES.items():
            picture = ROOT / "docs/low-bandwidth.svg" if name == SHOWN else None
            found = explained(trace, Path(folder), picture)
            rows[name] = row(trace, found)
            changes[name] = change(found)
            print(f"{name}: {json.dumps(rows[name] | changes[name])}", flush=True)
            if name == SHOWN:
                shown = waterfall(found)
    values = {"traces": rows, "changes": changes, "shown": shown}
    keep("low-bandwidth", "python -m tools.low_bandwidth", values)


if __name__ == "__main__":
    main()
