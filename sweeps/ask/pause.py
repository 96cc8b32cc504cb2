"""Keep, drop or swap the KV of a request that pauses: `bankwise transfer --pause`."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, Dims
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step import StepModel
from policies.serving.rates import closed_form, require_room
from policies.transfers.pausing import (
    BesideBatch,
    Pause,
    StepCost,
    break_even_s,
    budget,
    paused,
    step_cost,
)
from policies.transfers.pieces import pages
from policies.transfers.transfer import TransferEnd, transfer

BLOCKS = [2**n for n in range(11)]
"""Blocks of a copy that may hide behind a step."""


@dataclass(frozen=True)
class PauseQuestion:
    """A request of `context` tokens pauses beside a batch. `kinds`: pages of card and host."""

    device: Device
    model: TransformerSpec
    link: LinkSpec
    context: int
    batch: BesideBatch
    block: int
    kinds: tuple[str, str]


@dataclass(frozen=True)
class PauseAnswer:
    """`copy_s`: one way, the mean of both. `hidden`: tokens a step that hide, in the card's layout
    and with whole blocks."""

    cost: StepCost
    copy_s: float
    hidden: dict[str, int]
    even_s: float
    pauses: list[Pause]


def pause(question: PauseQuestion, seconds: list[float]) -> PauseAnswer:
    """The waste of each pause. Raises DescriptionError where the KV does not fit beside the
    weights, or the model has windows."""
    device, model, batch = question.device, question.model, question.batch
    require_room(device, model, batch.tokens + question.context, "copied")
    cost = step_cost(device, model, StepModel(device, model), closed_form(device), batch)
    step_s = cost.seconds(batch.running)
    orders = {
        "as it lies": device.paging.kv_layout,
        "whole blocks": LAYOUTS["block_layer_kv_token"],
    }
    hidden = {}
    for name, dims in orders.items():
        copies = {n * question.block: _copy_s(question, dims, n * question.block) for n in BLOCKS}
        hidden[name] = budget(step_s, copies)
    copy_s = _copy_s(question, device.paging.kv_layout, question.context)
    found = [
        paused(each, question.context, cost, batch, copy_s, hidden["as it lies"])
        for each in seconds
    ]  # fmt: skip
    return PauseAnswer(cost, copy_s, hidden, break_even_s(question.context, cost, batch), found)


def _copy_s(question: PauseQuestion, dims: Dims, tokens: int) -> float:
    blocks = -(-tokens // question.block)
    near, far = (
        TransferEnd(dims, question.block, pages(kind, blocks, seed))
        for seed, kind in enumerate(question.kinds)
    )
    link = question.link
    out_ns = transfer(link.back, question.model, tokens, near, far).cost.total_ns
    in_ns = transfer(link, question.model, tokens, near, far).cost.total_ns
    return (out_ns + in_ns) / 2 / 1e9
