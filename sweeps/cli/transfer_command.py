"""`bankwise transfer`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json, Kv, Set, Weights, mistake, one_or_two, refuse, shipped

CONTEXTS = "1024,4096,16384,32768"
"""Tokens that --restore looks at, as far as the model allows them."""
CONTEXT = 4096
"""Tokens of the request that pauses."""
SECONDS = "0.1,0.5,1,2,5,10,30,60"


def command(
    link: Annotated[
        str, typer.Argument(
            metavar="LINK", help="A shipped link or a YAML file.", autocompletion=shipped("links"),
        ),
    ],
    model: Annotated[str, typer.Option(
            "--model", metavar="MODEL", help="Whose KV moves.", autocompletion=shipped("models"),
        ),],
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N]",
            help=f"Of the request that moves. With --restore several; {CONTEXTS}, as far as they"
            f" fit. With --pause: {CONTEXT:,}.",
        ),
    ] = None,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="Instead: have a context's KV on --device again: compute, fetch, or from hidden"
            " states (HCache).",
        ),
    ] = False,
    pause: Annotated[
        bool,
        typer.Option(
            "--pause",
            help="Instead: keep, drop or swap the KV of a request that pauses on --device"
            " (InferCept's waste of each).",
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option(
            help="With --restore or --pause: whose memory and cores.",
            autocompletion=shipped("accelerators"),
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="DEVICE", help="Gives layout and block.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", metavar="DEVICE", help="Likewise; as the source.")
    ] = None,
    block: Annotated[
        str | None, typer.Option(metavar="N[:N]", help="Tokens a block, at either end.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(metavar="NAME[:NAME]", help="Of the KV, at either end.")
    ] = None,
    pages: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[:KIND]",
            help="Block ids: fresh, aged, descending, or a number of blocks that lie together;"
            " aged:fresh, with --restore aged:aged.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="LOG", help="The source's block tables, of the request with most."),
    ] = None,
    tp: Annotated[
        str | None, typer.Option(metavar="N[:N]", help="Cards that share the model; 1.")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(metavar="LAYERSxBYTES", help="Indexers beside the KV, as 61x132B a token."),
    ] = None,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="As much goes the other way at the same time.")
    ] = False,
    running: Annotated[
        int | None, typer.Option(min=1, help="With --pause: requests that decode beside it; 32.")
    ] = None,
    each: Annotated[
        int | None, typer.Option(min=1, help="With --pause: tokens that each of them holds; 1024.")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option(metavar="S,S,...", help=f"With --pause: its length; {SECONDS}.")
    ] = None,
    weights: Weights = None,
    kv: Kv = None,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Say how long a request's KV takes over a link.

    How many descriptors move it, too. Beside it: neighbours merged, blocks in order, and all layers
    of a block together. --set overrides the link; with --restore or --pause the device.
    """
    of_ends = {"--from": source, "--to": target, "--layout": layout, "--tables": tables,
               "--tp": tp, "--index": index, "--both-ways": both_ways}  # fmt: skip
    of_pause = {"--running": running, "--each": each, "--seconds": seconds}
    if restore:
        refuse("does not go with --restore", of_ends | of_pause | {"--pause": pause})
        _restore(_card(device, "--restore"), model, link, tokens, block, pages or "aged:aged",
                 (weights, kv), json, overrides or [])  # fmt: skip
        return
    if pause:
        refuse("does not go with --pause",
               of_ends | {"--block": block, "--weights": weights, "--kv": kv})  # fmt: skip
        batch = (running or 32, each or 1024)
        _pause(_card(device, "--pause"), model, link, tokens, batch, seconds or SECONDS,
               pages or "aged:fresh", json, overrides or [])  # fmt: skip
        return
    refuse("needs --pause", of_pause)
    refuse("needs --restore", {"--weights": weights})
    refuse("needs --restore or --pause; ends are --from and --to", {"--device": device})
    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from sweeps.cli.transfer_ends import Ends, transferred
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.transfer_sheet import record, sheet

    spec = load_link(link, overrides or [])
    shape = load_model(model)
    shape = shape if kv is None else shape.stored_as(None, kv)
    ends = Ends(source, target, block, layout, pages or "aged:fresh", tables, tp or "1")
    asked, found = transferred(spec, shape, _one(tokens), ends, index, both_ways)
    answer = (spec, shape, asked, found)
    print_json(record(*answer)) if json else print_section(sheet(*answer))


def _restore(
    device: str, model: str, link: str, tokens: str | None, block: str | None, pages: str,
    formats: tuple[str | None, str | None], json: bool, overrides: list[str],
) -> None:  # fmt: skip
    """Ways to have a context's KV again, of a request alone on the card."""
    from hwmodel.specs.device import load_device
    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from sweeps.ask.restore import RestoreQuestion
    from sweeps.ask.restore import restore as answer
    from sweeps.report.restore_sheet import record, sheet
    from sweeps.report.screen import print_json, print_section

    if block is not None and (not block.isdecimal() or int(block) < 1):
        raise mistake(f"expected 1 or more; got {block!r}", "--block")
    card = load_device(device, overrides)
    shape = load_model(model).stored_as(*formats)
    size = card.paging.block if block is None else int(block)
    question = RestoreQuestion(card, shape, load_link(link), size, one_or_two(pages, "--pages"))
    contexts = _tokens(tokens or CONTEXTS)
    if tokens is None:
        contexts = [n for n in contexts if n <= shape.max_position] or [shape.max_position]
    found = answer(question, contexts)
    print_json(record(question, found)) if json else print_section(sheet(question, found))


def _pause(
    device: str, model: str, link: str, tokens: str | None, batch: tuple[int, int], seconds: str,
    pages: str, json: bool, overrides: list[str],
) -> None:  # fmt: skip
    """Keep, drop or swap; waste is memory times time."""
    from hwmodel.specs.device import load_device
    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from policies.transfers.pausing import BesideBatch
    from sweeps.ask.pause import PauseQuestion
    from sweeps.ask.pause import pause as answer
    from sweeps.report.pause_sheet import record, sheet
    from sweeps.report.screen import print_json, print_section

    card, (running, each) = load_device(device, overrides), batch
    context = CONTEXT if tokens is None else _one(tokens)
    question = PauseQuestion(
        card, load_model(model), load_link(link), context, BesideBatch(running, running * each),
        card.paging.block, one_or_two(pages, "--pages"),
    )  # fmt: skip
    found = answer(question, _seconds(seconds))
    print_json(record(question, found)) if json else print_section(sheet(question, found))


def _card(device: str | None, mode: str) -> str:
    if device is None:
        raise mistake("needs --device", mode)
    return device


def _one(tokens: str | None) -> int:
    """Of a request that is one."""
    found = [] if tokens is None else _tokens(tokens)
    if len(found) != 1:
        raise mistake(f"expected the tokens of one request; got {tokens or 'none'}", "--tokens")
    return found[0]


def _tokens(given: str) -> list[int]:
    parts = given.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise mistake(f"expected numbers, as {CONTEXTS}; got {given!r}", "--tokens")
    return [int(part) for part in parts]


def _seconds(given: str) -> list[float]:
    try:
        found = [float(part) for part in given.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < each < 1e6 for each in found):
        raise mistake(f"expected seconds above 0, as {SECONDS}; got {given!r}", "--seconds")
    return found
