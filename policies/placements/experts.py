"""The routed experts of a model as placements see them."""

from __future__ import annotations

from hwmodel.specs.transformer import TransformerSpec
from policies.placements.placement import PlacedExperts


def experts_of(model: TransformerSpec) -> PlacedExperts | None:
    """None where there are none, or a card has some of them."""
    if model.experts is None or model.experts.on_cards is not None:
        return None
    count, edges = model.experts.count, model.layer_weight_edges
    sizes = [model.expert_bytes(layer) for layer in range(model.layers)]
    each = sum(map(sum, sizes))

    def tensors(layer: int) -> tuple[int, tuple[int, ...]]:
        return edges[layer + 1] - count * sum(sizes[layer]), sizes[layer]

    return PlacedExperts(count, each, int(model.step_weight_bytes) - count * each, tensors)
