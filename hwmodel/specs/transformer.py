"""The shape of a decoder-only transformer: parameters, bytes and FLOPs, from its published
config.json.

A layer is attention (`hwmodel.specs.attention`), a state (`hwmodel.specs.state`) or both, an MLP
(`hwmodel.specs.mlp`) and norms; layers may differ in all of them and in their window. Around them
are an embedding, a final norm and an output head, which may be the embedding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Mark, Strict
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load, parse_assignment
from hwmodel.specs.attention import (
    AttentionFlops,
    AttentionWindow,
    GroupedQuery,
    Latent,
    LatentAttention,
)
from hwmodel.specs.mlp import (
    CardExperts,
    DenseMlp,
    Exchange,
    ExpertPlacement,
    ExpertsSpec,
    RoutedExperts,
)
from hwmodel.specs.number_format import (
    ComputeType,
    KvFormat,
    Matrices,
    NumberFormat,
    WeightFormat,
    number_format,
)
from hwmodel.specs.state import LayerState, StateLayers

Count = Annotated[int, Field(ge=1)]


class LayerKind(NamedTuple):
    """A kind of layer. `norms`: numbers in its norms; `window`: tokens, or None."""

    attention: GroupedQuery | Latent | None
    mlp: DenseMlp | RoutedExperts
    norms: int
    window: int | None
    state: LayerState | None = None

    @property
    def mixers(self) -> list[GroupedQuery | Latent | LayerState]:
        """What mixes tokens: attention, a state, or both; of a bare MLP nothing."""
        return [each for each in (self.attention, self.state) if each is not None]

    @property
    def matrices(self) -> list[Matrices]:
        """In their order in memory."""
        own = [matrix for mixer in self.mixers for matrix in mixer.matrices]
        return [*own, *self.mlp.matrices]

    @property
    def parameters(self) -> int:
        """Matrices, biases and norms."""
        matrices = sum(each.rows * each.columns * each.many for each in self.matrices)
        return matrices + self.vectors

    @property
    def active_parameters(self) -> int:
        """Those that a token meets."""
        idle = sum(e.rows * e.columns * (e.many - e.active) for e in self.mlp.matrices)
        return self.parameters - idle - self.mlp.vectors + self.mlp.active_vectors

    @property
    def vectors(self) -> int:
        """Numbers in biases and norms."""
        return sum(mixer.vectors for mixer in self.mixers) + self.mlp.vectors + self.norms

    @property
    def flops(self) -> int:
        """FLOPs a token in the matrices, 2 a weight (Kaplan et al. 2020, section 2.1), and in the
        state."""
        matrices = 2 * sum(each.rows * each.columns * each.active for each in self.matrices)
        return matrices + (0 if self.state is None else self.state.flops)

    def stored_bits(self, stored: NumberFormat, mixed: bool) -> int:
        """Bits in a format, the matrices with the formats of its `parts` or without."""
        bits = self.vectors * stored.part("vectors").bits
        for each in self.matrices:
            own = stored.part(each.part) if mixed or each.part == "vectors" else stored
            bits += each.many * own.matrix_bits(each.rows, each.columns)
        return bits

    def expert_bytes(self, stored: NumberFormat, mixed: bool) -> tuple[int, ...]:
        """Of one routed expert in each tensor of all experts of a layer, as in vLLM's fused_moe:
        gate and up (w13), down (w2), then the scales that lie beside the numbers, and the biases,
        of either. Zero without experts."""
        if isinstance(self.mlp, DenseMlp):
            return 0, 0, 0, 0
        own, vector = self.mlp.expert, stored.part("vectors").bits * self.mlp.bias
        numbers = [0, 0]
        beside = [(1 + own.gated) * own.width * vector, own.hidden * vector]
        for each in own.matrices:
            kind = stored.part(each.part) if mixed else stored
            whole = kind.matrix_bits(each.rows, each.columns)
            plain = each.rows * each.columns * kind.bits if kind.scales == "beside" else whole
            numbers[each.part == "down"] += plain
            beside[each.part == "down"] += whole - plain
        return tuple(bits // 8 for bits in (*numbers, *beside))


class TransformerSpec(Strict):
    """One model, as `yaml/models/*.yaml` describes it."""

    kind: Literal["model"]
    name: str
    summary: str = ""
    sources: dict[str, str] = {}
    layers: Count
    """How many."""
    hidden: Count
    """Width of the residual stream."""
    heads: Count
    """Query heads."""
    kv_heads: Count
    """With latent attention 1: all heads share what is kept."""
    head_dim: Count
    """With latent attention the numbers kept of a token, kv_lora_rank + qk_rope_head_dim."""
    intermediate: Count
    """Width of the MLP; of experts see `experts`."""
    vocabulary: Count
    """Tokens that it knows."""
    max_position: Count
    """Longest context, tokens."""
    qkv_bias: bool
    """Biases of the projections of Q, K and V."""
    o_bias: bool = False
    """A bias of the output projection."""
    mlp_bias: bool = False
    """Biases of the MLP, and of each expert."""
    gated: bool = True
    """Whether the MLP has three matrices (gate, up, down) or two."""
    norm: Literal["rms", "layer"] = "rms"
    """LayerNorm has a bias beside the weight."""
    layer_norms: Annotated[int, Field(ge=0)] = 2
    """Norms of the hidden state in a layer."""
    qk_norm: bool = False
    """A norm of head_dim on queries and one on keys in each layer."""
    sinks: bool = False
    """A learned logit a head in the softmax's denominator."""
    output_gate: bool = False
    """A gate on what attention gives, from a query projection of twice the width."""
    positions: Annotated[int, Field(ge=0)] = 0
    """Rows of a learned table of positions."""
    tied_embeddings: bool
    """Whether embedding and head are one matrix."""
    latent: LatentAttention | None = None
    """Multi-head latent attention; None: grouped query."""
    experts: ExpertsSpec | None = None
    window: AttentionWindow | None = None
    """Sliding-window layers; None: all attend to everything before."""
    state: StateLayers | None = None
    """Layers with a state of fixed size instead of KV (hybrid models)."""
    weights: WeightFormat = "fp16"
    """Format of the weights: of `yaml/formats`, or the path of one."""
    kv: KvFormat = "fp16"
    """Format that its KV is published in."""

    @model_validator(mode="after")
    def _grouped(self) -> TransformerSpec:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: must divide heads ({self.heads}); got {self.kv_heads}")
        if self.latent is not None:
            for name, kept in (("kv_heads", 1), ("head_dim", self.latent.kept)):
                if getattr(self, name) != kept:
                    got = getattr(self, name)
                    raise ValueError(f"{name}: expected {kept} with this latent; got {got}")
            for name in ("qkv_bias", "o_bias", "qk_norm", "sinks", "output_gate"):
                if getattr(self, name):
                    raise ValueError(f"{name}: expected false with latent attention")
        if self.state is not None and (self.window is not None or not self.kv_layers):
            raise ValueError("state: expected layers with full attention, and none with a window")
        if self.experts is not None and self.experts.first_dense_layers >= self.layers:
            raise ValueError(f"experts.first_dense_layers: fewer than the {self.layers} layers")
        try:
            number_format(self.kv).vector_bytes(self.head_dim)
        except DescriptionError as error:
            raise ValueError(str(error)) from None
        return self

    def stored_as(self, weights: str | None, kv: str | None) -> TransformerSpec:
        """The model in other formats; None: its own. Raises DescriptionError where a format does
        not divide a head."""
        model = self.model_copy(update={"weights": weights or self.weights, "kv": kv or self.kv})
        number_format(model.kv).vector_bytes(model.head_dim)
        return model

    @property
    def activations(self) -> ComputeType:
        """Type of what flows between layers: the weights' own, or fp16 where those are quantised
        (assumed)."""
        stored = number_format(self.weights)
        return stored.compute if stored.bits >= 16 else "fp16"

    @property
    def activation_bytes(self) -> int:
        """Hidden state of one token."""
        return self.hidden * number_format(self.activations).bits // 8

    @property
    def kernel_bytes(self) -> int:
        """Bytes a token that kernels between the products of all layers read and write: two norms
        with the residual they add (8 hidden states), rotation of queries and keys, and what the MLP
        keeps of a token."""
        rotated = 0 if self.latent else 2 * (self.heads + self.kv_heads) * self.head_dim
        numbers = sum(
            many * (8 * self.hidden + rotated + kind.mlp.activations)
            for kind, many in self.kinds.items()
        )
        return numbers * number_format(self.activations).bits // 8

    @property
    def attention(self) -> GroupedQuery | Latent:
        """Of every layer that has it."""
        if self.latent is not None:
            return Latent(self.hidden, self.heads, self.latent)
        return GroupedQuery(
            self.hidden, self.heads, self.kv_heads, self.head_dim,
            self.qkv_bias, self.o_bias, self.qk_norm, self.sinks, self.output_gate,
        )  # fmt: skip

    def layer(self, index: int) -> LayerKind:
        """What one layer is."""
        mlp: DenseMlp | RoutedExperts = DenseMlp(
            self.hidden, self.intermediate, self.gated, self.mlp_bias
        )
        if self.experts is not None and self.experts.at(index):
            mlp = RoutedExperts(self.hidden, self.experts, self.gated, self.mlp_bias)
        window = None if self.window is None else self.window.of(index)
        norms = self.layer_norms * self._norm
        if self.state is None:
            return LayerKind(self.attention, mlp, norms, window)
        kind = self.state.of(index)
        attention = self.attention if kind in ("full", "both", "full_only") else None
        state = (
            LayerState.made(self.hidden, self.state) if "state" in kind or kind == "both" else None
        )
        if kind in ("state_only", "full_only", "mlp"):
            norms //= 2
        if kind in ("state_only", "full_only"):
            mlp = DenseMlp(self.hidden, 0, self.gated, False)
        return LayerKind(attention, mlp, norms, None, state)

    @property
    def kv_layers(self) -> int:
        """Layers that keep KV."""
        if self.state is None:
            return self.layers
        kinds = (self.state.of(index) for index in range(self.layers))
        return sum(kind in ("full", "both", "full_only") for kind in kinds)

    def state_bytes(self, drafts: int = 0) -> int:
        """States of a sequence in all layers; `drafts`: speculative tokens."""
        states = ((kind.state, many) for kind, many in self.kinds.items())
        return sum(many * state.bytes(drafts) for state, many in states if state is not None)

    @property
    def state_row_bytes(self) -> int:
        """Of a further row's states in all layers: those of recurrences, and an input of each
        convolution (vLLM: `fused_sigmoid_gating`, `mamba_ssm`, `causal_conv1d`)."""
        states = ((kind.state, many) for kind, many in self.kinds.items())
        return sum(many * state.row_bytes for state, many in states if state is not None)

    @property
    def kinds(self) -> dict[LayerKind, int]:
        """The kinds of layers, and how many are of each."""
        found: Counter[LayerKind] = Counter()
        for indices in self._alike.values():
            found[self.layer(indices[0])] += len(indices)
        return found

    @property
    def _alike(self) -> dict[tuple[Any, ...], list[int]]:
        """Layers that are described alike, by index."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for index in range(self.layers):
            described = (
                self.experts is not None and self.experts.at(index),
                None if self.window is None else self.window.of(index),
                None if self.state is None else self.state.of(index),
            )
            groups.setdefault(described, []).append(index)
        return groups

    @property
    def _norm(self) -> int:
        """Numbers in one norm of the hidden state."""
        return self.hidden * (1 if self.norm == "rms" else 2)

    @property
    def embedding_parameters(self) -> int:
        """The embedding table (vocabulary x hidden)."""
        return self.vocabulary * self.hidden

    @property
    def _outside(self) -> int:
        """Parameters outside the layers: the tables, and the final norm."""
        tables = (1 if self.tied_embeddings else 2) * self.vocabulary + self.positions
        return tables * self.hidden + self._norm

    @property
    def parameters(self) -> int:
        """All parameters: layers, embedding, positions, final norm, and the head unless it is the
        embedding."""
        return sum(many * kind.parameters for kind, many in self.kinds.items()) + self._outside

    @property
    def active_parameters(self) -> int:
        """Parameters less the experts that a token does not pass through. Published counts leave
        out the embedding table or not."""
        layers = sum(many * kind.active_parameters for kind, many in self.kinds.items())
        return layers + self._outside

    @property
    def layer_weight_edges(self) -> list[int]:
        """Byte at which each layer's weights begin, and that at which the last one's end."""
        stored = number_format(self.weights)

        sizes = [0] * self.layers
        for indices in self._alike.values():
            kind = self.layer(indices[0])
            of_mixed = [kind.stored_bits(stored, mixed) // 8 for mixed in (False, True)]
            for index in indices:
                sizes[index] = of_mixed[stored.applies(index, self.layers)]
        return list(accumulate(sizes, initial=0))

    def expert_bytes(self, layer: int) -> tuple[int, ...]:
        """Of one routed expert of a layer in each of the tensors that the layer ends with: of all
        experts gate and up, down, and scales and biases of either."""
        stored = number_format(self.weights)
        return self.layer(layer).expert_bytes(stored, stored.applies(layer, self.layers))

    @property
    def head_weight_bytes(self) -> int:
        """The output head and the final norm: read once in every step."""
        stored = number_format(self.weights)
        head = stored.part("head").matrix_bits(self.vocabulary, self.hidden)
        return (head + self._norm * stored.part("vectors").bits) // 8

    @property
    def embedding_weight_bytes(self) -> int:
        """The embedding table as far as it is not the head, and that of positions; a step gathers
        only a few rows of them."""
        table = number_format(self.weights).part("embedding")
        rows = (0 if self.tied_embeddings else self.vocabulary) + self.positions
        return table.matrix_bits(rows, self.hidden) // 8 if rows else 0

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights occupy."""
        return self.step_weight_bytes + self.embedding_weight_bytes

    @property
    def step_weight_bytes(self) -> int:
        """Weight bytes that one step reads that passes through all experts: everything but the
        embedding table."""
        return self.layer_weight_edges[-1] + self.head_weight_bytes

    @property
    def kv_head_bytes(self) -> int:
        """K (or V), or the latent, of one token in one head of one layer, with the scales of its
        blocks. Raises DescriptionError where the format does not divide it."""
        return number_format(self.kv).vector_bytes(self.head_dim)

    @property
    def kv_half_bytes(self) -> int:
        """K (or V), or the latent, of one token in one layer, without what lies apart."""
        return self.kv_heads * self.kv_head_bytes

    @property
    def kv_layer_bytes(self) -> int:
        """K and V, or the latent, of one token in one layer; the mean where it varies."""
        apart = number_format(self.kv).apart_bytes(self.kv_heads * self.head_dim)
        return round(self.attention.halves * (self.kv_half_bytes + apart))

    @property
    def kv_token_bytes(self) -> int:
        """K and V of one token in all layers with attention: 2 x layers x kv_heads x head_dim x
        bytes; of latent attention layers x (kv_lora_rank + qk_rope_head_dim) x bytes."""
        return self.kv_layers * self.kv_layer_bytes

    def kv_held_bytes(self, context: int) -> int:
        """KV that attention still needs of a sequence of `context` tokens: all of them, in layers
        with a window the last ones."""
        held = (
            many * min(context, kind.window or context)
            for kind, many in self.kinds.items()
            if kind.attention is not None
        )
        return self.kv_layer_bytes * sum(held)

    @property
    def layer_flops(self) -> int:
        """FLOPs a token in the layers' matrices, 2 a weight (Kaplan et al. 2020, section 2.1), of
        the experts those it passes through, and in their states."""
        return sum(many * kind.flops for kind, many in self.kinds.items())

    @property
    def head_flops(self) -> int:
        """FLOPs of the output head for one sampled token."""
        return 2 * self.embedding_parameters

    def attending(self, phase: Literal["decode", "prefill"]) -> AttentionFlops:
        """FLOPs of attention in all layers, in those with a window as long as it is not full."""
        return AttentionFlops(*(self.kv_layers * each for each in self.attention.flops(phase)))

    @property
    def attention_flops(self) -> int:
        """FLOPs a token and a token of context of a decode step: q.k and p.v, 2 each, in all query
        heads and layers."""
        return self.attending("decode").pair


def shard(
    model: TransformerSpec,
    cards: int,
    placement: ExpertPlacement = "none",
    exchange: Exchange = "all_reduce",
    replicas: int = 1,
) -> TransformerSpec:
    """What one of `cards` tensor-parallel cards holds and computes (Shoeybi et al. 2019,
    Megatron-LM, section 3).

    Heads, MLP, each expert and vocabulary are split; norms, routers and what latent attention has
    before its heads are on every card. Where there are fewer KV heads
    than cards each card has one, as in vLLM; the vocabulary is padded to a multiple.

    placement: of whole experts, of which the card with most has `CardExperts`; shared ones are
    split, but whole on every card where each has its own tokens (`all_to_all`), as in vLLM.
    replicas: of so many cards that have the experts in common.

    Raises DescriptionError if heads, KV heads or the MLP do not divide, or if there are no experts
    to place, or fewer than cards.
    """
    whole, held = placement != "none", 0 if model.experts is None else model.experts.count
    if whole and held < cards * replicas:
        raise DescriptionError(
            f"expert_parallel: {placement} places whole experts on {cards * replicas} cards; "
            f"{model.name} has " + (f"{held} in a layer" if held else "none")
        )
    if cards == 1 and not (whole and replicas > 1):
        return model
    kv_split = model.kv_heads % cards and cards % model.kv_heads
    experts = model.experts
    widths = [model.intermediate]
    spread = whole and exchange == "all_to_all"
    if experts is not None:
        widths = [0 if whole else experts.intermediate]
        widths += [0 if spread else experts.shared_intermediate]
        widths += [model.intermediate] if experts.first_dense_layers else []
    if model.heads % cards or any(width % cards for width in widths) or kv_split:
        raise DescriptionError(
            f"tensor_parallel: {cards} cards cannot split {model.name} evenly: {model.heads} heads,"
            f" {model.kv_heads} KV heads, {', '.join(map(str, filter(None, widths)))} MLP columns"
        )
    state = model.state
    if state is not None:
        try:
            state = state.split(cards)
        except ValueError as error:
            raise DescriptionError(
                f"tensor_parallel: {cards} cards cannot split {model.name} evenly: {error}"
            ) from None
    if experts is not None:
        split = ["intermediate"] * (not whole) + ["shared_intermediate"] * (not spread)
        experts = experts.model_copy(update={k: getattr(experts, k) // cards for k in split})
    if experts is not None and whole:
        experts = CardExperts(
            **experts.model_dump(), cards=cards * replicas, replicas=replicas, layers=model.layers,
            placement=placement, exchange=exchange,
        )  # fmt: skip
    return model.model_copy(
        update={
            "heads": model.heads // cards,
            "kv_heads": max(model.kv_heads // cards, 1),
            "intermediate": model.intermediate // cards,
            "experts": experts,
            "state": state,
            "vocabulary": -(-model.vocabulary // cards),
        }
    )


def load_model(name_or_path: str, overrides: Iterable[str] = ()) -> TransformerSpec:
    """A shipped model by name, or a YAML file; `overrides` are `dotted.path=value`.

    Raises DescriptionError.
    """
    document = load(find("models", name_or_path))
    if document.data.get("kind") != "model":
        raise document.error(f"expected kind: model; got {document.data.get('kind')!r}", ("kind",))
    for assignment in overrides:
        path, value = parse_assignment(assignment)
        document.put(path, value, Mark(f"--set {assignment}"))
    return document.build(TransformerSpec)
