"""The MLP of a layer: dense, or a mixture of experts of which each token passes through a few."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.specs.number_format import Matrices

Count = Annotated[int, Field(ge=1)]
ExpertPlacement = Literal["none", "linear", "balanced"]
"""Whole experts on each of several cards, or none: a part of each on every card. `linear`: blocks
of consecutive ones, the first cards with one more where they do not divide, as vLLM's default
(`determine_expert_map`). `balanced`: the most popular first, each to the card with the least load
that has room, as the packing of DeepSeek's EPLB, with loads known and no expert twice."""
Exchange = Literal["all_reduce", "all_to_all"]
"""How tokens come to whole experts and back. `all_reduce`: every card has all tokens, as
tensor-parallel attention leaves them, and what their experts add is summed: so vLLM
(`use_all2all_kernels` is false with one data-parallel rank), SGLang and TensorRT-LLM do.
`all_to_all`: between attention and attention each card has its share of the tokens, and sends each
to the cards of its experts; so vLLM with sequence-parallel experts, and DeepEP. Between replicas
`all_reduce` is an all-gather of all tokens and a reduce-scatter (vLLM's default)."""


class ExpertsSpec(Strict):
    """Experts of the layers that have them, beside a router."""

    count: Count
    """Routed experts of a layer."""
    per_token: Count
    """Routed experts that a token passes through."""
    intermediate: Count
    """Width of an expert."""
    shared_intermediate: Annotated[int, Field(ge=0)] = 0
    """Width of the experts that every token passes through, together."""
    first_dense_layers: Annotated[int, Field(ge=0)] = 0
    """Layers before the first with experts; their MLP is as wide as `intermediate` of the model."""
    period: Count = 1
    """Of so many layers, from the first with experts on, one has them."""
    router_bias: bool = False
    """A bias of the router."""
    shared_gate: bool = False
    """A gate on the shared experts, one number a token."""

    @checked
    def _enough(self) -> None:
        if self.per_token > self.count:
            raise ValueError(f"per_token: at most the {self.count} experts; got {self.per_token}")

    def at(self, layer: int) -> bool:
        """Whether a layer has experts."""
        after = layer - self.first_dense_layers
        return after >= 0 and after % self.period == 0

    @property
    def held(self) -> int:
        """Routed experts of a layer that are stored."""
        return self.count

    @property
    def on_cards(self) -> CardExperts | None:
        """Itself, where each of several cards has whole experts; None: a part of each."""
        return None


class CardExperts(ExpertsSpec):
    """Those of the one of several cards that has most: whole experts; see `shard`. `intermediate`
    is that of an expert, `shared_intermediate` what the card has of the shared ones."""

    cards: Count
    replicas: Count
    """Of several cards each or one, which attend to tokens of their own; the experts are common."""
    layers: Count
    """Of the model."""
    placement: ExpertPlacement
    exchange: Exchange

    @property
    def held(self) -> int:
        return -(-self.count // self.cards)

    @property
    def on_cards(self) -> CardExperts:
        return self


class DenseMlp(NamedTuple):
    """One MLP of three matrices (SwiGLU, Shazeer 2020) or, ungated, of two."""

    hidden: int
    width: int
    gated: bool
    bias: bool

    @property
    def routed(self) -> None:
        """See `RoutedExperts.routed`."""
        return

    @property
    def expert_flops(self) -> int:
        """See `RoutedExperts.expert_flops`."""
        return 0

    @property
    def matrices(self) -> list[Matrices]:
        """Matrices, `down` the last."""
        return _matrices(self, 1, 1)

    @property
    def always(self) -> list[Matrices]:
        """Those that every token passes through: all."""
        return self.matrices

    @property
    def vectors(self) -> int:
        """Numbers in biases."""
        return ((1 + self.gated) * self.width + self.hidden) * self.bias

    @property
    def active_vectors(self) -> int:
        """Those that a token meets."""
        return self.vectors

    @property
    def activations(self) -> int:
        """Numbers a token: outputs of gate and up, and what goes into down."""
        return (2 + self.gated) * self.width


class RoutedExperts(NamedTuple):
    """Routed experts, shared ones as one MLP, and the router. Checkpoints leave the router as wide
    as norms, whatever the format (DeepSeek-V3's fp8, gpt-oss's MXFP4, GGUF, AWQ of Mixtral)."""

    hidden: int
    of: ExpertsSpec
    gated: bool
    bias: bool

    @property
    def routed(self) -> ExpertsSpec:
        """The experts of which a token passes through some; None: there are none."""
        return self.of

    @property
    def expert(self) -> DenseMlp:
        """One routed expert."""
        return DenseMlp(self.hidden, self.of.intermediate, self.gated, self.bias)

    @property
    def expert_flops(self) -> int:
        """Of a token in one routed expert; 0 where there are none."""
        return sum(2 * each.rows * each.columns for each in self.expert.matrices)

    @property
    def matrices(self) -> list[Matrices]:
        """Router, shared experts, routed experts."""
        return [*self.always, *_matrices(self.expert, self.of.held, self.of.per_token)]

    @property
    def always(self) -> list[Matrices]:
        """Those that every token passes through: router, shared experts."""
        shared = DenseMlp(self.hidden, self.of.shared_intermediate, self.gated, self.bias)
        router = Matrices("vectors", self.of.count + self.of.shared_gate, self.hidden)
        return [router, *(shared.matrices if self.of.shared_intermediate else [])]

    @property
    def vectors(self) -> int:
        """Numbers in biases."""
        return self._vectors(self.of.held)

    @property
    def active_vectors(self) -> int:
        """Those that a token meets."""
        return self._vectors(self.of.per_token)

    @property
    def activations(self) -> int:
        """Numbers a token at the peak: of each of its experts the outputs of gate and up, whose
        place those of down take, and what goes into down (as vLLM's fused_moe); or what the shared
        experts take, if that is more."""
        expert = self.expert
        wide = max((1 + self.gated) * expert.width, self.hidden) + expert.width
        return max(self.of.per_token * wide, (2 + self.gated) * self.of.shared_intermediate)

    def _vectors(self, experts: int) -> int:
        shared = self.of.shared_intermediate
        of_shared = DenseMlp(self.hidden, shared, self.gated, self.bias).vectors if shared else 0
        return experts * self.expert.vectors + of_shared + self.of.count * self.of.router_bias


def _matrices(mlp: DenseMlp, many: int, active: int) -> list[Matrices]:
    wide, narrow = (mlp.width, mlp.hidden), (mlp.hidden, mlp.width)
    gate = [Matrices("gate", *wide, many, active)] if mlp.gated else []
    return [*gate, Matrices("up", *wide, many, active), Matrices("down", *narrow, many, active)]
