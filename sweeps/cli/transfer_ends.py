"""Either end of a transfer, of the options of `bankwise transfer`: layout, block ids, cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.units import parse_quantity
from hwmodel.specs.device import load_device
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.serving.server_log import BlockLog
from policies.transfers.pieces import KNOWN_LAYOUTS, pages
from policies.transfers.transfer import Index, Moved, TransferEnd
from policies.transfers.transfer import transfer as move
from sweeps.cli.options import one_or_two

HOST = "host"
_BLOCKS = 16


class Ends(NamedTuple):
    """Options of `bankwise transfer` that say how KV lies at its ends, as typed."""

    source: str | None
    target: str | None
    block: str | None
    layout: str | None
    pages: str
    tables: Path | None
    tp: str


def transferred(
    link: LinkSpec, model: TransformerSpec, tokens: int, ends: Ends, index: str | None,
    both_ways: bool,
) -> tuple[dict[str, Any], dict[str, Moved]]:  # fmt: skip
    """What was asked in full, and what moves: as asked, and in three better arrangements; to a host
    the link's way back. Raises DescriptionError, with the option at fault."""
    link = link.back if ends.target == HOST else link
    given = _devices(ends.source, ends.target)
    blocks = _pair("--block", ends.block, [each[0] for each in given], _count)
    dims = _pair("--layout", ends.layout, [each[1] for each in given], _layout)
    kinds = _pair("--pages", ends.pages, ["aged", "fresh"], str)
    cards = _pair("--tp", ends.tp, [1, 1], _count)
    ids = _tables(kinds, blocks, tokens, ends.tables)
    near, far = (
        TransferEnd(order, size, table, many)
        for order, size, table, many in zip(dims, blocks, ids, cards, strict=True)
    )
    merged = link.model_copy(update={"merges": "any_order"})
    in_order = [replace(each, table=pages("fresh", len(each.table))) for each in (near, far)]
    whole = [replace(each, dims=_layout("block_layer_kv_token")) for each in (near, far)]
    beside = _index(index, model)

    def moved(how: LinkSpec, ends: list[TransferEnd]) -> Moved:
        return move(how, model, tokens, ends[0], ends[1], beside, both_ways)

    found = {
        "as asked": moved(link, [near, far]),
        "neighbours merged": moved(merged, [near, far]),
        "blocks in order, merged": moved(merged, in_order),
        "all layers of a block together": moved(link, whole),
    }
    asked = {
        "tokens": tokens, "block": blocks, "layout": [_name(each) for each in dims],
        "pages": [str(ends.tables) if ends.tables else kinds[0], kinds[1]], "tp": cards,
    }  # fmt: skip
    return asked, found


def _devices(source: str | None, target: str | None) -> list[tuple[int, Any]]:
    """(block, layout) of either end; the target's are the source's where it is a host or nothing
    is said."""

    def of(name: str) -> tuple[int, Any]:
        paging = load_device(name).paging
        return paging.block, paging.kv_layout

    named = [None if name in (None, HOST) else of(str(name)) for name in (source, target)]
    plain = (_BLOCKS, _layout("layer_kv_token"))
    return [named[0] or named[1] or plain, named[1] or named[0] or plain]


def _pair(
    option: str, given: str | None, default: list[Any], read: Callable[[str], Any]
) -> list[Any]:
    """The values of either end: one for both, or two apart by a colon."""
    if given is None:
        return default
    parts = one_or_two(given, option)
    try:
        return [read(part) for part in parts]
    except ValueError as error:
        raise DescriptionError(str(error), option) from None


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 65536:
        raise ValueError(f"expected a number from 1 to 65,536; got {text!r}")
    return int(text)


def _layout(text: str) -> Any:
    if text not in KNOWN_LAYOUTS:
        raise ValueError(f"unknown layout {text!r}; {nearest(text, list(KNOWN_LAYOUTS))}")
    return KNOWN_LAYOUTS[text]


def _name(dims: Any) -> str:
    return next((name for name, known in KNOWN_LAYOUTS.items() if known == dims), "-".join(dims))


def _tables(kinds: list[str], blocks: list[int], tokens: int, log: Path | None) -> list[Any]:
    """Block ids of either end; those of the source from a log of block tables where one is
    given."""
    needed = [-(-tokens // size) for size in blocks]
    try:
        found = [
            pages(kind, n, seed) for seed, (kind, n) in enumerate(zip(kinds, needed, strict=True))
        ]
    except DescriptionError as error:
        raise DescriptionError(error.message, "--pages") from None
    if log is not None:
        found[0] = _logged(log, blocks[0], tokens)
    return found


def _logged(path: Path, block: int, tokens: int) -> Any:
    """The longest block table of a log (docs/calibrate.md)."""
    log = BlockLog(path)
    if log.header.block_size != block:
        raise DescriptionError(
            f"blocks of {log.header.block_size}; --block says {block}", str(path)
        )
    longest = max((each for step in log for each in step.blocks), key=len)
    if len(longest) * block < tokens:
        most = len(longest) * block
        raise DescriptionError(f"its longest request has blocks for {most:,} tokens", str(path))
    return longest


def _index(text: str | None, model: TransformerSpec) -> Index | None:
    if text is None:
        return None
    layers, times, size = text.partition("x")
    try:
        each = int(parse_quantity(size, "size"))
        if not times or not layers.isdecimal() or not 0 < int(layers) <= model.layers or each < 1:
            raise ValueError
    except ValueError:
        raise DescriptionError(
            f"expected LAYERSxBYTES, such as {model.layers}x132B; got {text!r}", "--index"
        ) from None
    return Index(int(layers), each)
