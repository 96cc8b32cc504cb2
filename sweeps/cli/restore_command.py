"""`bankwise restore`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Json, Kv, Set, Weights, mistake, one_or_two

CONTEXTS = "1024,4096,16384,32768"


def restore(
    device: Annotated[str, typer.Argument(help="A shipped device or a YAML file.")],
    model: Annotated[str, typer.Argument(help="A shipped model or a YAML file.")],
    link: Annotated[str, typer.Option(help="Where the KV is kept: a shipped link, or a file.")],
    contexts: Annotated[
        str | None, typer.Option(metavar="N,N,...", help=f"Tokens; {CONTEXTS}, as far as they fit.")
    ] = None,
    block: Annotated[int | None, typer.Option(min=1, help="Tokens a block; the device's.")] = None,
    pages: Annotated[
        str, typer.Option(metavar="KIND[:KIND]", help="Block ids of the pool there and here.")
    ] = "aged:aged",
    weights: Weights = None,
    kv: Kv = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Compare ways to have a context's KV again: recompute, fetch, or hidden states (HCache).

    A request alone on the card; memory and cores as `bankwise fit` states them.
    """
    from hwmodel.specs.device import load_device
    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from sweeps.ask.restore import Question
    from sweeps.ask.restore import restore as answer
    from sweeps.report.restore_sheet import record, show
    from sweeps.report.screen import print_json

    card = load_device(device, overrides or [])
    shape = load_model(model).stored_as(weights, kv)
    question = Question(
        card, shape, load_link(link), block or card.paging.block, one_or_two(pages, "--pages")
    )  # fmt: skip
    found = answer(question, _contexts(contexts, shape.max_position))
    print_json(record(question, found)) if json else show(question, found)


def _contexts(given: str | None, longest: int) -> list[int]:
    """Of the option; by default those that the model allows."""
    parts = (given or CONTEXTS).split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise mistake(f"expected numbers, as {CONTEXTS}; got {given!r}", "--contexts")
    found = [int(part) for part in parts]
    return found if given else [each for each in found if each <= longest] or [longest]
