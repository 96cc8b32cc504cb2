"""Attention of a layer: its projections, what it keeps of each token, and its FLOPs.

Grouped query (Ainslie et al. 2023, with multi-head and multi-query attention as its ends) keeps K
and V of each KV head. Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)
keeps one latent vector a token, from which the K and V of all heads follow by one matrix, and one
rotary key that all heads share.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.number_format import Matrices

Count = Annotated[int, Field(ge=1)]
Form = Literal["absorbed", "unabsorbed"]


class AttentionWindow(Strict):
    """Layers whose tokens attend to the last `tokens` only, themselves included."""

    tokens: Count
    """That a token attends to, itself included."""
    pattern: Annotated[list[Literal["window", "full"] | Count], Field(min_length=1)] = ["window"]
    """Of consecutive layers, from the first on and repeated: which ones have the window; a number
    is a window of another length."""

    def of(self, layer: int) -> int | None:
        """The window of a layer, tokens; None: full attention."""
        kind = self.pattern[layer % len(self.pattern)]
        if kind == "window":
            return self.tokens
        return None if kind == "full" else kind


class LatentAttention(Strict):
    """Multi-head latent attention; widths under their names in config.json."""

    q_lora_rank: Count | None = None
    """Width that queries are compressed to; None: they are not."""
    kv_lora_rank: Count
    """Width of the latent that K and V are compressed to."""
    qk_nope_head_dim: Count
    """Width of a head without rotation."""
    qk_rope_head_dim: Count
    """Width of the rotary key; one a token, for all heads."""
    v_head_dim: Count
    """Width of a head of V."""
    decode: Form = "absorbed"
    """`absorbed`: queries and outputs are taken into the latent space, so that the latent is read
    as it is; `unabsorbed`: K and V of every stored token are made again from it in each step."""
    prefill: Form = "unabsorbed"
    """Of prompt chunks. The defaults are vLLM's (vllm/v1/attention/backends/mla/common.py)."""

    @property
    def kept(self) -> int:
        """Numbers kept of a token: the latent and the rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


class AttentionFlops(NamedTuple):
    """FLOPs of attention beside its projections' own."""

    pair: int
    """Of a token and one token that it attends to: q.k and p.v, 2 a multiplication and addition."""
    stored: int = 0
    """Of each token stored before the step, once a step: its K and V made from the latent."""


class GroupedQuery(NamedTuple):
    """Grouped-query attention of one layer."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    sinks: bool
    output_gate: bool = False

    @property
    def latent(self) -> None:
        """See `Latent.latent`."""
        return

    @property
    def fused(self) -> tuple[str, ...]:
        """Projections that are one product (vLLM: `QKVParallelLinear`)."""
        return "q", "k", "v"

    @property
    def halves(self) -> int:
        """Vectors kept of a token and KV head: K and V."""
        return 2

    @property
    def matrices(self) -> list[Matrices]:
        """Projections."""
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        asked = query * (1 + self.output_gate)
        shapes = (asked, self.hidden), (kv, self.hidden), (kv, self.hidden), (self.hidden, query)
        return [Matrices(name, *shape) for name, shape in zip("qkvo", shapes, strict=True)]  # type: ignore[arg-type]

    @property
    def vectors(self) -> int:
        """Numbers in biases, norms and learned sinks."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        norms = 2 * self.head_dim * self.qk_norm
        return qkv * self.qkv_bias + self.hidden * self.o_bias + norms + self.heads * self.sinks

    def flops(self, phase: Literal["decode", "prefill"]) -> AttentionFlops:
        """The same in both phases."""
        return AttentionFlops(4 * self.heads * self.head_dim)


class Latent(NamedTuple):
    """Multi-head latent attention of one layer. `heads`: of the card, under tensor parallelism,
    which splits what is by head and copies the rest to every card."""

    hidden: int
    heads: int
    of: LatentAttention

    @property
    def fused(self) -> tuple[str, ...]:
        """See `GroupedQuery.fused`."""
        return ()

    @property
    def latent(self) -> LatentAttention:
        """How latents are made; None: K and V are kept."""
        return self.of

    @property
    def halves(self) -> int:
        """Vectors kept of a token: the latent, which is K and V."""
        return 1

    @property
    def matrices(self) -> list[Matrices]:
        """Projections: down to the latents, up to the heads, and the output's."""
        of, heads = self.of, self.heads
        query = heads * (of.qk_nope_head_dim + of.qk_rope_head_dim)
        down = [Matrices("kv_a", of.kept, self.hidden)]
        if of.q_lora_rank is None:
            down.append(Matrices("q", query, self.hidden))
        else:
            down.append(Matrices("q_a", of.q_lora_rank, self.hidden))
            down.append(Matrices("q_b", query, of.q_lora_rank))
        up = Matrices("kv_b", heads * (of.qk_nope_head_dim + of.v_head_dim), of.kv_lora_rank)
        return [*down, up, Matrices("o", self.hidden, heads * of.v_head_dim)]

    @property
    def vectors(self) -> int:
        """Numbers in the norms of the latents."""
        return (self.of.q_lora_rank or 0) + self.of.kv_lora_rank

    def flops(self, phase: Literal["decode", "prefill"]) -> AttentionFlops:
        """As the form of the phase has it. For a step's own tokens both forms multiply by kv_b
        once: with K and V, or with queries and outputs."""
        of = self.of
        if (of.decode if phase == "decode" else of.prefill) == "absorbed":
            return AttentionFlops(2 * self.heads * (of.kept + of.kv_lora_rank))
        width = of.qk_nope_head_dim + of.v_head_dim
        pair = 2 * self.heads * (width + of.qk_rope_head_dim)
        return AttentionFlops(pair, 2 * self.heads * width * of.kv_lora_rank)
