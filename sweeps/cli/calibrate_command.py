"""`bankwise calibrate`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json, Set


def calibrate(
    log: Annotated[
        str,
        typer.Argument(
            help="A server's log (docs/calibrate.md), or a described server that names one."
        ),
    ],
    device: Annotated[str | None, typer.Option(help="What it ran on; with a log.")] = None,
    model: Annotated[str | None, typer.Option(help="What it served; with a log.")] = None,
    part: Annotated[float, typer.Option(help="Share of the log that is fitted, the first.")] = 0.5,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the calibrated server.")
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Calibrate a description on a server's log: efficiency, overheads, with intervals.

    The rest of the log validates. --set serving.kv_tokens=41392 and so on say how it was started.
    """
    from hwmodel.description.description import DescriptionError
    from hwmodel.description.library import names
    from policies.serving.measured_server import load_server
    from sweeps.ask.calibrate import calibrate as calibrated
    from sweeps.ask.calibrate import server_of
    from sweeps.report.calibration_sheet import overlay, record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.store import write_atomically

    if not 0.1 <= part <= 0.9:
        raise DescriptionError(f"expected 0.1 to 0.9; got {part:g}", "--part")
    if log in names("servers") or log.endswith((".yaml", ".yml")):
        if device or model or overrides:
            raise DescriptionError("its description says what it ran", log)
        server = load_server(log)
    elif device is None or model is None:
        missing = "--device" if device is None else "--model"
        raise DescriptionError(f"a log needs {missing}, which it does not name", log)
    else:
        server = server_of(Path(log), device, model, overrides or [])
    found = calibrated(server, part)
    if out is not None:
        write_atomically(out, overlay(found))
    print_json(record(found)) if json else print_section(sheet(found))
    if out is not None and not json:
        print(f"\nwrote {out}; bankwise validate {out}")
