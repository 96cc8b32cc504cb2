"""Replay of an access trace on a device or on one channel of it, open loop: each channel takes its
accesses in the order of the trace, each from its time on where the trace has times, as fast as its
queues allow.

`requests` are the accesses of the trace, and with in-line ECC those for check bytes; `bytes` those
moved on DQ, which leaves out reads that were forwarded from a waiting write and includes check
bytes and the reads made for partial writes. `bandwidth_gbps` and `utilization` are of what was
asked for (`requested_bytes`), `moved_gbps` of what was moved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.address import by_channel, to_channel
from hwmodel.kernel.kernel_names import WRITE
from hwmodel.kernel.timing import named_counts
from hwmodel.measure.bounds import least_cycles
from hwmodel.measure.energy import energy_figures, energy_parts
from hwmodel.measure.open_loop import Int, LogSink, OpenLoop, called
from hwmodel.measure.trace import TraceChunk, read_trace
from hwmodel.oracle.command_log import CommandLog, csv_columns, write_csv
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec


def replay(
    device: Device, trace: Path, *, single_channel: bool = False, commands: Path | None = None,
    at_once: bool = False, log: LogSink | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Simulate `trace` and return the figures of the CLI contract.

    `single_channel`: addresses are local to one channel. `commands`: write the command log there
    (CSV). `log` takes the commands as well. `at_once`: leave out the trace's times; `timed` says
    whether they counted. Raises DescriptionError for an unreadable trace or an address outside the
    memory.
    """
    channels = 1 if single_channel else device.channels
    if commands is None:
        run = OpenLoop(device.memory, channels, log)
        timed = _feed(run, device, trace, single_channel, at_once)
    else:
        partial = commands.with_name(commands.name + ".partial")
        try:
            with partial.open("w", encoding="utf-8", newline="") as file:
                file.write(",".join(csv_columns(device.memory, channels > 1)) + "\n")

                def sink(channel: int, lines: CommandLog) -> None:
                    number = channel if channels > 1 else None
                    write_csv(file, device.memory, lines, number, header=False)
                    if log is not None:
                        log(channel, lines)

                run = OpenLoop(device.memory, channels, sink)
                timed = _feed(run, device, trace, single_channel, at_once)
            partial.replace(commands)
        except OSError as error:
            raise DescriptionError(f"cannot be written: {error.strerror}", commands) from None
        finally:
            partial.unlink(missing_ok=True)
    return figures(device, run, channels, trace.name) | {"timed": timed}


def _feed(run: OpenLoop, device: Device, trace: Path, single_channel: bool, at_once: bool) -> bool:
    """Simulate a trace; whether its times counted."""
    limit = device.memory.data_bytes if single_channel else device.capacity_bytes
    done, timed = 0, False
    for address, kind, arrival in read_trace(trace, device, single_channel):
        if address.max() >= limit:
            at = int(np.argmax(address >= limit))
            raise DescriptionError(
                f"access {done + at + 1}: address {int(address[at]):#x} lies outside the {limit} B"
                f" of {'one channel' if single_channel else device.name}",
                trace,
            )
        done += len(address)
        timed = arrival is not None and not at_once
        chunk = TraceChunk(address, kind, arrival if timed else None)
        run.feed_all(split(device, chunk, single_channel))
    run.finish()
    return timed


def split(
    device: Device, chunk: TraceChunk, single_channel: bool
) -> list[tuple[int, Int, Int, Int | None]]:
    """(channel, local addresses, kinds, arrival ticks if any) of the accesses of each channel,
    order kept."""
    address, kind, arrival = chunk
    if single_channel or device.channels == 1:
        return [(0, address, kind, arrival)]
    channel, local = to_channel(device, address)
    return [
        (i, local[part], kind[part], None if arrival is None else arrival[part])
        for i, part in enumerate(by_channel(channel, device.channels))
        if len(part)
    ]


def figures(
    device: Device, run: OpenLoop, channels: int, pattern: str, bound_gbps: float | None = None
) -> dict[str, Any]:
    """The figures of a finished open-loop run, by the names of the CLI contract."""
    memory: MemorySpec = device.memory
    clock = memory.tick_clock
    elapsed_ns = clock.ns_of_ticks(run.end_tick)
    moved, requested = run.total("bytes"), run.requested_bytes
    peak = memory.peak_gbps * channels
    gbps = requested / elapsed_ns if elapsed_ns else 0.0
    forwarded = run.total("forwarded")
    least, binding = _least(run)
    checked: dict[str, Any] = {}
    if run.checks:
        checked["check_requests"] = run.checks
    parts = energy_parts(memory, run.commands, elapsed_ns, run.active_ns, channels, run.asleep)
    return {
        "device": device.name,
        "pattern": pattern,
        "channels": channels,
        "requests": run.total("requests") + forwarded,
        "bytes": moved,
        "requested_bytes": requested,
        "forwarded_requests": forwarded,
        "forwarded_bytes": forwarded * memory.organisation.burst_bytes,
        "rmw_reads": run.total("rmw_reads"),
        "cycles": run.end_tick / clock.ticks_per_ck if clock.ticks_per_ck > 1 else run.end_tick,
        "tck_ns": float(memory.clock.tCK),
        "bandwidth_gbps": gbps,
        "moved_gbps": moved / elapsed_ns if elapsed_ns else 0.0,
        "peak_gbps": peak,
        "utilization": gbps / peak,
        "bound_gbps": bound_gbps,
        "least_cycles": least,
        "least_cycles_bound_by": binding,
        "row_hits": run.total("hits"),
        "row_misses": run.total("misses"),
        "row_conflicts": run.total("conflicts"),
        "commands": called(memory, run.commands),
        "latency_ns": run.latency_ns(),
        "write_latency_ns": run.latency_ns(WRITE),
        "threads": run.threads,
        "wall_s": run.wall_s,
        **checked,
        **energy_figures(device, parts),
    }


def _least(run: OpenLoop) -> tuple[float, str]:
    """The a-posteriori bound of the channel whose own counts ask for most."""
    found = []
    for state in run.states:
        commands = named_counts(state["commands"])
        found.append(least_cycles(run.memory, commands, state["bank_commands"]))
    return max(found)
