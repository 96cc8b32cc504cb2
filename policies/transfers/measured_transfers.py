"""Published transfers of KV as data, each held against pieces and links (`policies.memory.measured`
has what a cell is)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, KeyPath, Strict, checked, nearest
from hwmodel.description.library import find
from hwmodel.description.units import PositiveBytes
from hwmodel.description.yaml_reader import load
from hwmodel.specs.kv_order import LAYOUTS, Dims
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import load_model
from policies.memory.measured_cells import ComparedCell, MeasuredCell, Tolerance, half_width
from policies.requests.requests import IntArray
from policies.transfers.pieces import KNOWN_LAYOUTS, pages
from policies.transfers.transfer import Index, Moved, TransferEnd, transfer

Count = Annotated[int, Field(ge=1)]
UNITS = {
    "descriptors": "descriptors", "piece": "KiB", "posting": "ms", "time": "ms", "rate": "GB/s",
    "ratio": "x",
}  # fmt: skip
"""Figure of a cell -> its unit."""


class PieceBatch(Strict):
    """So many pieces of one size."""

    size: PositiveBytes
    """Of a piece."""
    count: Count
    """Of pieces."""


class Request(Strict):
    """KV of one request between two servers alike."""

    model: str
    tokens: Count
    """That move."""
    block: Count = 16
    """Tokens of a block."""
    layout: str = "layer_kv_token"
    """Of the KV."""
    pages: Annotated[tuple[str, str], Field(strict=False)] = ("fresh", "fresh")
    """Of the source and the target."""
    cards: Count = 1
    """That share the model."""
    index_layers: Annotated[int, Field(ge=0)] = 0
    """Layers with an index beside their KV."""
    index_bytes: Annotated[int, Field(ge=0)] = 0
    """Of indexers beside the KV, a token."""
    draft_layers: Annotated[int, Field(ge=0)] = 0
    """Of a draft model beside, which keep what the model's own do."""


class TransferCell(MeasuredCell):
    """A figure of a transfer, of a batch of pieces or of a request."""

    link: str
    """A shipped link, or a file."""
    figure: Literal["descriptors", "piece", "posting", "time", "rate", "ratio"]
    """`piece`: the mean size; `time` and `rate` of the whole transfer; `ratio`: of its time to that
    over the link `over`."""
    batch: PieceBatch | None = None
    request: Request | None = None
    both_ways: bool = False
    """As much goes the other way at the same time."""
    back: bool = False
    """Over the link the other way: to the host, onto the drive."""

    @property
    def kind(self) -> str:
        return "transfer"

    @checked
    def _one_kind(self) -> None:
        if (self.batch is None) == (self.request is None):
            raise ValueError("expected either batch or request")
        if self.over is not None and self.figure != "ratio":
            raise ValueError("over: only of a ratio")
        self.in_units((UNITS[self.figure],))


class TransferSpec(Strict):
    """Published transfers."""

    kind: Literal["transfers"]
    name: str
    summary: str
    sources: dict[str, str]
    tolerances: dict[str, Tolerance]
    """By name."""
    cells: list[TransferCell]
    """The figures."""

    @property
    def device(self) -> str:
        """Each cell has a link of its own."""
        return "links"


def load_transfers(name_or_path: str) -> TransferSpec:
    """Shipped transfers by name, or a YAML file. Raises DescriptionError, also for names of links,
    models, layouts, pages, tolerances and sources that are not known."""
    document = load(find("transfers", name_or_path))
    spec = document.build(TransferSpec)
    for i, cell in enumerate(spec.cells):
        for key, given in (("tolerance", spec.tolerances), ("source", spec.sources)):
            if (name := getattr(cell, key)) not in given:
                hint = nearest(name, list(given))
                raise document.error(f"no {key} {name!r}; {hint}", ("cells", i, key))
        checks: dict[KeyPath, Callable[[], object]] = {("link",): partial(load_link, cell.link)}
        if cell.over is not None:
            checks[("over",)] = partial(load_link, cell.over)
        if (asked := cell.request) is not None:
            checks[("request", "model")] = partial(load_model, asked.model)
            checks[("request", "pages")] = partial(_tables, asked)
            checks[("request", "layout")] = partial(_dims, asked.layout)
        for path, check in checks.items():
            try:
                check()
            except DescriptionError as error:
                raise document.error(error.message, ("cells", i, *path)) from None
    return spec


def _dims(name: str) -> Dims:
    if name not in KNOWN_LAYOUTS:
        raise DescriptionError(f"unknown layout {name!r}; {nearest(name, list(LAYOUTS))}")
    return KNOWN_LAYOUTS[name]


def _tables(asked: Request) -> list[IntArray]:
    """Block ids of either end."""
    blocks = -(-asked.tokens // asked.block)
    return [pages(kind, blocks, seed) for seed, kind in enumerate(asked.pages)]


def compare_transfers(spec: TransferSpec) -> list[ComparedCell]:
    """Every cell beside the model, in the file's order."""
    return [
        ComparedCell(cell, _modelled(cell), half_width(cell, spec.tolerances))
        for cell in spec.cells
    ]


def _modelled(cell: TransferCell) -> float:
    if cell.over is not None:
        return _figure("time", cell, cell.link) / _figure("time", cell, cell.over)
    return _figure(cell.figure, cell, cell.link)


def _figure(figure: str, cell: TransferCell, over: str) -> float:
    """A figure of a cell over that link, in the figure's unit."""
    link = load_link(over).back if cell.back else load_link(over)
    if cell.batch is not None:
        sizes, counts = np.array([cell.batch.size]), np.array([cell.batch.count])
        moved, descriptors = cell.batch.size * cell.batch.count, cell.batch.count
        cost = link.cost(sizes, counts, cell.both_ways)
    else:
        found = _moved(cell, link)
        moved, descriptors, cost = found.pieces.bytes, found.pieces.descriptors, found.cost
    figures = {
        "descriptors": float(descriptors),
        "piece": moved / descriptors / 1024,
        "posting": cost.posting_ns / 1e6,
        "time": cost.total_ns / 1e6,
        "rate": moved / cost.total_ns,
    }
    return figures[figure]


def _moved(cell: TransferCell, link: LinkSpec) -> Moved:
    asked = cell.request
    assert asked is not None
    near, far = (
        TransferEnd(_dims(asked.layout), asked.block, table, asked.cards)
        for table in _tables(asked)
    )
    index = Index(asked.index_layers, asked.index_bytes) if asked.index_layers else None
    model = load_model(asked.model)
    model = model.model_copy(update={"layers": model.layers + asked.draft_layers})
    return transfer(link, model, asked.tokens, near, far, index, cell.both_ways)
