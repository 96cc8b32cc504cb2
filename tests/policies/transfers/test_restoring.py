"""Do link and cores end together where they split what is restored?"""

from __future__ import annotations

import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import load_model
from policies.transfers.pieces import pages
from policies.transfers.restoring import (
    Restored,
    bytes_ratio,
    fetch,
    flops_ratio,
    hcache,
    projection_flops,
)
from policies.transfers.transfer import TransferEnd

DEVICE, MODEL = load_device("a100-80gb"), load_model("llama-2-7b")
TOKENS = 2048


def link(bandwidth: str, latency: str = "0ns") -> LinkSpec:
    path = {"post": "0ns", "bandwidth": bandwidth}
    named = {"kind": "link", "name": "mine", "latency": latency, "paths": [path]}
    return LinkSpec.model_validate(named)


def restored(spec: LinkSpec, recompute_s: float) -> Restored:
    server = TransferEnd(LAYOUTS["layer_kv_token"], 16, pages("fresh", TOKENS // 16))
    fetched = fetch(spec, MODEL, TOKENS, server, server)
    return hcache(spec, DEVICE, MODEL, TOKENS, Restored(recompute_s, 0, recompute_s, 0), fetched)


def projecting_s() -> float:
    """Of all layers, on the device."""
    assert DEVICE.accelerator is not None
    compute = DEVICE.accelerator.compute
    rate = compute.peak(MODEL.weights) * compute.prefill_efficiency
    return MODEL.layers * TOKENS * projection_flops(MODEL) / rate


@pytest.mark.parametrize(("factor", "rest"), [(3, "kv"), (0.3, "recompute")])
def test_the_split_ends_at_both_ends_together(factor: float, rest: str) -> None:
    """A fast link fetches KV of the other layers, a slow one leaves them to the cores; no other
    number of layers is faster, and the two ends lie within a layer of one another."""
    moved = TOKENS * MODEL.kv_token_bytes / 2
    spec = link(f"{factor * moved / projecting_s() / 1e9:.12f}GB/s")
    recompute_s = projecting_s() * flops_ratio(MODEL)
    found = restored(spec, recompute_s)
    assert found.rest == rest and 0 < found.hidden_layers < MODEL.layers
    gap = abs(found.link_s - found.compute_s)
    assert gap <= max(recompute_s, 2 * moved / (factor * moved / projecting_s())) / MODEL.layers


@pytest.mark.parametrize(
    ("model", "ratio"),
    [("llama-2-7b", 0.5), ("deepseek-r1-distill-qwen-7b", 3.5), ("mistral-7b-v0.1", 2.0)],
)
def test_hidden_states_over_kv(model: str, ratio: float) -> None:
    assert bytes_ratio(load_model(model)) == ratio


@pytest.mark.parametrize(
    ("model", "ratio"), [("llama-2-7b", 6.03), ("deepseek-r1-distill-qwen-7b", 63.5)]
)
def test_flops_of_recompute_over_restore(model: str, ratio: float) -> None:
    assert flops_ratio(load_model(model)) == pytest.approx(ratio, rel=1e-3)


def test_a_balanced_link_takes_hidden_states_alone() -> None:
    """Half of the bytes of KV in exactly the time of projecting."""
    moved = TOKENS * MODEL.kv_token_bytes / 2
    found = restored(link(f"{moved / projecting_s() / 1e9:.12f}GB/s"), 1e3)
    assert (found.hidden_layers, found.rest, found.bytes) == (MODEL.layers, None, moved)
    assert found.total_s == pytest.approx(projecting_s(), rel=1e-6)


def test_a_link_of_no_use_leaves_all_to_recompute() -> None:
    found = restored(link("0.001MB/s", "1s"), 0.1)
    assert (found.hidden_layers, found.rest, found.total_s) == (0, "recompute", 0.1)
