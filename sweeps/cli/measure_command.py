"""`bankwise measure`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json

FOLDER = Path("measured")


def measure(
    device: Annotated[
        str | None,
        typer.Option(help="A shipped accelerator or a YAML file to compare with and to overlay."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new folder for the files.")
    ] = FOLDER,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half of the patterns, half of the rounds.")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", help="One a core by default.")] = None,
    json: Json = False,
) -> None:
    """Measure the memory of this machine's CPUs, as measurements that validate compares.

    With --device also that device with the efficiency measured. Nothing else should run.
    """
    import sys

    from hwmodel.benchmark import cpu_benchmark
    from hwmodel.benchmark.machine import read_machine
    from hwmodel.description.description import DescriptionError
    from sweeps.ask.machine_memory import device_to_compare, write
    from sweeps.report import validation
    from sweeps.report.measure_sheet import record, show
    from sweeps.report.screen import print_json, print_table

    if out.exists():
        raise DescriptionError("exists; name another folder", f"--out {out}")
    described = None if device is None else device_to_compare(device)
    machine = read_machine()
    many = cpu_benchmark.thread_count(machine, threads)
    size = cpu_benchmark.buffer_size(machine)

    def told(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr)

    found = cpu_benchmark.measure_cpu(machine, many, cpu_benchmark.effort(quick), size, told)
    told("")
    if json:
        print_json(record(found))
    else:
        show(found)
    files = write(out, found, described, device or "")
    for file in files:
        print(f"wrote {file}", file=sys.stderr if json else sys.stdout)
    if described is None or described.given is not None or json:
        return
    table = validation.grid(validation.compared(validation.loaded(str(files[0]))))
    print(f"\nbeside {described.name} as described:\n")
    print_table(table.columns, table.rows, "<>>>><<<")
