"""How long a request's KV takes over a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.units import parse_quantity
from hwmodel.specs.device import load_device
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.serving.server_log import BlockLog
from policies.transfers.pieces import KNOWN_LAYOUTS, pages
from policies.transfers.transfer import Index, Moved, TransferEnd, transfer
from sweeps.ask.question import (
    CardName,
    Count,
    FormatName,
    LinkName,
    ModelName,
    Pair,
    Question,
    Text,
    Typed,
)
from sweeps.sections.section import Grid, Say, Section

HOST = "host"
_PLAIN = (16, KNOWN_LAYOUTS["layer_kv_token"])
"""Block and layout where no device says."""
Few = Annotated[int, Field(ge=1, le=65536)]


@dataclass(frozen=True)
class TransferCase:
    """What moves in one arrangement, of the busiest rank."""

    ranks: int
    bytes: int
    regions: int
    runs: int
    descriptors: int
    smallest_bytes: int
    largest_bytes: int
    posting_ms: float
    bytes_ms: float
    total_ms: float
    gbps: float
    limited_by: str


@dataclass(frozen=True)
class TransferFindings:
    """What moves, from one end to the other, as it is arranged and in three better ways."""

    link: str
    summary: str
    model: str
    kv: str
    tokens: int
    block: tuple[int, ...]
    layout: tuple[str, ...]
    pages: tuple[str, ...]
    tp: tuple[int, ...]
    cases: dict[str, TransferCase]


class TransferQuestion(Question):
    """Say how long a request's KV takes over a link.

    How many descriptors move it, too. Beside it: neighbours merged, blocks in order, and all layers
    of a block together. --set overrides the link.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--restore": "a verb: `bankwise transfer restore LINK`",
        "--pause": "a verb: `bankwise transfer pause LINK`",
        "--from": "`--source`", "--to": "`--target`",
    }  # fmt: skip

    link: LinkName
    """Link that the KV crosses: a shipped name or a YAML file."""
    model: ModelName
    """Model whose KV moves."""
    tokens: Count
    """Tokens of the request that moves."""
    source: CardName | None = None
    """Device that sends the KV and gives its layout and block, or `host`."""
    target: CardName | None = None
    """Device that receives the KV, or `host` (default: as the sender)."""
    block: Annotated[tuple[Few, Few], Pair] | None = None
    """Tokens of a block at either end (default: the devices')."""
    layout: Annotated[tuple[Text, Text], Pair, Typed("NAME[:NAME]")] | None = None
    """Layout of the KV at either end (default: the devices')."""
    pages: Annotated[tuple[Text, Text], Pair, Typed("KIND[:KIND]")] = ("aged", "fresh")
    """Block ids at either end: fresh, aged, descending, or a number of blocks that lie together."""
    tables: Annotated[Path, Typed("LOG")] | None = None
    """Log of a server whose longest block table is that of the sender."""
    tp: Annotated[tuple[Few, Few], Pair] = (1, 1)
    """Cards that share the model at either end."""
    index: Annotated[str, Typed("LAYERSxBYTES")] | None = None
    """Layers with an indexer beside the KV, and its bytes for a token, as 61x132B."""
    both_ways: bool = False
    """As much goes the other way at the same time."""
    kv: FormatName | None = None
    """Number format of the KV (default: the model's)."""

    def answer(self) -> TransferFindings:
        link = load_link(self.link, list(self.set))
        model = load_model(self.model)
        model = model if self.kv is None else model.stored_as(None, self.kv)
        way = link.back if self.target == HOST else link
        given = _devices(self.source, self.target)
        blocks = self.block or tuple(each[0] for each in given)
        dims = [each[1] for each in given]
        if self.layout is not None:
            dims = [_layout(each) for each in self.layout]
        ids = self._tables(blocks)
        near, far = (
            TransferEnd(order, size, table, many)
            for order, size, table, many in zip(dims, blocks, ids, self.tp, strict=True)
        )
        merged = way.model_copy(update={"merges": "any_order"})
        in_order = [replace(each, table=pages("fresh", len(each.table))) for each in (near, far)]
        whole = [replace(each, dims=KNOWN_LAYOUTS["block_layer_kv_token"]) for each in (near, far)]
        index = _index(self.index, model)

        def moved(how: LinkSpec, ends: list[TransferEnd]) -> TransferCase:
            return _case(transfer(how, model, self.tokens, ends[0], ends[1], index, self.both_ways))

        first = self.pages[0] if self.tables is None else str(self.tables)
        return TransferFindings(
            way.name, way.summary, model.name, model.kv, self.tokens, blocks,
            tuple(_name(each) for each in dims), (first, self.pages[1]), self.tp,
            {
                "as described": moved(way, [near, far]),
                "neighbours merged": moved(merged, [near, far]),
                "blocks in order, merged": moved(merged, in_order),
                "all layers of a block together": moved(way, whole),
            },
        )  # fmt: skip

    def _tables(self, blocks: tuple[int, ...]) -> list[Any]:
        """Block ids of either end."""
        try:
            tables = [
                pages(kind, -(-self.tokens // size), seed)
                for seed, (kind, size) in enumerate(zip(self.pages, blocks, strict=True))
            ]
        except DescriptionError as error:
            raise DescriptionError(error.message, "--pages") from None
        if self.tables is not None:
            tables[0] = _logged(self.tables, blocks[0], self.tokens)
        return tables

    def section(self, findings: TransferFindings) -> Section:
        first = findings.cases["as described"]
        near, far = (
            f"{layout}, blocks of {block}, {pages}" + (f", {cards} cards" if cards > 1 else "")
            for layout, block, pages, cards in zip(
                findings.layout, findings.block, findings.pages, findings.tp, strict=True
            )
        )
        text = (
            f"{findings.tokens:,} tokens of {findings.model}, {findings.kv}:"
            f" {first.bytes / 1e6:,.1f} MB"
            + (f" by each of {first.ranks} ranks, the busiest" if first.ranks > 1 else "")
            + f", from {near} to {far}."
        )
        columns = ["", "regions", "runs", "descriptors", "of", "posting ms", "bytes ms", "ms",
                   "GB/s", "limit"]  # fmt: skip
        rows = [[name, *_row(case)] for name, case in findings.cases.items()]
        summary = Say(f"{findings.link}: {findings.summary}.")
        return Section("Transfer", [summary, Say(text), Grid("", columns, rows)])


def _case(moved: Moved) -> TransferCase:
    pieces, cost = moved.pieces, moved.cost
    return TransferCase(
        moved.ranks, pieces.bytes, pieces.regions, pieces.runs, pieces.descriptors,
        int(pieces.sizes[0]), int(pieces.sizes[-1]), cost.posting_ns / 1e6, cost.bytes_ns / 1e6,
        cost.total_ns / 1e6, moved.gbps, cost.limit,
    )  # fmt: skip


def _row(case: TransferCase) -> list[str]:
    low, high = _size(case.smallest_bytes), _size(case.largest_bytes)
    return [
        f"{case.regions:,}", f"{case.runs:,}", f"{case.descriptors:,}",
        low if low == high else f"{low} to {high}", f"{case.posting_ms:,.2f}",
        f"{case.bytes_ms:,.2f}", f"{case.total_ms:,.2f}", f"{case.gbps:,.1f}", case.limited_by,
    ]  # fmt: skip


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def _devices(source: str | None, target: str | None) -> list[tuple[int, Any]]:
    """(block, layout) of either end; the target's are the source's where it is a host or nothing
    is said."""

    def of(name: str | None) -> tuple[int, Any] | None:
        if name in (None, HOST):
            return None
        paging = load_device(str(name)).paging
        return paging.block, paging.kv_layout

    near, far = of(source), of(target)
    return [near or far or _PLAIN, far or near or _PLAIN]


def _layout(text: str) -> Any:
    if text not in KNOWN_LAYOUTS:
        hint = nearest(text, list(KNOWN_LAYOUTS))
        raise DescriptionError(f"unknown layout {text!r}; {hint}", "--layout")
    return KNOWN_LAYOUTS[text]


def _name(dims: Any) -> str:
    return next((name for name, known in KNOWN_LAYOUTS.items() if known == dims), "-".join(dims))


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
