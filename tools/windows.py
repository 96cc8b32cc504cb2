"""Do short probes find what long ones do? Every accelerator whose memory is simulated, each refresh
mode, cold and hot, with RFMs and alerts where its memory has them.

    python -m tools.windows [--only DEVICE ...] [--lacking] [--former] [--csv FILE]

Two streams of each: layers of three windows, and of three refresh intervals at least, and layers of
a quarter of the window, which are simulated whole; both of 16 KiB extents at random places, drawn
anew for each cell, so that cells are independent. The
probes are those of a run by default, with the whole layers that correct them, taken until their
interval is as narrow as a run wants it. They are held against whole layers, the short ones at many
times evenly apart. `--former`: the probes of 0.3.0 beside them, whose refreshes began an interval
after their first request. `--csv`: each cell takes its place in the file as it is measured, and
keeps what the file says of 0.3.0; `--lacking` measures those that the file does not have.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.kernel.memory import simulate_system
from hwmodel.specs.device import Device, load_device
from policies.memory import probe as probes
from policies.memory.fidelity import FidelitySpec
from policies.memory.interval import STATED, ratio_interval, stated
from policies.memory.sampling import EVERY, FIRST
from policies.memory.traffic import Extents

EXTENT, LONG, LONGER, SHORT = 16 << 10, 3, 6, 12
"""Layers of a cell: a probe draws one of them, and too few short ones would be drawn twice. LONGER:
of layers that are not simulated whole beside a window, but their begins: those of three layers are
too few for an interval, as each differs from its layer in a way of its own."""
STREAMS = "window", "whole layer"
LEAST, MOST = 4, FidelitySpec().max_probes
"""Probes of a cell."""
INTERVALS, TIMES = 3, 24
"""Refresh intervals that a long layer lasts at the peak, and simulations of a short layer."""
ALL_BANK, PER_BANK = "controller.refresh=all_bank", "controller.refresh=per_bank"
MODES: dict[str, list[str]] = {
    "per bank": [PER_BANK],
    "per bank, hot": [PER_BANK, "temperature=95"],
    "all banks": [ALL_BANK],
    "all banks, hot": [ALL_BANK, "temperature=95"],
    "all banks, postponed": [ALL_BANK, "controller.refresh_postpone=8"],
    "all banks, RFM": [ALL_BANK, "controller.refresh_management=rfm"],
    "all banks, PRAC": [ALL_BANK, "controller.row_counting=prac"],
}
PRAC = "grace-cpu", ["memory=ddr5-4800-x32-prac", "capacity=256GiB"]
"""No shipped accelerator counts rows; this one with a memory that does."""


class Cell(NamedTuple):
    """Shares of the peak of one stream of a device in one mode."""

    device: str
    mode: str
    stream: str
    long: float
    short: float
    half: float
    """Of the 95 % interval of `short`."""
    probes: int
    former: float | None

    @property
    def off(self) -> float:
        return self.short / self.long - 1

    @property
    def covers(self) -> bool:
        return abs(self.short - self.long) <= self.half


def simulated() -> list[str]:
    """Accelerators whose memory is simulated."""
    return [each for each in names("accelerators") if load_device(each).given is None]


def variants(device: str) -> Iterator[tuple[str, list[str], Device]]:
    """(mode, settings, device) of each mode that the memory has."""
    for mode, settings in MODES.items():
        try:
            yield mode, settings, load_device(device, settings)
        except DescriptionError:
            continue
    if device == PRAC[0]:
        mode = "all banks, PRAC"
        yield mode, [*PRAC[1], *MODES[mode]], load_device(device, [*PRAC[1], *MODES[mode]])


def layers(device: Device, size: float, many: int, rng: np.random.Generator) -> list[Extents]:
    """`many` layers of about `size` bytes, in extents at random places."""
    count, found = max(1, round(size / EXTENT)), []
    for _ in range(many):
        start = rng.integers(0, device.capacity_bytes // EXTENT, count) * EXTENT
        each = np.full(count, EXTENT, np.int64)
        found.append(Extents(start, each, np.zeros(count, bool), np.arange(count) % 64))
    return found


def probed(
    device: Device, spec: FidelitySpec, layers: list[Extents], least: int, most: int, seed: int
) -> tuple[float, float, int]:
    """(mean share, half-width of its interval, probes): `most` at most, until it is narrow."""
    probe, rng = probes.Probe(device, spec, simulate_system), np.random.default_rng(seed)
    at_peak: list[float] = []
    taken: list[float] = []
    beside: list[probes.Beside] = []
    mean, half, leaves_out = 0.0, math.inf, False
    while len(taken) < most:
        calibrate = len(taken) % EVERY < FIRST or leaves_out
        found = probe.measure(layers.__getitem__, len(layers), "slice", rng, calibrate)
        if found.beside is not None:
            beside.append(found.beside)
        lost, common = (0.0, 0.0) if found.exact else probes.lost_ns(beside, found.at_peak_ns)
        elapsed = max(found.elapsed_ns + lost, found.least_ns)
        at_peak.append(found.at_peak_ns)
        taken.append(elapsed)
        mean, own = ratio_interval(at_peak, taken)
        if own is None:
            continue
        half = stated(mean, own, len(taken), common / elapsed)
        wider = half > STATED * spec.precision * mean
        leaves_out = wider and 2 * (common / elapsed * mean) ** 2 > half**2
        if len(taken) >= least and own <= spec.precision * mean and not wider:
            break
    return mean, half, len(taken)


def former(
    device: Device, spec: FidelitySpec, layers: list[Extents], count: int, seed: int
) -> float:
    """As many probes as before refreshes were met at their rate."""
    with (
        mock.patch.object(probes, "window_ns", lambda _, least_ns: least_ns),
        mock.patch.object(probes, "passes", lambda *_: [0.0]),
    ):
        return probed(device, spec, layers, count, count, seed)[0]


def cells(
    name: str, mode: str, device: Device, beside: bool, seed: int, streams: Sequence[str] = STREAMS
) -> Iterator[Cell]:
    """Of a long layer and of a short one."""
    spec = FidelitySpec(fidelity="sampled")
    window, memory = float(spec.probe_bytes), device.memory
    interval_ns = memory.tick_clock.ns_of_ticks(memory.refresh_ticks())
    long = 3 * max(window, INTERVALS / 3 * interval_ns * device.peak_gbps)
    sizes = (long, LONG if long <= spec.calibrate else LONGER, 1), (window / 4, SHORT, TIMES)
    for stream, (size, many, times) in zip(STREAMS, sizes, strict=True):
        if stream not in streams:
            continue
        own = [seed, *(zlib.crc32(each.encode()) for each in (name, mode, stream))]
        rng = np.random.default_rng(own)
        those, draws = layers(device, size, many, rng), int(rng.integers(1 << 30))
        share, half, count = probed(device, spec, those, LEAST, MOST, draws)
        was = former(device, spec, those, count, draws) if beside else None
        long_share = whole(device, those, times)
        yield Cell(name, mode, stream, long_share, share, half, count, was)


def whole(device: Device, layers: list[Extents], times: int) -> float:
    """The mean share of layers, one after the other, each simulated so often since its last
    refresh; twice, where refreshes may be postponed, and the second time counts: what is owed as
    the first begins is of long ago then."""
    probe = probes.Probe(device, FidelitySpec(), simulate_system)
    dealt = [probe.deal(layer, "slice") for layer in layers]
    if device.memory.controller.refresh_postpone:
        probe.whole(dealt, times=times)
    return probe.whole(dealt, times=times)[0]


COLUMNS = [
    "device", "mode", "stream", "long", "short", "half", "off", "covers", "former_off", "probes",
]  # fmt: skip
"""Of docs/release/windows.csv, which the release run reads. `half` is a share of `short`; `probes`
count alike, as until 3a652262, or by what they move."""
BY_BYTES = "by bytes"


def read(path: Path | None) -> dict[tuple[str, ...], list[str]]:
    """Rows of the file, if there is one, by device, mode and stream."""
    if path is None or not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        return {tuple(row[:3]): row for row in list(csv.reader(file))[1:]}


def write(path: Path, cell: Cell) -> None:
    """The cell in its place in the file."""
    rows, own = read(path), (cell.device, cell.mode, cell.stream)
    former = rows[own][COLUMNS.index("former_off")] if own in rows else ""
    if cell.former is not None:
        former = f"{cell.former / cell.long - 1:.3f}"
    rows[own] = [
        *own, f"{cell.long:.3f}", f"{cell.short:.3f}", f"{cell.half / cell.short:.3f}",
        f"{cell.off:.3f}", "yes" if cell.covers else "no", former, BY_BYTES,
    ]  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *sorted(rows.values())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--modes", nargs="+", default=None)
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=STREAMS)
    parser.add_argument("--former", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--lacking", action="store_true")
    given = parser.parse_args()
    found = []
    print(f"{'device':20} {'mode':22} {'stream':12}  long   short  ±      off    former off")
    for name in given.only or simulated():
        for mode, _, device in variants(name):
            if given.modes and mode not in given.modes:
                continue
            kept = read(given.csv) if given.lacking else {}
            if all((name, mode, stream) in kept for stream in given.streams):
                continue
            for cell in cells(name, mode, device, given.former, given.seed, given.streams):
                found.append(cell)
                was = "" if cell.former is None else f"{cell.former / cell.long - 1:+7.1%}"
                print(
                    f"{name:20} {mode:22} {cell.stream:12} {cell.long:6.3f} {cell.short:6.3f} "
                    f"{cell.half / cell.short:5.1%} {cell.off:+7.1%}{'' if cell.covers else '*'} "
                    f" {was}",
                    flush=True,
                )
                if given.csv:
                    write(given.csv, cell)
    off = [abs(cell.off) for cell in found]
    print(
        f"{len(found)} cells; within 2 %: {sum(each <= 0.02 for each in off)}; farthest "
        f"{max(off):.1%}; interval of 3 % at most: "
        f"{sum(cell.half <= 0.03 * cell.short for cell in found)}; covered (no *): "
        f"{sum(cell.covers for cell in found)}"
    )
    if given.former:
        prior = [abs(cell.former / cell.long - 1) for cell in found if cell.former is not None]
        print(
            f"before: within 2 %: {sum(each <= 0.02 for each in prior)}; farthest {max(prior):.1%}"
        )
    sys.exit(math.isnan(max(off)))


if __name__ == "__main__":
    main()
