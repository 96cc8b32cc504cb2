"""What `bankwise calibrate --memory` found, as JSON and for the terminal."""

from __future__ import annotations

from typing import Any

from hwmodel.benchmark.access_points import told
from hwmodel.benchmark.median import Median
from hwmodel.benchmark.rounds import Benchmark
from sweeps.analyse.statistics import Interval
from sweeps.ask.machine_memory import block_ratios
from sweeps.report.formats import between
from sweeps.report.screen import print_table

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


def show(found: Benchmark) -> None:
    """How it was measured, a line a pattern, and what to know about them."""
    machine = found.machine
    print(machine.told)
    print(f"{found.how}; medians of {found.effort.rounds} rounds\n")
    columns = ["pattern", "GB/s", "half the threads", "bound by"]
    rows = [
        [
            each.point.name, _between(each.gbps),
            "–" if each.half is None else f"{each.half.value:.4g}",
            "–" if machine.busy else "threads" if each.requester_bound else "memory",
        ]
        for each in found.measured
    ]  # fmt: skip
    print_table(columns, rows)
    print()
    for latency in found.latencies:
        ns, window = latency.ns, told(latency.window)
        print(f"a dependent read in {window}: {_between(ns, ' ns')}")
    for size, ratio in block_ratios(found):
        print(
            f"K and V in blocks of {told(size)} are read at {_between(ratio)} times the rate of one"
            " run"
        )
    if machine.busy:
        print(f"other processes ran (load {machine.load:g}): figures may be too low")
    if machine.virtual:
        print("a virtual machine: its neighbours may use the same memory")
    print(OTHERS)


def _between(found: Median, unit: str = "") -> str:
    return between(Interval(found.value, found.low, found.high, found.count), "{:.4g}".format, unit)
