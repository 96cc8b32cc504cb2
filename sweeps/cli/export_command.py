"""`bankwise export`. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Jobs, Json, Plugin, Set, refuse

if TYPE_CHECKING:
    from sweeps.run.trace_export import Exported


def command(
    sweep: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A shipped sweep, a YAML file, or a run directory."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace; .gz packs it, or .npz.")
    ],
    format: Annotated[
        str,
        typer.Option(
            help="Of a trace of accesses: bankwise, ramulator, dramsim3, gem5, ... (one that is "
            "not there is answered with all). perfetto: a timeline of steps and requests. "
            "parquet: a run's results. latex: the tables of its report."
        ),
    ] = "bankwise",
    point: Annotated[
        int | None, typer.Option(help="Number of the point, where the run has several.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option(help="Replication, from 1 on (default: 1).")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(help="Steps of the run: N, A:B (without B), A: or all (default: 100)."),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Layers of the model: N, A:B (without B), A: or all (default: 0)."),
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            help="What is traced: migration, weights, prefill, attention or all "
            "(default: attention)."
        ),
    ] = None,
    channel: Annotated[
        int | None,
        typer.Option(
            help="Channel that is written alone, at addresses local to it (default: all)."
        ),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="All times are 0: as fast as the memory takes them.")
    ] = False,
    mapper: Annotated[
        str | None,
        typer.Option(help="Addresses for this mapper of the peer: RoBaRaCoCh, rochrababgco, ..."),
    ] = None,
    replica: Annotated[
        int | None,
        typer.Option(
            help="Replica whose steps are written, from 0 on; of pools those that "
            "prefill come first (default: 0)."
        ),
    ] = None,
    jobs: Jobs = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Write a run for other tools: accesses, timeline, results.

    A trace of DRAM accesses is for DRAM simulators; `bankwise replay` reads every format back.
    """
    of_accesses = {"--steps": steps, "--layers": layers, "--phase": phase, "--channel": channel,
                   "--at-once": at_once, "--mapper": mapper, "--replica": replica}  # fmt: skip
    if format in ("perfetto", "parquet", "latex"):
        refuse(f"does not go with --format {format}", of_accesses)
    if format in ("parquet", "latex"):
        of_point = {"--point": point, "--replication": replication, "--set": overrides or None}
        refuse(f"does not go with --format {format}", of_point)
        (_results if format == "parquet" else _tables)(Path(sweep), out, json)
        return
    if format == "perfetto":
        _timeline(sweep, out, (overrides or [], point, replication or 1), jobs, json)
        return
    from dataclasses import asdict

    from sweeps.report.screen import print_json
    from sweeps.run.executor import worker_count
    from sweeps.run.trace_export import WantedTrace
    from sweeps.run.trace_export import export as perform

    wanted = WantedTrace(
        steps or WantedTrace.steps,
        layers or WantedTrace.layers,
        phase or WantedTrace.phase,
        channel,
        format,
        at_once,
        mapper,
        replica or 0,
    )
    workers = worker_count(jobs)
    found = perform(sweep, out, wanted, overrides or (), point, replication or 1, workers)
    if json:
        print_json(asdict(found))
    else:
        for warning in found.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        _show(found, out)


def _results(run: Path, out: Path, json: bool) -> None:
    """A row a result, units in the metadata."""
    from sweeps.report.screen import print_json
    from sweeps.run.parquet import write_parquet
    from sweeps.run.store import last_run

    many, columns = write_parquet(last_run(run), out)
    if json:
        print_json({"file": str(out), "rows": many, "columns": columns})
    else:
        print(f"wrote {out}: {many:,} results, {columns:,} columns; units are in their metadata")


def _tables(run: Path, out: Path, json: bool) -> None:
    """The tables of a run's report, for a paper."""
    from sweeps.report.contents import read_report
    from sweeps.report.latex import latex
    from sweeps.report.screen import print_json
    from sweeps.run.store import last_run, write_atomically

    text = latex(read_report(last_run(run)).section)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    many = text.count(r"\begin{table}")
    if json:
        print_json({"file": str(out), "tables": many})
    else:
        print(f"wrote {out}: {many} tables; they need the package booktabs")


def _timeline(
    sweep: str, out: Path, which: tuple[list[str], int | None, int], jobs: int | None, json: bool
) -> None:
    """Steps and requests of a replication, for ui.perfetto.dev."""
    from sweeps.analyse.label import title
    from sweeps.report.screen import print_json
    from sweeps.run.executor import worker_count
    from sweeps.run.timeline_export import export_timeline

    found = export_timeline(sweep, out, *which, worker_count(jobs))
    if json:
        print_json({"file": str(out), **found})
        return
    named = title(found["overrides"], found["control"])
    print(f"wrote {out}: {named}, replication {found['replication']}; open it in ui.perfetto.dev")


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
