"""What `bankwise measure` found, as JSON and as a section."""

from __future__ import annotations

from typing import Any

from bankwise_measure.access_points import told
from bankwise_measure.machine_memory import block_ratios
from bankwise_measure.median import Median
from bankwise_measure.rounds import Benchmark
from sweeps.analyse.statistics import Interval
from sweeps.sections.formats import between
from sweeps.sections.section import Grid, Say, Section

OTHERS = "NVIDIA GPUs: --gpu; other accelerators are not supported yet"


def record(found: Benchmark) -> dict[str, Any]:
    """Figures in GB/s, ns and bytes; each with its interval and number of rounds."""
    machine = found.machine
    return {
        "cpu": machine.cpu, "cores": list(machine.cores), "threads": found.threads,
        "governor": machine.governor, "virtual": machine.virtual, "load": machine.load,
        "cache_bytes": machine.cache_bytes, "buffer_bytes": found.buffer_bytes,
        "huge_page_share": found.huge_share, "rounds": found.effort.rounds,
        "pass_s": found.effort.pass_s,
        "bandwidth": [
            {
                "pattern": each.point.name, "size": each.point.size, "stride": each.point.stride,
                "random": each.point.random, "mix": list(each.point.mix),
                "gbps": _interval(each.gbps),
                "half_the_threads_gbps": each.half and _interval(each.half),
                "threads_bind": each.requester_bound, "each_gbps": list(each.each),
            }
            for each in found.measured
        ],
        "latency": [
            {"window": each.window, "ns": _interval(each.ns)} for each in found.latencies
        ],
        "blocks_over_run": [
            {"extent": size, "ratio": _interval(ratio)} for size, ratio in block_ratios(found)
        ],
    }  # fmt: skip


def _interval(found: Median) -> list[float]:
    return [found.value, found.low, found.high]


def sheet(found: Benchmark) -> Section:
    """How it was measured, a line a pattern, and what to know about them."""
    machine = found.machine
    columns = ["pattern", "GB/s", "half the threads", "bound by"]
    rows = [
        [
            each.point.name, _between(each.gbps),
            "–" if each.half is None else f"{each.half.value:.4g}",
            "–" if machine.busy else "threads" if each.requester_bound else "memory",
        ]
        for each in found.measured
    ]  # fmt: skip
    notes = [
        *(f"a dependent read in {told(each.window)}: {_between(each.ns, ' ns')}"
          for each in found.latencies),
        *(f"K and V in blocks of {told(size)} are read at {_between(ratio)} times the rate of one"
          " run" for size, ratio in block_ratios(found)),
    ]  # fmt: skip
    if machine.busy:
        notes.append(f"other processes ran (load {machine.load:g}): figures may be too low")
    if machine.virtual:
        notes.append("a virtual machine: its neighbours may use the same memory")
    about = f"{machine.told}. {found.how}; medians of {found.effort.rounds} rounds"
    return Section(machine.cpu, [Say(about), Grid("", columns, rows),
                                 *(Say(note) for note in (*notes, OTHERS))])  # fmt: skip


def _between(found: Median, unit: str = "") -> str:
    return between(Interval(found.value, found.low, found.high, found.count), "{:.4g}".format, unit)
