"""Ways to have the KV of a context again: compute it, fetch it, or fetch hidden states (HCache).

HCache (arXiv 2410.05004) keeps the hidden state before each layer and makes K and V of it by their
projections. The link and the cores work side by side, so that layers are split: some fetch hidden
states, the rest fetch KV where the cores are slower, or are recomputed where the link is (these
are the first layers, which need no hidden state). The split is the one that ends first.

Closed forms: bytes of hidden states over KV are hidden width / (2 x KV width); FLOPs of recompute
over restore, without attention, are those of a layer's matrices over those of its two projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.transfer import TransferEnd, transfer

HCACHE_CHUNK = 64
"""Tokens of one layer's hidden states that lie together (HCache, section 4.2)."""
BUDGET = 2048
"""Tokens of a prefill step, vLLM's default."""
Rest = Literal["kv", "recompute"]


class Restored(NamedTuple):
    """One way, in seconds; `layers`: by hidden states, and of the rest how."""

    total_s: float
    link_s: float
    compute_s: float
    bytes: int
    hidden_layers: int = 0
    rest: Rest | None = None

    @property
    def limit(self) -> str:
        """What takes longer."""
        return "link" if self.link_s >= self.compute_s else "compute"


def hidden_bytes(model: TransformerSpec) -> int:
    """Of the hidden state of one token before one layer: the model's activations."""
    return model.hidden * number_format(model.activations).bits // 8


def bytes_ratio(model: TransformerSpec) -> float:
    """Hidden states over KV, bytes."""
    return hidden_bytes(model) / model.kv_layer_bytes


def projection_flops(model: TransformerSpec) -> int:
    """A token and layer: K and V of its hidden state, 2 FLOPs a weight. Raises DescriptionError for
    latents, which HCache does not have."""
    if model.latent is not None:
        raise DescriptionError(f"{model.name}: HCache restores K and V, not latents")
    return 2 * model.hidden * 2 * model.kv_heads * model.head_dim


def flops_ratio(model: TransformerSpec) -> float:
    """Recompute over restore, FLOPs in matrices, without attention."""
    return model.layer_flops / (model.layers * projection_flops(model))


def recompute(
    steps: StepModel, tokens: int, efficiency: Efficiency, first: int = 0
) -> Restored:  # fmt: skip
    """A prefill of the context behind its `first` tokens, in chunks."""
    seconds = 0.0
    for start in range(first, tokens, BUDGET):
        size = min(BUDGET, tokens - start)
        chunk = Chunk(0, start, size, False)
        step = Step(np.zeros(0, np.int64), 0, [chunk], [], 0, "token_budget")
        seconds += float(steps.times(step, 1, efficiency).total_s[0])
    return Restored(seconds, 0.0, seconds, 0)


def fetch(
    link: LinkSpec, model: TransformerSpec, tokens: int, source: TransferEnd, target: TransferEnd
) -> Restored:
    """The KV, by its descriptors."""
    moved = transfer(link, model, tokens, source, target)
    seconds = moved.cost.total_ns / 1e9
    return Restored(seconds, seconds, 0.0, moved.pieces.bytes)


def projection_s(device: Device, model: TransformerSpec, tokens: int) -> float:
    """Seconds that K and V of one layer's hidden states take: bound by FLOPs, as prefill is. Raises
    DescriptionError for latents."""
    assert device.accelerator is not None
    compute = device.accelerator.compute
    rate = compute.peak(model.weights) * compute.prefill_efficiency
    return tokens * projection_flops(model) / rate


def hcache(
    link: LinkSpec, device: Device, model: TransformerSpec, tokens: int,
    recomputed: Restored, fetched: Restored, layers: int | None = None,
    rests: Sequence[Rest] = ("kv", "recompute"),
) -> Restored:  # fmt: skip
    """Hidden states of `layers` layers; None: of as many as make link and cores end together.

    recomputed and fetched: all layers by these. rests: how others may come.
    Raises DescriptionError for latents.
    """
    project_s = projection_s(device, model, tokens)
    chunks = -(-tokens // HCACHE_CHUNK)
    size = HCACHE_CHUNK * hidden_bytes(model)
    latency_s, every = link.latency / 1e9, model.layers
    best: Restored | None = None
    for hidden in range(every, -1, -1) if layers is None else (layers,):
        cost = link.cost(np.array([size]), np.array([hidden * chunks]))
        hidden_s, left = (cost.total_ns / 1e9 - latency_s) if hidden else 0.0, every - hidden
        share = left / every
        for rest in rests if left else (None,):
            link_s, compute_s, moved = hidden_s, hidden * project_s, hidden * chunks * size
            if rest == "kv":
                link_s += share * (fetched.total_s - latency_s)
                moved += round(share * fetched.bytes)
            elif rest == "recompute":
                compute_s += share * recomputed.total_s
            total_s = latency_s * (moved > 0) + max(link_s, compute_s)
            if best is None or total_s < best.total_s:
                best = Restored(total_s, link_s, compute_s, moved, hidden, rest)
    assert best is not None
    return best
