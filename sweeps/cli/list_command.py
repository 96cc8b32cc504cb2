"""`bankwise list`: what ships. Imports stay inside, as in `main`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Json, Set, mistake, refuse

KINDS = (
    "devices", "memories", "models", "formats", "links", "kernels", "workloads", "allocators",
    "predictors", "sweeps", "measurements", "servers",
)  # fmt: skip
"""What is listed; sweeps with the studies among them."""


def command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"{', '.join(KINDS)}; the names of all by default.",
            autocompletion=lambda incomplete: [k for k in KINDS if k.startswith(incomplete)],
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Only these, with remarks; or YAML files."),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Of devices: what memories reach beside their bounds."),
    ] = False,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """List devices, models, formats, links, workloads, sweeps.

    --set overrides devices or models, of which it changes what is listed.
    """
    from hwmodel.description.description import nearest
    from sweeps.cli import catalogue
    from sweeps.report.screen import print_json, print_section

    if kind is not None and kind not in KINDS:
        raise mistake(f"no kind {kind!r}; {nearest(kind, list(KINDS))}", "list")
    if kind != "devices":
        refuse("goes with devices", {"--simulate": simulate})
    if kind not in ("devices", "models"):
        refuse("goes with devices or models", {"--set": overrides or None})
    if kind is None:
        every = {each: catalogue.names_of(each) for each in KINDS}
        print_json(every) if json else catalogue.show_names(every)
        return
    if kind == "devices":
        found = catalogue.devices(overrides or [], names)
        if simulate:
            catalogue.add_simulated(found, overrides or [])
        print_json(found) if json else print_section(catalogue.devices_sheet(found, bool(names)))
        return
    if kind == "models":
        from sweeps.cli.model_table import facts, sheet

        models = facts(names or [], overrides or [])
        print_json({kind: models}) if json else print_section(sheet(models))
        return
    entries = catalogue.entries(kind, names or [])
    print_json({kind: entries}) if json else print_section(catalogue.entries_sheet(entries))
