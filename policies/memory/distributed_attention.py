"""Attention of a request whose KV lies on several cards (Infinite-LLM, arXiv 2401.02669v2).

In each layer the home sends a token's query to every card with a part of the KV. Each computes
attention over its part, and sends back for each head the maximum m of the scores, the sum l of
their exponentials, and the weighted V, o. The merge is exact:

    m = max m_i,   l = sum l_i exp(m_i - m),   o = sum o_i l_i exp(m_i - m) / l

Holders compute at the same time, and beside the home. A lender that runs steps of its own gives
half of itself while it computes for others (assumed); its own steps wait for what was computed.
Maxima and sums are in fp32, queries and values in the type of the activations (assumed).

Of a replica in stages each stage asks its like of another: seconds are those of the mean stage, and
bytes of all. A pipeline that drains waits no longer than one that does not (assumed).

Latents are attended to as they are: queries come in the latent space, and values go back in it,
also those of chunks (assumed). Of layers with windows nothing lies elsewhere: what others keep are
first tokens, which windows have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.number_format import number_format
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency

SCALAR_BYTES = 4
"""Of a maximum, and of a sum."""


@dataclass
class Share:
    """What a step asks of a lender, in tokens: those that decode and their KV there, those of
    chunks, their KV there, and the pairs of both."""

    decoding: int = 0
    context: int = 0
    chunked: int = 0
    stored: int = 0
    pairs: int = 0


class LenderWork(NamedTuple):
    """What a step asks of all lenders: bytes of all layers, seconds of the mean stage."""

    path_s: float = 0.0
    """From the queries' leaving to the last partial result, of its layers."""
    link_s: float = 0.0
    merge_s: float = 0.0
    card_s: tuple[float, ...] = ()
    """What it takes of each lender."""
    query_bytes: int = 0
    partial_bytes: int = 0
    merge_bytes: int = 0
    read_bytes: int = 0


class DistributedAttention:
    """Its bytes and seconds on cards that hold `model`, or a shard of it, in so many `stages`, over
    a link of each that carries KV in pieces of `block` tokens. Raises DescriptionError for a model
    of which all layers have windows, and for more stages than there are layers."""

    def __init__(self, model: TransformerSpec, link: LinkSpec, block: int, stages: int = 1) -> None:
        near = 0
        if model.window is not None:
            near = sum(model.window.of(layer) is not None for layer in range(model.layers))
        self._layers, self._stages = model.kv_layers - near, stages
        if not self._layers:
            raise DescriptionError(
                f"cluster.lending: every layer of {model.name} has a window, so that nothing is "
                "left of first tokens which others could keep"
            )
        number = number_format(model.activations).bits // 8
        self.query_bytes = model.heads * model.head_dim * number
        """Of a token and layer, to one lender."""
        values = model.head_dim if model.latent is None else model.latent.kv_lora_rank
        self.output_bytes = model.heads * values * number
        """Of a token and layer, what is made of all."""
        self.partial_bytes = self.output_bytes + 2 * SCALAR_BYTES * model.heads
        """Of a token and layer, from one holder."""
        self._model, self._link, self._block = model, link, block
        self.kv_token_bytes = self._layers * model.kv_layer_bytes
        """Of a token in the layers of which something can lie elsewhere."""
        self._of_first = self._layers / stages / stages_of(model, stages)[0].kv_layers
        """Layers of the mean stage, by those of the first, whose steps are asked."""
        self.token_s = self.copy_s(block) / block
        """Seconds to copy the KV of a token in whole pieces."""

    def merge_bytes(self, holders: int) -> int:
        """Of a token and layer, at home: the partial results of so many, itself with them, read,
        and the output written."""
        return holders * self.partial_bytes + self.output_bytes

    def copy_s(self, tokens: int) -> float:
        """Seconds of the link of a stage to copy its KV of so many tokens."""
        seconds = kv_seconds(self._link, self._model, tokens, self._layers, self._block)
        return seconds / self._stages

    def written_s(self, steps: StepModel, efficiency: Efficiency) -> float:
        """Seconds of a stage's memory to read, or write, its KV of a token."""
        return self.kv_token_bytes / (self._stages * steps.bandwidth * efficiency.migration)

    def attention_s(
        self, context: int, pairs: int, stored: int, steps: StepModel, efficiency: Efficiency
    ) -> float:
        """Seconds of a stage that only attends; see `StepModel.attention_alone_s`."""
        return self._of_first * steps.attention_alone_s(context, pairs, stored, efficiency)

    def asks(
        self, parts: Sequence[Share], busy: Sequence[bool], tokens: int, steps: StepModel,
        efficiency: Efficiency,
    ) -> LenderWork:  # fmt: skip
        """What a step takes that asks these of lenders, for so many tokens in all. busy: whether
        each lender has steps of its own."""
        queries = sum(part.decoding + part.chunked for part in parts)
        if not queries:
            return LenderWork(card_s=(0.0,) * len(parts))
        out, back = queries * self.query_bytes, queries * self.partial_bytes
        layer_s = self._link.seconds(out) + self._link.seconds(back)
        link_s = self._layers / self._stages * layer_s
        card_s = tuple(
            self.attention_s(part.context, part.pairs, part.stored, steps, efficiency)
            for part in parts
        )
        slowest_s = max(s * (1 + own) for s, own in zip(card_s, busy, strict=True))
        merge = self._layers * (tokens * self.merge_bytes(1) + queries * self.partial_bytes)
        read = sum(part.context + part.stored for part in parts) * self.kv_token_bytes
        merge_s = merge / (self._stages * steps.bandwidth * efficiency.attention)
        return LenderWork(
            link_s + slowest_s, link_s, merge_s, card_s,
            self._layers * out, self._layers * back, merge, read,
        )  # fmt: skip


def kv_seconds(
    link: LinkSpec, model: TransformerSpec, tokens: int, layers: int, block: int
) -> float:
    """Seconds to move the KV of so many tokens in so many layers over one link, in pieces of
    `block` tokens of a layer's K, or V."""
    if not tokens:
        return 0.0
    halves = model.attention.halves
    size = min(block, tokens) * model.kv_layer_bytes // halves
    return link.seconds(size, -(-tokens // block) * layers * halves)
