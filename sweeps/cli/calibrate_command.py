"""`bankwise calibrate`. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Json, Set, mistake, refuse, wrote

if TYPE_CHECKING:
    from hwmodel.benchmark.rounds import Benchmark

    Run = Callable[[Callable[[str], None]], Benchmark]

FOLDER = Path("measured")
"""Where --memory writes by default."""
PART = 0.5


def command(
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="LOG",
            help="A server's log (docs/calibrate.md), or a described server that names one."
        ),
    ] = None,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory",
            help="Instead: measure the memory of this machine's CPUs, or of its GPU; nothing else "
            "should run.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="What a log's server ran on; with --memory, to compare and to overlay."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="What it served; with a log.")] = None,
    part: Annotated[
        float | None, typer.Option(help="Share of the log that is fitted, the first; 0.5.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH",
            help=f"Write the calibrated server to this file; with --memory: a new folder, {FOLDER}"
            " by default.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="With --memory: half of the patterns, 6 rounds instead of 15."
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", help="With --memory: one a core by default.")
    ] = None,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu", help="With --memory: the first NVIDIA GPU instead; needs bankwise[cuda]."
        ),
    ] = False,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Calibrate on a server's log, or on this machine's memory.

    Of a log efficiency and overheads, with intervals; the rest of it validates. --set
    serving.kv_tokens=41392 and so on say how the server was started. Of memory: measurements that
    `bankwise validate` compares, and with --device that device with the efficiency measured.
    """
    if memory:
        refuse(
            "does not go with --memory",
            {"LOG": log, "--model": model, "--part": part, "--set": overrides or None},
        )
        _memory(device, out or FOLDER, quick, threads, gpu, json)
        return
    refuse("needs --memory", {"--quick": quick, "--threads": threads, "--gpu": gpu})
    if log is None:
        raise mistake("needs a LOG, or --memory", "calibrate")
    from hwmodel.description.library import names
    from policies.serving.measured_server import load_server
    from sweeps.ask.calibrate import calibrate, server_of
    from sweeps.report.calibration_sheet import overlay, record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.store import write_atomically

    share = PART if part is None else part
    if not 0.1 <= share <= 0.9:
        raise mistake(f"expected 0.1 to 0.9; got {share:g}", "--part")
    if log in names("servers") or log.endswith((".yaml", ".yml")):
        if device or model or overrides:
            raise mistake("its description says what it ran", log)
        server = load_server(log)
    elif not Path(log).is_file():
        raise mistake("no such file, or described server", log)
    elif device is None or model is None:
        missing = "--device" if device is None else "--model"
        raise mistake(f"a log needs {missing}, which it does not name", log)
    else:
        server = server_of(Path(log), device, model, overrides or [])
    found = calibrate(server, share)
    if out is not None:
        write_atomically(out, overlay(found))
    print_json(record(found)) if json else print_section(sheet(found))
    if out is not None:
        wrote([out], json)
        if not json:
            print(f"next: bankwise validate {out}")


def _memory(
    device: str | None, out: Path, quick: bool, threads: int | None, gpu: bool, json: bool
) -> None:
    """Measure this machine's memory, and write what was found into `out`."""
    from sweeps.ask.machine_memory import device_to_compare, write
    from sweeps.report import validation
    from sweeps.report.measure_sheet import record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.section import Section

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
    from hwmodel.benchmark import cpu_benchmark, rounds
    from hwmodel.benchmark.machine import read_machine

    machine = read_machine()
    many = cpu_benchmark.thread_count(machine, threads)
    size, asked = cpu_benchmark.buffer_size(machine), rounds.effort(quick)
    return lambda told: cpu_benchmark.measure_cpu(machine, many, asked, size, told)


def _on_gpu(threads: int | None, quick: bool) -> Run:
    """As `_on_cpu`."""
    from hwmodel.benchmark import rounds

    if threads is not None:
        raise mistake("of CPUs; a GPU is filled", "--threads")
    try:
        from hwmodel.benchmark import gpu_benchmark
    except ImportError:  # a numba without its CUDA target
        raise mistake("pip install 'bankwise[cuda]'", "--gpu") from None
    machine = gpu_benchmark.read_gpu()
    size, asked = gpu_benchmark.gpu_buffer(machine), rounds.effort(quick)
    return lambda told: gpu_benchmark.measure_gpu(machine, asked, size, told)
