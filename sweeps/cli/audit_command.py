"""`bankwise audit`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import FOUND, Clocks, Device, Plugin, Set, Timeline, wrote


def command(
    device: Device,
    commands: Annotated[
        Path, typer.Argument(metavar="COMMANDS.csv", help="A log written by `replay --commands`.")
    ],
    timeline: Timeline = None,
    clocks: Clocks = None,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Check a DRAM command log against every timing rule.

    Exit code 0: no violation; 1: violations found; 2: the input cannot be read.
    """
    from hwmodel.oracle.command_log import read_csv
    from hwmodel.specs.device import load_device
    from sweeps.cli import timeline_file
    from sweeps.report.screen import show_audit
    from sweeps.sections.formats import counted
    from sweeps.sections.section import Say

    window = timeline_file.asked(timeline, clocks)
    loaded = load_device(device, overrides or [])
    chart = None
    if timeline is not None:
        chart = timeline_file.drawn(loaded, read_csv(loaded.memory, commands), window)
    violations = show_audit(loaded, commands)
    if timeline is not None and chart is not None:
        told = Say(f"{commands.name}: {counted(violations, 'violation')}.", "lead")
        timeline_file.write(timeline, loaded, chart, [told])
        wrote([timeline], False)
    if violations:
        raise typer.Exit(FOUND)
