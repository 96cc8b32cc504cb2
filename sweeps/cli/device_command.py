"""The commands about single devices. Imports stay inside, as in `cli`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Device files: new writes one from public numbers.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _device() -> None:
    """Device files: new writes one from public numbers."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the device; the file is NAME.yaml.")],
    memory: Annotated[
        str | None, typer.Option(help="lpddr5x, hbm2e, ...; given: no timings.")
    ] = None,
    rate: Annotated[str | None, typer.Option(metavar="8533MT/s", help="Of a pin.")] = None,
    width: Annotated[int | None, typer.Option(metavar="BITS", help="Of the whole bus.")] = None,
    capacity: Annotated[str | None, typer.Option(metavar="64GiB")] = None,
    flops: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]42.5TFLOPS", help="Dense peak, of fp16 by default; repeatable."
        ),
    ] = None,
    engines: Annotated[int | None, typer.Option(help="Cores that read memory.")] = None,
    link: Annotated[
        str | None, typer.Option(metavar="64GB/s", help="To another card, one way.")
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Whose unpublished numbers are borrowed.")
    ] = None,
) -> None:
    """Write NAME.yaml from public numbers, everything else assumed and marked; check it.

    Numbers that are missing are asked for on a terminal.
    """
    from sweeps.ask.new_device import new_device

    given = _asked({"memory": memory, "rate": rate, "width": width, "capacity": capacity,
                   "flops": flops, "engines": engines})  # fmt: skip
    peaks = [given["flops"]] if isinstance(given["flops"], str) else given["flops"]
    pairs = (text.rpartition("=") for text in peaks)
    given["flops"] = {kind or "fp16": peak for kind, _, peak in pairs}
    done = new_device(name, **given, link=link, like=like)
    print(f"wrote {done.file}")
    for note in done.notes:
        print(f"  {note}")
    print(f"next:\n  bankwise check {done.file} --assumed")
    if done.device.given is None:
        print(f"  bankwise bandwidth {done.file}")
    print(f"  bankwise fit {done.file}")


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """What is missing of ASKED, from the terminal, where each answer is looked at as it comes.

    Raises DescriptionError where there is no terminal, or what is given is at fault."""
    from hwmodel.description.description import DescriptionError
    from sweeps.ask.new_device import ASKED, refuse

    missing = [key for key in ASKED if given[key] in (None, [])]
    if missing and not sys.stdin.isatty():
        options = ", ".join(f"--{key}" for key in missing)
        raise DescriptionError(f"needs {options} (asked for on a terminal)", "device new")
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
