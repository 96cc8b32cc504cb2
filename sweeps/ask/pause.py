"""Keep, drop or swap the KV of a request that pauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kv_order import LAYOUTS, Dims
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.memory.step import StepModel
from policies.serving.rates import closed_form, require_room
from policies.transfers.pausing import BesideBatch, Way, break_even_s, budget, paused, step_cost
from policies.transfers.pieces import pages
from policies.transfers.transfer import TransferEnd, transfer
from sweeps.ask.question import CardName, Count, LinkName, ModelName, Pair, Question, Several, Text
from sweeps.sections.section import Grid, Say, Section

BLOCKS = [2**n for n in range(11)]
"""Blocks of a copy that may hide behind a step."""


@dataclass(frozen=True)
class PauseWaste:
    """Memory that does nothing, times how long, by what becomes of the KV. `swap` of a copy that
    steps wait for; `swap_hides`: the pause is long enough for one that costs nothing."""

    seconds: float
    keep_gb_s: float
    drop_gb_s: float
    swap_gb_s: float
    swap_hides: bool
    least: Way


@dataclass(frozen=True)
class PauseFindings:
    """`copy_ms`: one way, the mean of both. `hidden_tokens_a_step`: in the card's layout and with
    whole blocks. `break_even_s`: keeping wastes as much as dropping."""

    device: str
    model: str
    link: str
    tokens: int
    running: int
    tokens_running: int
    pages: tuple[str, str]
    token_us: float
    fixed_ms: float
    saturation_tokens: int
    step_ms: float
    copy_ms: float
    hidden_tokens_a_step: dict[str, int]
    break_even_s: float
    pauses: list[PauseWaste]


class PauseQuestion(Question):
    """Compare keeping, dropping and swapping the KV of a request that pauses.

    Waste is memory times time, as InferCept counts it. The request pauses beside a batch that
    decodes. --set overrides the device.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--pause": "a verb: `bankwise transfer pause LINK`", "--each": "`--tokens-each`",
    }  # fmt: skip

    link: LinkName
    """Link between the device and its host: a shipped name or a YAML file."""
    model: ModelName
    """Model whose KV it is."""
    device: CardName
    """Device whose memory and cores are used."""
    tokens: Count = 4096
    """Tokens of the request that pauses."""
    running: Count = 32
    """Requests that decode beside it."""
    tokens_each: Count = 1024
    """Tokens that each of them holds."""
    seconds: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1e6)], ...], Field(min_length=1), Several
    ] = (0.1, 0.5, 1, 2, 5, 10, 30, 60)
    """Lengths of the pause in seconds."""
    pages: Annotated[tuple[Text, Text], Pair] = ("aged", "fresh")
    """Block ids of the card and of the host: fresh, aged, descending, or a number of blocks that
    lie together."""

    def answer(self) -> PauseFindings:
        """Raises DescriptionError where the KV does not fit beside the weights, or the model has
        windows."""
        device = load_device(self.device, list(self.set))
        model, link = load_model(self.model), load_link(self.link)
        batch = BesideBatch(self.running, self.running * self.tokens_each)
        require_room(device, model, batch.tokens + self.tokens, "copied")
        cost = step_cost(device, model, StepModel(device, model), closed_form(device), batch)
        step_s, block = cost.seconds(batch.running), device.paging.block
        orders = {
            "as it lies": device.paging.kv_layout,
            "whole blocks": LAYOUTS["block_layer_kv_token"],
        }
        hidden = {}
        for name, dims in orders.items():
            sizes = [n * block for n in BLOCKS]
            copies = {size: self._copy_s(link, model, device, dims, size) for size in sizes}
            hidden[name] = budget(step_s, copies)
        copy_s = self._copy_s(link, model, device, device.paging.kv_layout, self.tokens)
        wastes = [
            paused(each, self.tokens, cost, batch, copy_s, hidden["as it lies"])
            for each in self.seconds
        ]
        gb = model.kv_token_bytes / 1e9
        return PauseFindings(
            device.name, model.name, link.name, self.tokens, self.running, batch.tokens, self.pages,
            cost.token_s * 1e6, cost.fixed_s * 1e3, cost.saturation, step_s * 1e3, copy_s * 1e3,
            hidden, break_even_s(self.tokens, cost, batch),
            [
                PauseWaste(each.seconds, each.keep * gb, each.drop * gb, each.swap * gb,
                           each.hidden is not None, each.least)
                for each in wastes
            ],
        )  # fmt: skip

    def _copy_s(
        self, link: LinkSpec, model: TransformerSpec, device: Device, dims: Dims, tokens: int
    ) -> float:
        """Seconds of a copy one way, the mean of both."""
        block = device.paging.block
        near, far = (
            TransferEnd(dims, block, pages(kind, -(-tokens // block), seed))
            for seed, kind in enumerate(self.pages)
        )
        ways = (transfer(each, model, tokens, near, far) for each in (link.back, link))
        return sum(each.cost.total_ns for each in ways) / 2 / 1e9

    def section(self, findings: PauseFindings) -> Section:
        hidden = ", ".join(
            f"{tokens:,} {name}" for name, tokens in findings.hidden_tokens_a_step.items()
        )
        asked = (
            f"{findings.tokens:,} tokens of {findings.model} on {findings.device}, beside"
            f" {findings.running} requests with {findings.tokens_running:,}: a step takes"
            f" {findings.step_ms:.1f} ms, {findings.token_us:.1f} us a token to compute, saturated"
            f" at {findings.saturation_tokens:,}. Over {findings.link} a copy takes"
            f" {findings.copy_ms:.1f} ms; tokens that hide behind a step: {hidden}."
        )
        columns = ["pause s", "keep GB s", "drop", "swap, waited for", "swap, hidden",
                   "least waste"]  # fmt: skip
        rows = [
            [
                f"{each.seconds:g}", f"{each.keep_gb_s:.3g}", f"{each.drop_gb_s:.3g}",
                f"{each.swap_gb_s:.3g}", "0" if each.swap_hides else "too short", each.least,
            ]
            for each in findings.pauses
        ]  # fmt: skip
        even = f"Keeping wastes as much as dropping at {findings.break_even_s:.2g} s."
        return Section("What a pause wastes", [Say(asked), Grid("", columns, rows), Say(even)])
