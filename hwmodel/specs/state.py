"""Layers with a state of fixed size instead of KV: what they keep, their parameters and FLOPs.

A recurrent layer keeps a matrix a head, which each token decays and adds to, and the last inputs of
a short causal convolution. Mamba and Mamba2: Gu and Dao 2023, Dao and Gu 2024; gated delta net:
Yang et al. 2025; Kimi delta attention (KDA): arXiv 2510.26692; short convolutions alone: LFM2.
Shapes are those of transformers 5.23; sizes of states those of vLLM (`MambaStateShapeCalculator`).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from hwmodel.description.description import Strict
from hwmodel.specs.number_format import Matrices

Count = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=0)]
StateKind = Literal["mamba", "mamba2", "gated_delta", "kda", "short_conv"]
LayerKind = Literal["state", "full", "both", "state_only", "full_only", "mlp"]
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_NEEDS = {
    "mamba": ("size", "dt_rank"), "mamba2": ("groups", "size"),
    "gated_delta": ("key_heads", "key_dim"), "kda": (), "short_conv": (),
}  # fmt: skip
"""Fields that a kind has beside heads, head_dim and conv."""


class StateLayers(Strict):
    """Which layers keep a state, and its shape."""

    kind: StateKind
    pattern: Annotated[list[LayerKind], Field(min_length=1)]
    """Of consecutive layers, from the first on and repeated: a state, full attention, or both side
    by side, and an MLP; `state_only`, `full_only` and `mlp` are one of them."""
    heads: Count
    """Of values; of `mamba` and `short_conv` the inner width, with a head_dim of 1."""
    head_dim: Count
    """Of values."""
    key_heads: Number = 0
    """Of keys."""
    key_dim: Number = 0
    """Of a head of keys."""
    groups: Number = 0
    """Of Mamba2's B and C."""
    size: Number = 0
    """Numbers of state a channel (`d_state`)."""
    dt_rank: Number = 0
    """Width of the projection of time steps (Mamba)."""
    conv: Annotated[int, Field(ge=2)] = 4
    """Width of the convolution."""
    normed: bool = True
    """Whether Mamba2 has a norm before its output."""
    format: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Of the recurrent state."""
    conv_format: Literal["fp32", "fp16", "bf16"] = "bf16"
    """Of the inputs that the convolution keeps."""

    @model_validator(mode="after")
    def _complete(self) -> StateLayers:
        needed = _NEEDS[self.kind]
        for name in ("key_heads", "key_dim", "groups", "size", "dt_rank"):
            if bool(getattr(self, name)) != (name in needed):
                expected = "at least 1" if name in needed else "nothing"
                raise ValueError(f"{name}: expected {expected} with {self.kind}")
        return self

    def of(self, layer: int) -> LayerKind:
        """What a layer is."""
        return self.pattern[layer % len(self.pattern)]

    def split(self, cards: int) -> StateLayers:
        """A tensor-parallel card's; of B and C a group each where groups do not divide, as in vLLM.
        Raises ValueError if heads do not divide."""
        if self.heads % cards or self.key_heads % cards:
            raise ValueError(f"{self.heads} state heads")
        groups = self.groups if self.groups % cards == 0 else cards
        each = {"heads": self.heads, "key_heads": self.key_heads, "groups": groups}
        return self.model_copy(update={name: many // cards for name, many in each.items()})


class LayerState(NamedTuple):
    """The state of one layer, and its projections."""

    hidden: int
    kind: StateKind
    heads: int
    head_dim: int
    key_heads: int
    key_dim: int
    groups: int
    size: int
    dt_rank: int
    conv: int
    normed: bool
    number_bytes: int
    conv_bytes: int

    @classmethod
    def made(cls, hidden: int, of: StateLayers) -> LayerState:
        """Of a description."""
        own = {name: getattr(of, name) for name in cls._fields[1:-2]}
        return cls(hidden, **own, number_bytes=BYTES[of.format], conv_bytes=BYTES[of.conv_format])

    @property
    def inner(self) -> int:
        """Width of the values."""
        return self.heads * self.head_dim

    @property
    def numbers(self) -> int:
        """Of the recurrent state."""
        width = {"kda": self.head_dim, "gated_delta": self.key_dim, "short_conv": 0}
        return self.inner * width.get(self.kind, self.size)

    @property
    def channels(self) -> int:
        """That the convolution runs over."""
        more = {
            "mamba2": 2 * self.groups * self.size, "kda": 2 * self.inner,
            "gated_delta": 2 * self.key_heads * self.key_dim,
        }  # fmt: skip
        return self.inner + more.get(self.kind, 0)

    def bytes(self, drafts: int = 0) -> int:
        """Of a sequence with so many draft tokens, whose inputs of the convolution are kept."""
        inputs = self.channels * (self.conv - 1 + drafts)
        return self.numbers * self.number_bytes + inputs * self.conv_bytes

    @property
    def row_bytes(self) -> int:
        """That a row adds to what a step writes."""
        return self.numbers * self.number_bytes + self.channels * self.conv_bytes

    @property
    def matrices(self) -> list[Matrices]:
        """Projections, under the names of attention's that they are stored like."""
        hidden, inner, keys = self.hidden, self.inner, self.key_heads * self.key_dim
        out = Matrices("o", hidden, inner)
        if self.kind == "mamba":
            low = self.dt_rank + 2 * self.size
            shapes = [(2 * inner, hidden), (low, inner), (inner, self.dt_rank)]
        elif self.kind == "mamba2":
            shapes = [(inner + self.channels + self.heads, hidden)]
        elif self.kind == "gated_delta":
            shapes = [(2 * keys + 2 * inner, hidden), (2 * self.heads, hidden)]
        elif self.kind == "kda":
            low = self.head_dim
            shapes = [(inner, hidden)] * 3 + [(low, hidden), (inner, low)] * 2
            shapes.append((self.heads, hidden))
        else:
            shapes = [(3 * inner, hidden)]
        return [*(Matrices("q", *shape) for shape in shapes), out]

    @property
    def vectors(self) -> int:
        """Numbers in the convolution, biases, norms, decays and skips."""
        inner, kernel = self.inner, self.channels * self.conv
        if self.kind == "mamba":  # biases of conv and dt, A, D, norms of dt, B and C (Jamba)
            return kernel + 3 * inner + inner * self.size + self.dt_rank + 2 * self.size
        if self.kind == "mamba2":  # bias of conv; A, D, bias of dt
            return kernel + self.channels + 3 * self.heads + inner * self.normed
        if self.kind == "gated_delta":
            return kernel + 2 * self.heads + self.head_dim
        if self.kind == "kda":
            return kernel + self.heads + inner + self.head_dim
        return kernel

    @property
    def flops(self) -> int:
        """Of a token beside the projections: 7 a number of state with the delta rule (decay, what
        it predicts, correction, output), 5 without, 2 a tap of the convolution; the same in chunks
        (assumed)."""
        each = 7 if self.kind in ("gated_delta", "kda") else 5
        return each * self.numbers + 2 * self.channels * self.conv
