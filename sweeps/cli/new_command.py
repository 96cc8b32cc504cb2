"""`bankwise new`: descriptions from public numbers. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.cli.options import Json, wrote
from sweeps.cli.packaged import NewGroup, OnceCommand

command = typer.Typer(
    cls=NewGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
_Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write it here; NAME.yaml by default.")
]


@command.callback()
def _new() -> None:
    """Write a device, memory or model of your own."""


@command.command(cls=OnceCommand)
def device(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the device; the file is NAME.yaml.")
    ],
    memory: Annotated[
        str | None, typer.Option(help="Memory standard: lpddr5x, hbm2e, ...; given has no timings.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="8533MT/s", help="Data rate of a pin.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(metavar="BITS", help="Width of the whole bus.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(metavar="64GiB", help="Capacity of the card.")
    ] = None,
    flops: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]42.5TFLOPS", help="Dense peak, of fp16 by default; repeatable."
        ),
    ] = None,
    engines: Annotated[int | None, typer.Option(help="Cores that read memory.")] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="64GB/s", help="Bandwidth of the link to another card, one way."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Device whose unpublished numbers are borrowed."),
    ] = None,
) -> None:
    """Write a device from public numbers.

    Everything else is assumed and marked.
    Numbers that are missing are asked for on a terminal.
    """
    from sweeps.ask.new_device import new_device

    given = _asked({"memory": memory, "rate": rate, "width": width, "capacity": capacity,
                   "flops": flops, "engines": engines})  # fmt: skip
    peaks = [given["flops"]] if isinstance(given["flops"], str) else given["flops"]
    pairs = (text.rpartition("=") for text in peaks)
    given["flops"] = {kind or "fp16": peak for kind, _, peak in pairs}
    done = new_device(name, **given, link=link, like=like)
    wrote([done.file], False)
    for note in done.notes:
        print(f"  {note}")
    print(f"next:\n  bankwise check {done.file} --assumed\n  bankwise {done.file}")


@command.command(cls=OnceCommand)
def memory(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the memory; the file is NAME.yaml.")
    ],
    like: Annotated[
        str, typer.Option(metavar="MEMORY", help="A shipped one, or a file, that it differs from.")
    ],
    rate: Annotated[
        str | None, typer.Option(metavar="8533MT/s", help="Data rate of a pin.")
    ] = None,
    density: Annotated[str | None, typer.Option(metavar="16Gb", help="Density of a die.")] = None,
) -> None:
    """Write a memory: another at a rate or density.

    Its times in ns stay those of the other; docs/dram.md says what else a file may change.
    """
    from sweeps.ask.new_memory import new_memory

    done = new_memory(name, like=like, rate=rate, density=density)
    wrote([done.file], False)
    for note in done.notes:
        print(f"  {note}")
    print(f"next:\n  bankwise check {done.file} --assumed\n  bankwise {done.file}")


@command.command(cls=OnceCommand)
def model(
    config: Annotated[
        Path, typer.Argument(metavar="config.json", help="A config.json of Hugging Face's hub.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the model (default: its _name_or_path, or its folder)."
        ),
    ] = None,
    out: _Out = None,
    json: Json = False,
) -> None:
    """Turn a published config.json into a model.

    What was understood is listed, and what not.
    """
    from hwmodel.description.description import DescriptionError
    from hwmodel.specs.huggingface import import_config
    from sweeps.cli.model_table import described, import_sheet
    from sweeps.report.screen import print_json, print_section

    found = import_config(config, name)
    file = out or Path(f"{found.spec.name}.yaml")
    if file.suffix not in (".yaml", ".yml"):
        raise DescriptionError("expected a name that ends in .yaml", file)
    if file.exists():
        raise DescriptionError("exists; give another --out", file)
    file.write_text(described(found), encoding="utf-8")
    if json:
        print_json({**found._replace(spec=None)._asdict(), "file": str(file)})  # type: ignore[arg-type]
        return
    print_section(import_sheet(found))
    wrote([file], json)


@command.command(cls=OnceCommand)
def kernels(
    portable: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For any processor of x86-64-v3, for a wheel to carry."),
    ] = None,
) -> None:
    """Compile all kernels for this machine.

    Some minutes, once for a version.

    Without it each is compiled when it is first needed, or comes with the wheel, where it is for
    any newer x86-64 and runs about a third longer.
    """
    from hwmodel.kernel.all_kernels import compile_here, compile_portable

    def serving() -> None:
        from policies.serving.plain.plain_run import compile_core  # after the variables are set

        compile_core()

    path = compile_here(serving) if portable is None else compile_portable(portable, serving)
    wrote([path], False)


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """What is missing of ASKED, from the terminal, where each answer is looked at as it comes.

    Raises DescriptionError where there is no terminal, or what is given is at fault."""
    from hwmodel.description.description import DescriptionError
    from sweeps.ask.new_device import ASKED, refuse

    missing = [key for key in ASKED if given[key] in (None, [])]
    if missing and not sys.stdin.isatty():
        options = ", ".join(f"--{key}" for key in missing)
        raise DescriptionError(f"needs {options} (asked for on a terminal)", "new device")
    if missing:
        refuse(given)
    whole = ("width", "engines")
    for key in missing:
        while True:
            answer = typer.prompt(ASKED[key], type=int if key in whole else str)
            try:
                refuse({**given, "flops": None, key: answer})
            except DescriptionError as error:
                print(error, file=sys.stderr)
                continue
            break
        given = given | {key: answer}
    return given
