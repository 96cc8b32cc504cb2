"""`bankwise fit`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Html, Json, Kv, Plugin, Set, Weights, mistake


def fit(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DEVICE] [MODEL]", help="Shipped names or YAML files; or all."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="PROMPT:OUTPUT", help="Of a request; 1000:300.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Longest answer allowed; 1024.")
    ] = None,
    weights: Weights = None,
    kv: Kv = None,
    cards: Annotated[int, typer.Option(help="Cards that share the model.")] = 1,
    expert_parallel: Annotated[
        str | None, typer.Option(metavar="PLACEMENT", help="Whole experts: linear or balanced.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the memory, some seconds; kept after.")
    ] = False,
    html: Html = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Say whether a model fits a device, for how many requests, and how fast.

    With a device or a model alone: a line for each of the library; with neither: all pairs.
    """
    from sweeps.ask.fit import fit as answer
    from sweeps.ask.fit_question import of_library, question_of
    from sweeps.report.fit_sheet import listing, matrix, record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.shown import save

    asked = {"limit": limit, "weights": weights, "kv": kv, "cards": cards,
             "expert_parallel": expert_parallel}  # fmt: skip
    question = question_of(asked if tokens is None else asked | _lengths(tokens))
    devices, models = of_library(names or [], overrides or [])
    pair = len(devices) == len(models) == 1
    if simulate:
        if not pair:
            raise mistake("needs a DEVICE and a MODEL", "--simulate")
        devices[0].memory  # noqa: B018 - raises where it is given
    found = [answer(d, m, question, simulate if pair else None) for d in devices for m in models]
    if pair:
        section = sheet(found[0])
    elif len(devices) > 1 < len(models):
        section = matrix(found)
    else:
        section = listing(found, "models" if len(devices) == 1 else "devices")
    if json:
        records = [record(each, pair) for each in found]
        print_json(records[0] if pair else records)
    else:
        print_section(section)
    if html is not None:
        save([section], html)
        if not json:
            print(f"wrote {html}")


def _lengths(tokens: str) -> dict[str, int]:
    """Of `PROMPT:OUTPUT`. Raises DescriptionError."""
    parts = tokens.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise mistake(f"expected PROMPT:OUTPUT, such as 1000:300; got {tokens!r}", "--tokens")
    return {"prompt": int(parts[0]), "output": int(parts[1])}
