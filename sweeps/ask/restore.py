"""Which way to have a context's KV again on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.memory.step import StepModel
from policies.serving.rates import closed_form, require_room
from policies.transfers.pieces import KNOWN_LAYOUTS, pages
from policies.transfers.restoring import (
    Restored,
    bytes_ratio,
    fetch,
    flops_ratio,
    hcache,
    recompute,
)
from policies.transfers.transfer import TransferEnd
from sweeps.ask.question import (
    CardName,
    Count,
    FormatName,
    LinkName,
    ModelName,
    Pair,
    Question,
    Several,
    Text,
)
from sweeps.sections.section import Grid, Say, Section

CONTEXTS = (1024, 4096, 16384, 32768)
"""Tokens that are looked at, as far as the model allows them."""


@dataclass(frozen=True)
class RestoreWay:
    """Time and bytes of one way. `hidden_layers`: those restored from hidden states; `rest`: how
    the others are."""

    ms: float
    link_ms: float
    compute_ms: float
    bytes: int
    limit: str
    hidden_layers: int
    rest: str | None


@dataclass(frozen=True)
class RestoredContext:
    """Each way by its name, and the fastest."""

    tokens: int
    fastest: str
    ways: dict[str, RestoreWay]


@dataclass(frozen=True)
class RestoreFindings:
    """`pages`: of the host's pool and of the card's. The ratios are None where K and V are not
    kept apart."""

    device: str
    model: str
    kv: str
    layers: int
    link: str
    block: int
    pages: tuple[str, str]
    hidden_over_kv_bytes: float | None
    recompute_over_restore_flops: float | None
    contexts: list[RestoredContext]


class RestoreQuestion(Question):
    """Compare the ways to have a context's KV on a device again.

    It is computed again, fetched over the link, fetched in whole blocks, or made from hidden states
    (HCache), for a request alone on the device. --set overrides the device.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--restore": "a verb: `bankwise transfer restore LINK`",
    }

    link: LinkName
    """Link between the device and its host: a shipped name or a YAML file."""
    model: ModelName
    """Model whose KV it is."""
    device: CardName
    """Device whose memory and cores are used."""
    tokens: Annotated[tuple[Count, ...], Several] = ()
    """Tokens of a context, of one or of several (default: 1024,4096,16384,32768, as far as the
    model allows them)."""
    block: Count | None = None
    """Tokens of a block (default: the device's)."""
    pages: Annotated[tuple[Text, Text], Pair] = ("aged", "aged")
    """Block ids of the host and of the card: fresh, aged, descending, or a number of blocks that
    lie together."""
    weights: FormatName | None = None
    """Number format of the weights (default: the model's)."""
    kv: FormatName | None = None
    """Number format of the KV (default: the model's)."""

    def answer(self) -> RestoreFindings:
        """Memory efficiencies are the closed-form limits that `bankwise fit` uses. Raises
        DescriptionError where the model does not fit a card with the context, has windows, or the
        context is longer than the model allows."""
        device, link = load_device(self.device, list(self.set)), load_link(self.link)
        model = load_model(self.model).stored_as(self.weights, self.kv)
        most = model.max_position
        contexts = self.tokens or [n for n in CONTEXTS if n <= most] or [most]
        if max(contexts) > most:
            raise DescriptionError(
                f"{max(contexts):,} tokens are more than the {most:,} of {model.name}"
            )
        require_room(device, model, max(contexts), "restored")
        kept = model.latent is None
        steps, block = StepModel(device, model), self.block or device.paging.block
        return RestoreFindings(
            device.name, model.name, model.kv, model.layers, link.name, block, self.pages,
            bytes_ratio(model) if kept else None, flops_ratio(model) if kept else None,
            [self._context(steps, device, model, link, block, tokens) for tokens in contexts],
        )  # fmt: skip

    def _context(
        self, steps: StepModel, device: Device, model: TransformerSpec, link: LinkSpec, block: int,
        tokens: int,
    ) -> RestoredContext:  # fmt: skip
        efficiency = closed_form(device)
        tables = [pages(kind, -(-tokens // block), seed) for seed, kind in enumerate(self.pages)]

        def fetched(layout: str | None) -> Restored:
            dims = device.paging.kv_layout if layout is None else KNOWN_LAYOUTS[layout]
            ends = [TransferEnd(dims, block, table) for table in tables]
            return fetch(link, model, tokens, ends[0], ends[1])

        ways = {
            "recompute": recompute(steps, tokens, efficiency),
            "fetch KV": fetched(None),
            "fetch KV, whole blocks": fetched("block_layer_kv_token"),
        }
        if model.latent is None:
            ways["HCache"] = hcache(
                link, device, model, tokens, ways["recompute"], ways["fetch KV"]
            )  # fmt: skip
        fastest = min(ways, key=lambda name: ways[name].total_s)
        return RestoredContext(tokens, fastest, {name: _way(each) for name, each in ways.items()})

    def section(self, findings: RestoreFindings) -> Section:
        text = (
            f"KV of {findings.model} ({findings.kv}) back to {findings.device} over"
            f" {findings.link}, blocks of {findings.block} tokens, {' and '.join(findings.pages)};"
            " a request alone."
        )
        if findings.hidden_over_kv_bytes is not None:
            text += (
                f" Hidden states have {findings.hidden_over_kv_bytes:.3g} of KV's bytes;"
                f" recomputing takes {findings.recompute_over_restore_flops:.3g} times the FLOPs of"
                " projecting them."
            )
        columns = ["tokens", "way", "ms", "link ms", "compute ms", "MB", "limit",
                   "by hidden states"]  # fmt: skip
        rows = [
            [
                f"{context.tokens:,}" if number == 0 else "",
                name + " *" * (name == context.fastest),
                f"{way.ms:,.1f}", f"{way.link_ms:,.1f}", f"{way.compute_ms:,.1f}",
                f"{way.bytes / 1e6:,.1f}", way.limit,
                _layers(way, findings.layers) if name == "HCache" else "",
            ]
            for context in findings.contexts
            for number, (name, way) in enumerate(context.ways.items())
        ]  # fmt: skip
        note = Say("*: the fastest")
        return Section("Ways to restore", [Say(text), Grid("", columns, rows), note])


def _way(restored: Restored) -> RestoreWay:
    return RestoreWay(
        restored.total_s * 1e3, restored.link_s * 1e3, restored.compute_s * 1e3, restored.bytes,
        restored.limit, restored.hidden_layers, restored.rest,
    )  # fmt: skip


def _layers(way: RestoreWay, layers: int) -> str:
    return f"{way.hidden_layers} of {layers}" + (f", the others by {way.rest}" if way.rest else "")
