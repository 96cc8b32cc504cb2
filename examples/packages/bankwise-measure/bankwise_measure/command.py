"""`bankwise measure`. Imports stay inside: `--help` loads nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Json, mistake, wrote

if TYPE_CHECKING:
    from bankwise_measure.rounds import Benchmark

    Run = Callable[[Callable[[str], None]], Benchmark]

FOLDER = Path("measured")
"""Where it writes by default."""


def measure(
    device: Annotated[str | None, typer.Option(help="To compare and to overlay.")] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new folder for what is measured.")
    ] = FOLDER,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half of the patterns, 6 rounds instead of 15.")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", help="One a core by default.")] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="The first NVIDIA GPU instead; needs the extra cuda.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the memory of this machine's CPUs, or of its GPU.

    Nothing else should run. It writes measurements that `bankwise validate` compares, and with
    --device that device with the efficiency measured.
    """
    from bankwise_measure.machine_memory import device_to_compare, write
    from bankwise_measure.measure_sheet import record, sheet
    from sweeps.ask import validation
    from sweeps.report.screen import print_json, print_section
    from sweeps.sections.section import Section

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise mistake("exists and is not empty; name another folder", f"--out {out}")
    described = None if device is None else device_to_compare(device)

    def told(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr)

    run = _on_gpu(threads, quick) if gpu else _on_cpu(threads, quick)
    out.mkdir(parents=True, exist_ok=True)
    found = run(told)
    told("")
    print_json(record(found)) if json else print_section(sheet(found))
    files = write(out, found, described, device or "")
    wrote(files, json)
    if described is None or described.given is not None or json:
        return
    table = validation.grid(validation.compared(validation.loaded(str(files[0]))))
    title = f"beside {described.name} as described"
    print()
    print_section(Section(title, [replace(table, title=f"{title}:")]))


def _on_cpu(threads: int | None, quick: bool) -> Run:
    """Checks what is asked for; what it returns measures."""
    from bankwise_measure import cpu_benchmark, rounds
    from bankwise_measure.machine import read_machine

    machine = read_machine()
    many = cpu_benchmark.thread_count(machine, threads)
    size, asked = cpu_benchmark.buffer_size(machine), rounds.effort(quick)
    return lambda told: cpu_benchmark.measure_cpu(machine, many, asked, size, told)


def _on_gpu(threads: int | None, quick: bool) -> Run:
    """As `_on_cpu`."""
    from bankwise_measure import rounds

    if threads is not None:
        raise mistake("of CPUs; a GPU is filled", "--threads")
    try:
        from bankwise_measure import gpu_benchmark
    except ImportError:  # a numba without its CUDA target
        raise mistake("pip install './examples/packages/bankwise-measure[cuda]'", "--gpu") from None
    machine = gpu_benchmark.read_gpu()
    size, asked = gpu_benchmark.gpu_buffer(machine), rounds.effort(quick)
    return lambda told: gpu_benchmark.measure_gpu(machine, asked, size, told)
