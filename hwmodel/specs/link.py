"""The description of a link over which KV moves: between memories of one machine, or of two.

What a transfer costs is the law that measurements of KV connectors have in common
(docs/cluster.md): a fixed latency, so much for each descriptor that is posted, so much for each
byte.

    T = latency + sum over paths of (posting and bytes / bandwidth: the longer, or both)

A path is how pieces up to a size go; a driver may treat small ones otherwise, and otherwise again
on the way back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.description.based_on import complete
from hwmodel.description.description import Mark, Strict, checked
from hwmodel.description.library import find
from hwmodel.description.units import BytesPerSecond, Nanoseconds, PositiveBytes
from hwmodel.description.yaml_reader import load, parse_assignment

Merging = Literal["none", "in_order", "any_order"]


class Path(Strict):
    """How pieces of a range of sizes go."""

    below: PositiveBytes | None = None
    """Pieces smaller than this; None: all that are left. The first path that takes a piece has
    it."""
    post: Nanoseconds
    """Time to post one descriptor."""
    bandwidth: BytesPerSecond
    """Of the bytes, one direction alone."""
    overlap: Literal["max", "sum"] = "max"
    """Whether bytes move while descriptors are posted, or after (posting is synchronous)."""


class LinkCost(NamedTuple):
    """What a transfer takes, in ns."""

    latency_ns: float
    posting_ns: float
    """Of all descriptors, spread over the link's streams."""
    bytes_ns: float
    total_ns: float

    @property
    def limit(self) -> str:
        """What takes longest: `posting`, `bytes` or `latency`."""
        parts = {
            "posting": self.posting_ns, "bytes": self.bytes_ns, "latency": self.latency_ns,
        }  # fmt: skip
        return max(parts, key=parts.__getitem__)


class LinkSpec(Strict):
    """One link, as `yaml/links/*.yaml` describes it."""

    kind: Literal["link"]
    name: str
    summary: str = ""
    sources: dict[str, str] = {}
    based_on: str | None = None
    """Another link, which says what this one does not."""
    latency: Nanoseconds
    """Of a transfer, whatever it carries."""
    paths: Annotated[list[Path], Field(min_length=1)]
    """How pieces go by their size, to the card or to the other card."""
    paths_back: list[Path] | None = None
    """The other way: from a card to the host, or onto a drive. None: as `paths`."""
    both_ways: BytesPerSecond | None = None
    """Of both directions together when both are busy; None: each has its own."""
    largest: PositiveBytes | None = None
    """Bytes of a descriptor at most; longer pieces are cut. None: no limit."""
    streams: Annotated[int, Field(ge=1)] = 1
    """Threads or queues that post at the same time."""
    merges: Merging = "none"
    """Whether neighbouring pieces become one before they are posted: `in_order`, where one follows
    the other at both ends; `any_order`, after sorting, so that descending runs merge as well."""

    @checked
    def _paths_cover(self) -> None:
        for name, paths in (("paths", self.paths), ("paths_back", self.paths_back)):
            if paths is None:
                continue
            sizes = [path.below for path in paths]
            if not sizes or sizes[-1] is not None:
                raise ValueError(f"{name}: the last takes every size, without below")
            limits = [size for size in sizes[:-1] if size is not None]
            if len(limits) < len(sizes) - 1 or limits != sorted(set(limits)):
                raise ValueError(f"{name}: below must grow from path to path")

    @property
    def back(self) -> LinkSpec:
        """The same link for what goes the other way."""
        if self.paths_back is None:
            return self
        return self.model_copy(update={"paths": self.paths_back, "paths_back": self.paths})

    def cost(
        self, sizes: NDArray[np.int64], counts: NDArray[np.int64], both_ways: bool = False
    ) -> LinkCost:
        """What a transfer takes of `counts` descriptors of `sizes` bytes each, both (n,), none
        above `largest`. both_ways: as much goes the other way at the same time."""
        share = 1.0
        if both_ways and self.both_ways is not None:
            share = self.both_ways / 2 / max(path.bandwidth for path in self.paths)
        posting = wire = together = 0.0
        left = np.ones(len(sizes), np.bool_)
        for path in self.paths:
            taken = left if path.below is None else left & (sizes < path.below)
            left = left & ~taken
            post = float(counts[taken].sum()) * path.post / self.streams
            moved = float((counts * sizes)[taken].sum()) / (path.bandwidth * share) * 1e9
            together += max(post, moved) if path.overlap == "max" else post + moved
            posting, wire = posting + post, wire + moved
        return LinkCost(self.latency, posting, wire, self.latency + together)

    def seconds(self, size: int, count: int = 1) -> float:
        """Of a transfer of `count` pieces of `size` bytes, cut where they are above `largest`."""
        most = min(self.largest or size, size) or 1
        whole, rest = divmod(size, most)
        sizes, counts = np.array([most, rest]), np.array([whole * count, (rest > 0) * count])
        return self.cost(sizes, counts).total_ns / 1e9


def load_link(name_or_path: str, overrides: Iterable[str] = ()) -> LinkSpec:
    """A shipped link by name, or a YAML file; `overrides` are `dotted.path=value`.

    Raises DescriptionError.
    """
    document = load(find("links", name_or_path))
    if document.data.get("kind") != "link":
        raise document.error(f"expected kind: link; got {document.data.get('kind')!r}", ("kind",))
    complete(document)
    for assignment in overrides:
        path, value = parse_assignment(assignment)
        document.put(path, value, Mark(f"--set {assignment}"))
    return document.build(LinkSpec)
