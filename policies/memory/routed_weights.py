"""Weights of a model with experts: the share of the peak that a step's stream of them reaches."""

from __future__ import annotations

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.fidelity import FidelitySpec, Simulate
from policies.memory.probe import weights_stream
from policies.memory.routing import Routing


class RoutedWeights:
    """Of a model on a device; what was found is kept."""

    def __init__(
        self, device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate,
        routing: Routing,
    ) -> None:  # fmt: skip
        self._of = device, model, spec, simulate, routing
        self._shares: dict[int, float] = {}

    def share(self, tokens: int) -> float:
        """Of the peak, in a step of so many tokens: measured once for each power of two."""
        size = max(tokens, 1).bit_length()
        if size not in self._shares:
            self._shares[size] = weights_stream(*self._of, tokens=max(tokens, 1)).share
        return self._shares[size]
