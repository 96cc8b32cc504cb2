"""`bankwise calibrate`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json, Set, mistake, wrote
from sweeps.cli.packaged import PACKAGES

PART = 0.5


def _moved(given: bool) -> None:
    if given:
        from hwmodel.description.written import install

        raise mistake(f"now `bankwise measure`; {install(PACKAGES['measure'])}", "--memory")


def command(
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="LOG",
            help="A server's log (docs/calibrate.md), or a described server that names one."
        ),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", hidden=True, callback=_moved)] = False,
    device: Annotated[
        str | None, typer.Option(help="What a log's server ran on.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="What it served; with a log.")] = None,
    part: Annotated[
        float | None, typer.Option(help="Share of the log that is fitted, the first; 0.5.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PATH", help="Write the calibrated server to this file."
        ),
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Calibrate on a server's log.

    Efficiency and overheads, with intervals; the rest of it validates. --set
    serving.kv_tokens=41392 and so on say how the server was started.
    """
    if log is None:
        raise mistake("needs a LOG", "calibrate")
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
