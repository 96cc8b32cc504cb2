"""`bankwise pause`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Json, Set, mistake, one_or_two

SECONDS = "0.1,0.5,1,2,5,10,30,60"


def pause(
    device: Annotated[str, typer.Argument(help="A shipped device or a YAML file.")],
    model: Annotated[str, typer.Argument(help="A shipped model or a YAML file.")],
    link: Annotated[str, typer.Option(help="To the host: a shipped link, or a file.")],
    context: Annotated[int, typer.Option(min=1, help="Tokens of the request that pauses.")] = 4096,
    running: Annotated[int, typer.Option(min=1, help="Requests that decode beside it.")] = 32,
    each: Annotated[int, typer.Option(min=1, help="Tokens that each of them holds.")] = 1024,
    seconds: Annotated[str, typer.Option(metavar="S,S,...", help="Pauses.")] = SECONDS,
    pages: Annotated[
        str, typer.Option(metavar="KIND[:KIND]", help="Block ids of card and host.")
    ] = "aged:fresh",
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Keep, drop or swap the KV of a request that pauses: InferCept's waste of each.

    Memory and cores as `bankwise fit` states them; waste is memory times time.
    """
    from hwmodel.specs.device import load_device
    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from policies.transfers.pausing import Batch
    from sweeps.ask.pause import Question
    from sweeps.ask.pause import pause as answer
    from sweeps.report.pause_sheet import record, show
    from sweeps.report.screen import print_json

    card = load_device(device, overrides or [])
    question = Question(
        card, load_model(model), load_link(link), context, Batch(running, running * each),
        card.paging.block, one_or_two(pages, "--pages"),
    )  # fmt: skip
    found = answer(question, _numbers(seconds))
    print_json(record(question, found)) if json else show(question, found)


def _numbers(given: str) -> list[float]:
    try:
        found = [float(part) for part in given.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < each < 1e6 for each in found):
        raise mistake(f"expected seconds above 0, as {SECONDS}; got {given!r}", "--seconds")
    return found
