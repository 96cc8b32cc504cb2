"""What fits beside the weights, and who leads where memory is full: closed forms.

Full of KV and bound by bandwidth, a step reads all of the memory, so a device makes
B (C - W) / (C x KV of a sequence) tokens a second: capacity C, bandwidth B, weights W.
"""

from __future__ import annotations

from typing import NamedTuple

from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec


def kv_token_bits(model: TransformerSpec) -> float:
    """Mean bits of the KV of one token in all layers, not rounded to bytes."""
    halves = model.kv_layers * model.attention.halves
    width = model.kv_heads * model.head_dim
    return halves * width * number_format(model.kv).effective_bits(model.kv_heads, model.head_dim)


def sequences(model: TransformerSpec, capacity_bytes: float, tokens: int) -> int:
    """Of so many tokens that fit in all of a memory beside the weights."""
    room = 8 * max(capacity_bytes - model.weight_bytes, 0)
    return int(room // (tokens * kv_token_bits(model)))


class Supply(NamedTuple):
    """Bytes, and bytes a second."""

    capacity: float
    bandwidth: float


def crossover_bytes(large: Supply, fast: Supply) -> float:
    """Weights above which the larger memory serves more than the faster one, where both are full of
    KV; whatever its format, which divides both rates alike."""
    turns = fast.bandwidth / fast.capacity - large.bandwidth / large.capacity
    return (fast.bandwidth - large.bandwidth) / turns


def half_empty_bytes(model: TransformerSpec, page_bytes: int) -> int:
    """What the open pages of one request hold back in the mean, where each head has pages of its
    own for K and V, and for the dense and the sparse part of either."""
    structure = number_format(model.kv).kv
    lists = 1 if structure is None or structure.outliers is None else 2
    pages = model.kv_layers * model.attention.halves * model.kv_heads * lists
    return pages * page_bytes // 2
