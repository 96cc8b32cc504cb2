"""`bankwise export`. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Jobs, Json, Plugin, Set

if TYPE_CHECKING:
    from sweeps.run.trace_export import Exported


def command(
    sweep: Annotated[str, typer.Argument(help="A shipped sweep, a YAML file, or a run directory.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace; .gz packs it, or .npz.")
    ],
    format: Annotated[
        str, typer.Option(help="bankwise, ramulator, ramulator-vector, dramsim3 or gem5.")
    ] = "bankwise",
    point: Annotated[
        int | None, typer.Option(help="Which point, where --set leaves several.")
    ] = None,
    replication: Annotated[int, typer.Option(help="Which one of it, from 1 on.")] = 1,
    steps: Annotated[str, typer.Option(help="N, A:B (without B), A: or all.")] = "100",
    layers: Annotated[str, typer.Option(help="Likewise.")] = "0",
    phase: Annotated[
        str, typer.Option(help="migration, weights, prefill, attention or all.")
    ] = "attention",
    channel: Annotated[
        int | None, typer.Option(help="Only this channel, at addresses local to it.")
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="All times are 0: as fast as the memory takes them.")
    ] = False,
    mapper: Annotated[
        str | None,
        typer.Option(help="Addresses for this mapper of the peer: RoBaRaCoCh, rochrababgco, ..."),
    ] = None,
    replica: Annotated[
        int, typer.Option(help="Whose steps, from 0 on; of pools those that prefill come first.")
    ] = 0,
    jobs: Jobs = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Write the DRAM accesses of a run as a trace.

    For DRAM simulators; `bankwise replay` reads every format back.
    """
    from dataclasses import asdict

    from sweeps.report.screen import print_json
    from sweeps.run.executor import worker_count
    from sweeps.run.trace_export import Wanted
    from sweeps.run.trace_export import export as perform

    wanted = Wanted(steps, layers, phase, channel, format, at_once, mapper, replica)
    workers = worker_count(jobs)
    found = perform(sweep, out, wanted, overrides or (), point, replication, workers)
    if json:
        print_json(asdict(found))
    else:
        for warning in found.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        _show(found, out)


def _show(found: Exported, out: Path) -> None:
    for step in found.steps[:5]:
        print(
            f"step {step['step']} at {step['start_s']:.3f} s: {step['decode']:,} sequences decode "
            f"after {step['context_tokens']:,} tokens, {step['prefill_tokens']:,} are prefilled"
        )
    if len(found.steps) > 5:
        print(f"... {len(found.steps)} steps")
    where = found.device if found.channel is None else f"channel {found.channel} of {found.device}"
    print(
        f"wrote {out}: {found.accesses:,} accesses of {found.burst_bytes} B on {where}, "
        f"{found.writes:,} of them writes; {found.memory_ns / 1e3:,.1f} us of memory time"
    )
    print(f"format {found.format}; not kept: {found.lacks}")
    if found.mapper is not None:
        print(f"addresses are for the mapper {found.mapper}, not for bankwise replay")
        return
    local = "" if found.channel is None else " --channel"
    print(f"read it back: bankwise replay {found.device} {out}{local}")
