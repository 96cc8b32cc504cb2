"""The shape of a decoder-only transformer: parameters, bytes and FLOPs, from its published
config.json.

One attention block (grouped-query, Ainslie et al. 2023), one gated MLP of three matrices (SwiGLU,
Shazeer 2020) and two RMSNorms a layer; a final norm; an embedding and an output head, which may be
one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field, model_validator

from hwmodel.description.description import (
    DescriptionError,
    Mark,
    Strict,
    find,
    load,
    parse_assignment,
)
from hwmodel.specs.number_format import (
    ComputeType,
    KvFormat,
    Matrix,
    NumberFormat,
    WeightFormat,
    number_format,
)

Count = Annotated[int, Field(ge=1)]


class TransformerSpec(Strict):
    """One model, as `yaml/models/*.yaml` describes it."""

    kind: Literal["model"]
    name: str
    summary: str = ""
    sources: dict[str, str] = {}
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocabulary: Count
    max_position: Count
    """Longest context, tokens."""
    qkv_bias: bool
    tied_embeddings: bool
    weights: WeightFormat = "fp16"
    """Format of the weights: of `yaml/formats`, or the path of one."""
    kv: KvFormat = "fp16"

    @model_validator(mode="after")
    def _grouped(self) -> TransformerSpec:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: must divide heads ({self.heads}); got {self.kv_heads}")
        try:
            number_format(self.kv).vector_bytes(self.head_dim)
        except DescriptionError as error:
            raise ValueError(str(error)) from None
        return self

    def stored_as(self, weights: str | None, kv: str | None) -> TransformerSpec:
        """The model in other formats; None: its own. Raises DescriptionError where a format does
        not divide a head."""
        found = self.model_copy(update={"weights": weights or self.weights, "kv": kv or self.kv})
        number_format(found.kv).vector_bytes(found.head_dim)
        return found

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
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key (or all value) heads together."""
        return self.kv_heads * self.head_dim

    @property
    def matrices(self) -> dict[Matrix, tuple[int, int]]:
        """(outputs, inputs) of each matrix of a layer: its rows and columns."""
        hidden, middle, query, kv = self.hidden, self.intermediate, self.query_width, self.kv_width
        return {
            "q": (query, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, query),
            "gate": (middle, hidden), "up": (middle, hidden), "down": (hidden, middle),
        }  # fmt: skip

    @property
    def layer_matrix_parameters(self) -> int:
        """Matrix weights of a layer: Q, K, V, O projections and the three matrices of the MLP."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def layer_parameters(self) -> int:
        """Matrices, biases of Q, K and V where the model has them, and two norms."""
        biases = self.query_width + 2 * self.kv_width if self.qkv_bias else 0
        return self.layer_matrix_parameters + biases + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """The embedding table (vocabulary x hidden)."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters: layers, embedding, final norm, and the head unless it is the
        embedding."""
        tables = 1 if self.tied_embeddings else 2
        return (
            self.layers * self.layer_parameters + tables * self.embedding_parameters + self.hidden
        )

    @property
    def layer_weight_edges(self) -> list[int]:
        """Byte at which each layer's weights begin, and that at which the last one's end."""
        stored = number_format(self.weights)
        plain, mixed = self._layer_bytes(stored, False), self._layer_bytes(stored, True)
        sizes = (mixed if stored.applies(n, self.layers) else plain for n in range(self.layers))
        return list(accumulate(sizes, initial=0))

    def _layer_bytes(self, stored: NumberFormat, mixed: bool) -> int:
        """A layer, its matrices with the formats of the format's `parts` or without."""
        vectors = self.layer_parameters - self.layer_matrix_parameters
        bits = vectors * stored.part("vectors").bits
        for name, shape in self.matrices.items():
            bits += (stored.part(name) if mixed else stored).matrix_bits(*shape)
        return bits // 8

    @property
    def layer_weight_bytes(self) -> int:
        """Of a layer; their mean where the format mixes others from layer to layer."""
        return self.layer_weight_edges[-1] // self.layers

    @property
    def head_weight_bytes(self) -> int:
        """The output head and the final norm: read once in every step."""
        stored = number_format(self.weights)
        head = stored.part("head").matrix_bits(self.vocabulary, self.hidden)
        return (head + self.hidden * stored.part("vectors").bits) // 8

    @property
    def embedding_weight_bytes(self) -> int:
        """The embedding table as far as it is not the head; a step gathers only a few rows of
        it."""
        table = number_format(self.weights).part("embedding")
        return 0 if self.tied_embeddings else table.matrix_bits(self.vocabulary, self.hidden) // 8

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights occupy."""
        return self.step_weight_bytes + self.embedding_weight_bytes

    @property
    def step_weight_bytes(self) -> int:
        """Weight bytes that one step reads: everything but the embedding table."""
        return self.layer_weight_edges[-1] + self.head_weight_bytes

    @property
    def kv_head_bytes(self) -> int:
        """K (or V) of one token in one head of one layer, scales included. Raises DescriptionError
        where the format does not divide it."""
        return number_format(self.kv).vector_bytes(self.head_dim)

    @property
    def kv_half_bytes(self) -> int:
        """K (or V) of one token in one layer."""
        return self.kv_heads * self.kv_head_bytes

    @property
    def kv_layer_bytes(self) -> int:
        """K and V of one token in one layer."""
        return 2 * self.kv_half_bytes

    @property
    def kv_token_bytes(self) -> int:
        """K and V of one token in all layers: 2 x layers x kv_heads x head_dim x bytes."""
        return self.layers * self.kv_layer_bytes

    @property
    def layer_flops(self) -> int:
        """FLOPs a token in the layers' matrices: 2 a weight (Kaplan et al. 2020, section 2.1)."""
        return 2 * self.layers * self.layer_matrix_parameters

    @property
    def head_flops(self) -> int:
        """FLOPs of the output head for one sampled token."""
        return 2 * self.embedding_parameters

    @property
    def attention_flops(self) -> int:
        """FLOPs a token and a token of context: q.k and p.v, 2 each, in all query heads and
        layers."""
        return 4 * self.layers * self.query_width


def shard(model: TransformerSpec, cards: int) -> TransformerSpec:
    """What one of `cards` tensor-parallel cards holds and computes (Shoeybi et al. 2019,
    Megatron-LM, section 3).

    Heads, MLP and vocabulary are split; norms are on every card. Where there are fewer KV heads
    than cards each card has one, as in vLLM; the vocabulary is padded to a multiple. Raises
    DescriptionError if heads, KV heads or the MLP do not divide.
    """
    if cards == 1:
        return model
    kv_split = model.kv_heads % cards and cards % model.kv_heads
    if model.heads % cards or model.intermediate % cards or kv_split:
        raise DescriptionError(
            f"tensor_parallel: {cards} cards cannot split {model.name} evenly: {model.heads} heads,"
            f" {model.kv_heads} KV heads, {model.intermediate} MLP columns"
        )
    return model.model_copy(
        update={
            "heads": model.heads // cards,
            "kv_heads": max(model.kv_heads // cards, 1),
            "intermediate": model.intermediate // cards,
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
