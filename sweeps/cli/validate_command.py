"""`bankwise validate`: the models' figures beside measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import FOUND, Json, Set


def validate(
    name: Annotated[
        str | None,
        typer.Argument(help="Shipped measurements or server, or a YAML file; all by default."),
    ] = None,
    candidates: Annotated[
        bool, typer.Option(help="With --json: each cell's figure under every candidate too.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Compare NAME with this device, not with its own.")
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Compare the models with public measurements: within tolerance, or refuted.

    A measured server whose log is not here is skipped; BANKWISE_DATA names the folder of logs.

    Exit code 0: done, also where a cell is refuted; 1: a cell marked `agrees` is refuted; 2:
    invalid input.
    """
    from hwmodel.description.description import DescriptionError
    from policies.serving.measured_server import Skipped
    from sweeps.report import validation
    from sweeps.report.screen import print_json, print_table

    if candidates and not json:
        raise DescriptionError("stands with --json", "--candidates")
    if device is not None and name is None:
        raise DescriptionError("stands with the NAME of measurements", "--device")
    every, records = [], []
    asked = [name] if name else validation.sources()
    for source in [validation.loaded(each, device) for each in asked]:
        spec = validation.spec_of(source)
        try:
            found = validation.compared(source, overrides=overrides)
        except Skipped as error:
            if json:
                records.append({"name": spec.name, "skipped": str(error), "cells": []})
            else:
                print(f"{spec.name}: skipped: {error}\n")
            continue
        every += found
        if json:
            others = {
                other: validation.compared(source, other, overrides)
                for other in (validation.alternatives(spec) if candidates else ())
            }
            records.append(validation.record(spec, found, others if candidates else None))
            continue
        table = validation.grid(found)
        print(f"{spec.name}: {spec.summary}\n")
        print_table(table.columns, table.rows, "<>>>><<<")
        print()
        for title, items in (("tolerance", validation.tolerances(spec)),
                             ("cause", validation.causes(found))):  # fmt: skip
            for key, text in items.items():
                print(f"{title}: {key}: {text}")
        print()
    if json:
        print_json(records)
    else:
        print(validation.summary(every))
    if any(item.lost for item in every):
        raise typer.Exit(FOUND)
