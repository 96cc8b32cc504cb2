"""`bankwise transfer`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.cli.options import Json, Set, mistake, one_or_two

if TYPE_CHECKING:
    from hwmodel.specs.link import LinkSpec
    from hwmodel.specs.transformer import TransformerSpec
    from policies.transfers.transfer import Index, Moved

HOST = "host"
_BLOCKS = 16


def transfer(
    link: Annotated[str, typer.Argument(help="A shipped link or a YAML file.")],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Whose KV moves.")],
    tokens: Annotated[int, typer.Option(help="Of the request that moves.", min=1)],
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
        str,
        typer.Option(
            metavar="KIND[:KIND]",
            help="Block ids: fresh, aged, descending, or a number of blocks that lie together.",
        ),
    ] = "aged:fresh",
    tables: Annotated[
        Path | None,
        typer.Option(metavar="LOG", help="The source's block tables, of the request with most."),
    ] = None,
    tp: Annotated[str, typer.Option(metavar="N[:N]", help="Cards that share the model.")] = "1",
    kv: Annotated[str | None, typer.Option(metavar="FORMAT", help="Of the KV; the model's.")
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(metavar="LAYERSxBYTES", help="Indexers beside the KV, as 61x132B a token."),
    ] = None,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="As much goes the other way at the same time.")
    ] = False,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Say how many descriptors move a request's KV over a link, and how long that takes.

    Beside it: neighbours merged, blocks in order, and all layers of a block together.
    """
    from dataclasses import replace

    from hwmodel.specs.link import load_link
    from hwmodel.specs.transformer import load_model
    from policies.transfers.transfer import Server
    from policies.transfers.transfer import transfer as move
    from sweeps.report.screen import print_json
    from sweeps.report.transfer_sheet import record, show

    spec = load_link(link, overrides or [])
    shape = load_model(model)
    shape = shape if kv is None else shape.stored_as(None, kv)
    ends = _devices(source, target)
    blocks = _pair("--block", block, [each[0] for each in ends], _count)
    dims = _pair("--layout", layout, [each[1] for each in ends], _layout)
    kinds = _pair("--pages", pages, ["aged", "fresh"], str)
    cards = _pair("--tp", tp, [1, 1], _count)
    ids = _tables(kinds, blocks, tokens, tables)
    near, far = (
        Server(order, size, table, many)
        for order, size, table, many in zip(dims, blocks, ids, cards, strict=True)
    )
    merged = spec.model_copy(update={"merges": "any_order"})
    in_order = [replace(each, table=_fresh(len(each.table))) for each in (near, far)]
    whole = [replace(each, dims=_layout("block_layer_kv_token")) for each in (near, far)]
    beside = _index(index, shape)

    def moved(how: LinkSpec, ends: list[Server]) -> Moved:
        return move(how, shape, tokens, ends[0], ends[1], beside, both_ways)

    found = {
        "as asked": moved(spec, [near, far]),
        "neighbours merged": moved(merged, [near, far]),
        "blocks in order, merged": moved(merged, in_order),
        "all layers of a block together": moved(spec, whole),
    }
    asked = {
        "tokens": tokens, "block": blocks, "layout": [_name(each) for each in dims],
        "pages": [str(tables) if tables else kinds[0], kinds[1]], "tp": cards,
    }  # fmt: skip
    answer = (spec, shape, asked, found)
    print_json(record(*answer)) if json else show(*answer)


def _fresh(blocks: int) -> Any:
    from policies.transfers.pieces import pages

    return pages("fresh", blocks)


def _devices(source: str | None, target: str | None) -> list[tuple[int, Any]]:
    """(block, layout) of either end; the target's are the source's where it is a host or nothing
    is said."""
    from hwmodel.specs.device import load_device

    def of(name: str) -> tuple[int, Any]:
        paging = load_device(name).paging
        return paging.block, paging.kv_layout

    named = [None if name in (None, HOST) else of(str(name)) for name in (source, target)]
    plain = (_BLOCKS, _layout("layer_kv_token"))
    return [named[0] or named[1] or plain, named[1] or named[0] or plain]


def _pair(option: str, given: str | None, default: list[Any], read: Any) -> list[Any]:
    """The values of either end: one for both, or two apart by a colon."""
    if given is None:
        return default
    parts = one_or_two(given, option)
    try:
        return [read(part) for part in parts]
    except ValueError as error:
        raise mistake(str(error), option) from None


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 65536:
        raise ValueError(f"expected a number from 1 to 65,536; got {text!r}")
    return int(text)


def _layout(text: str) -> Any:
    from hwmodel.description.description import nearest
    from policies.transfers.pieces import KNOWN_LAYOUTS

    if text not in KNOWN_LAYOUTS:
        raise ValueError(f"unknown layout {text!r}; {nearest(text, list(KNOWN_LAYOUTS))}")
    return KNOWN_LAYOUTS[text]


def _name(dims: Any) -> str:
    from policies.transfers.pieces import KNOWN_LAYOUTS

    return next((name for name, known in KNOWN_LAYOUTS.items() if known == dims), "-".join(dims))


def _tables(kinds: list[str], blocks: list[int], tokens: int, log: Path | None) -> list[Any]:
    """Block ids of either end; those of the source from a log of block tables where one is
    given."""
    from hwmodel.description.description import DescriptionError
    from policies.transfers.pieces import pages

    needed = [-(-tokens // size) for size in blocks]
    try:
        found = [
            pages(kind, n, seed) for seed, (kind, n) in enumerate(zip(kinds, needed, strict=True))
        ]
    except DescriptionError as error:
        raise mistake(error.message, "--pages") from None
    if log is not None:
        found[0] = _logged(log, blocks[0], tokens)
    return found


def _logged(path: Path, block: int, tokens: int) -> Any:
    """The longest block table of a log (docs/block-tables.md)."""
    from policies.serving.server_log import BlockLog

    log = BlockLog(path)
    if log.header.block_size != block:
        raise mistake(f"blocks of {log.header.block_size}; --block says {block}", str(path))
    longest = max((each for step in log for each in step.blocks), key=len)
    if len(longest) * block < tokens:
        most = len(longest) * block
        raise mistake(f"its longest request has blocks for {most:,} tokens", str(path))
    return longest


def _index(text: str | None, model: TransformerSpec) -> Index | None:
    from hwmodel.description.units import parse_quantity
    from policies.transfers.transfer import Index

    if text is None:
        return None
    layers, times, size = text.partition("x")
    try:
        each = int(parse_quantity(size, "size"))
        if not times or not layers.isdecimal() or not 0 < int(layers) <= model.layers or each < 1:
            raise ValueError
    except ValueError:
        raise mistake(
            f"expected LAYERSxBYTES, such as {model.layers}x132B; got {text!r}", "--index"
        ) from None
    return Index(int(layers), each)
