"""Plausible variants: what a device may be where its vendor publishes nothing.

A description lists them under `plausible:`, each with its overrides and why it is plausible. They
say nothing about the device as described, so its digest leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from hwmodel.description.description import Document, KeyPath, Mark, Strict, key_path

Override = tuple[KeyPath, Any, Mark]


class Plausible(Strict):
    """One variant: what it changes, and why it may be so."""

    set: Annotated[dict[str, Any], Field(min_length=1)]
    """Overrides of the description by dotted path, as `--set` takes them."""
    why: Annotated[str, Field(min_length=1)]
    """The source, or the reason where there is none."""


class Variant(NamedTuple):
    """A plausible variant, ready to be laid over its device."""

    set: dict[str, Any]
    why: str
    overrides: list[Override]

    def settled_by(self, given: list[Override]) -> str | None:
        """The first of `given` that states what this variant varies, as it was written."""
        for path, _, mark in given:
            for ours, _, _ in self.overrides:
                shorter = min(len(ours), len(path))
                if ours[:shorter] == path[:shorter]:
                    return mark.file
        return None


def take_variants(document: Document) -> dict[str, Variant]:
    """Remove the variants from a completed, checked description; by name."""
    variants = {}
    for name, item in document.data.pop("plausible", {}).items():
        place = ("plausible", name, "set")
        overrides = [
            (key_path(path), value, document.mark((*place, path)))
            for path, value in item["set"].items()
        ]
        variants[name] = Variant(item["set"], item["why"], overrides)
    return variants


def described_plausible(document: Document) -> Iterator[str]:
    """A line for each variant that a description lists."""
    for name, item in (document.data.get("plausible") or {}).items():
        changes = ", ".join(f"{path} = {value}" for path, value in item["set"].items())
        yield f"{name}: {changes}  ({item['why']})"
