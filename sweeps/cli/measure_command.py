"""`bankwise measure`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwmodel.benchmark.rounds import Benchmark

    Run = Callable[[Callable[[str], None]], Benchmark]

FOLDER = Path("measured")


def measure(
    device: Annotated[
        str | None,
        typer.Option(help="A shipped accelerator or a YAML file to compare with and to overlay."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new or empty folder for the files.")
    ] = FOLDER,
    quick: Annotated[
        bool, typer.Option("--quick", help="About half of the patterns, 6 rounds instead of 15.")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", help="One a core by default.")] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="The first NVIDIA GPU instead; needs bankwise[cuda].")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the memory of this machine's CPUs or GPU, as measurements that validate compares.

    With --device also that device with the efficiency measured. Nothing else should run.
    """
    import sys

    from hwmodel.description.description import DescriptionError
    from sweeps.ask.machine_memory import device_to_compare, write
    from sweeps.report import validation
    from sweeps.report.measure_sheet import record, show
    from sweeps.report.screen import print_json, print_table

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DescriptionError("exists and is not empty; name another folder", f"--out {out}")
    described = None if device is None else device_to_compare(device)

    def told(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr)

    run = _on_gpu(threads, quick) if gpu else _on_cpu(threads, quick)
    out.mkdir(parents=True, exist_ok=True)
    found = run(told)
    told("")
    print_json(record(found)) if json else show(found)
    files = write(out, found, described, device or "")
    for file in files:
        print(f"wrote {file}", file=sys.stderr if json else sys.stdout)
    if described is None or described.given is not None or json:
        return
    table = validation.grid(validation.compared(validation.loaded(str(files[0]))))
    print(f"\nbeside {described.name} as described:\n")
    print_table(table.columns, table.rows, "<>>>><<<")


def _on_cpu(threads: int | None, quick: bool) -> Run:
    """Checks what is asked for; what it returns measures."""
    from hwmodel.benchmark import cpu_benchmark, rounds
    from hwmodel.benchmark.machine import read_machine

    machine = read_machine()
    many = cpu_benchmark.thread_count(machine, threads)
    size, asked = cpu_benchmark.buffer_size(machine), rounds.effort(quick)
    return lambda told: cpu_benchmark.measure_cpu(machine, many, asked, size, told)


def _on_gpu(threads: int | None, quick: bool) -> Run:
    """As `_on_cpu`."""
    from hwmodel.benchmark import rounds
    from hwmodel.description.description import DescriptionError

    if threads is not None:
        raise DescriptionError("of CPUs; a GPU is filled", "--threads")
    try:
        from hwmodel.benchmark import gpu_benchmark
    except ImportError:  # a numba without its CUDA target
        raise DescriptionError("pip install 'bankwise[cuda]'", "--gpu") from None
    machine = gpu_benchmark.read_gpu()
    size, asked = gpu_benchmark.gpu_buffer(machine), rounds.effort(quick)
    return lambda told: gpu_benchmark.measure_gpu(machine, asked, size, told)
