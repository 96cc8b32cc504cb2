"""Figures of what KV in motion takes from a decode step, into docs/figures/contention.json.

    python -m tools.contention

Cycle model beside analytic share, ten CPU minutes: by card, link, block and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import kv_layout
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import POLICIES
from policies.engines.scheduled_step import Step
from policies.memory.batch import BatchSpec, place
from policies.memory.contention import Contention, Moving
from policies.memory.fidelity import FidelitySpec
from policies.memory.interval import confidence_interval
from policies.memory.probe import Probe
from policies.memory.probe_cache import simulate_once
from policies.memory.step import StepModel
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency
from policies.requests.requests import FloatArray
from policies.transfers.restoring import recompute
from policies.transfers.transfer import Server, transfer
from tools.figures import keep

SEQUENCES, CONTEXT, DRAWS = 16, 2048, 5
CARDS = [
    ("mlu370-x4", "deepseek-r1-distill-qwen-7b", (16, 64), ("pcie4-a30-batched", "rdma-200")),
    ("dgx-spark-gb10", "llama-3.1-8b", (16, 64), ("rdma-200", "mooncake-rdma-400-merged")),
    ("a100-80gb", "llama-3.1-8b", (16,), ("pcie4-a30-batched", "mooncake-rdma-400-merged")),
    ("h100-sxm", "llama-3.1-8b", (16,), ("pcie5-h100-kernel", "nixl-cuda-ipc")),
]
"""Device, model, blocks and links."""
NAMES = {"layers": "layer_kv_token", "blocks": "block_layer_kv_token"}


class Bench:
    """A decode step on a card, and a request of the same length that moves beside it."""

    def __init__(self, device: Device, model: TransformerSpec, layout: str, block: int) -> None:
        policy = PagedOptions(block=block)
        batch = BatchSpec(policy=policy, sequences=SEQUENCES + 1, context=CONTEXT, age=300)
        order, limits = kv_layout(device, model, dims=LAYOUTS[layout]), Limits(CONTEXT, 2 * CONTEXT)
        self._allocator = POLICIES["paged"](order, batch.requests(), limits, policy)
        placed = place(self._allocator, batch, np.random.default_rng(0))
        self._step = Step(placed[:-1], SEQUENCES * CONTEXT, [], [], 0, "offered_load")
        self._units = self._allocator.units(int(placed[-1]))
        self._end = Server(order.dims, block, self._units.start // block)
        self._model, self._spec = model, FidelitySpec(fidelity="sampled", phases="together")
        self._probe = Probe(device, self._spec, simulate_once)
        self._streams = StepStreams(device, model, self._spec.weight_tile)

    def rate(self, link: str) -> float:
        """Bytes a second that a link moves of the request."""
        return transfer(load_link(link), self._model, CONTEXT, self._end, self._end).gbps * 1e9

    def shares(self) -> FloatArray:
        """Of the peak, at which layers of the step move, with `derate`; (draws,)."""
        layers = (self._streams.at_once(self._step, self._allocator, at) for at in range(DRAWS))
        return np.array([self._probe.whole([self._probe.start(each, 64e6)])[0] for each in layers])

    def costs(self, rate: float, write: bool) -> FloatArray:
        """`Contention.cost` of draws: another layer, another part of the transfer; (draws,)."""
        found = []
        for at in range(DRAWS):
            moving = Moving(rate, write, self._units, at / DRAWS)
            one = Contention(self._probe, self._streams, self._spec)
            found.append(one.cost(self._step, self._allocator, [moving], at))
        return np.array(found)


def measure(
    card: str, shape: str, blocks: tuple[int, ...], links: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """A row for each link and block of a card: costs by layout, at the rate that the link has with
    the better one; a step beside a load, whole blocks over layers apart; and what computing a token
    again takes, over what loading it takes from others."""
    device, model = load_device(card), load_model(shape)
    peak, rows = device.peak_gbps * 1e9, {}
    again = recompute(StepModel(device, model), 2 * CONTEXT, Efficiency()).total_s
    for block in blocks:
        benches = {key: Bench(device, model, layout, block) for key, layout in NAMES.items()}
        shares = {key: bench.shares() for key, bench in benches.items()}
        for link in links:
            rate = max(bench.rate(link) for bench in benches.values())
            row: dict[str, Any] = {"link, GB/s": round(rate / 1e9, 1)}
            step: dict[str, dict[str, FloatArray]] = {"share": {}, "cycles": {}}
            for key, bench in benches.items():
                row[f"{key}, out"] = spread(bench.costs(rate, False))
                costs = bench.costs(rate, True)
                row[f"{key}, in"] = spread(costs)
                for by, cost in (("share", np.ones(DRAWS)), ("cycles", costs)):
                    step[by][key] = (1 + cost * rate / (peak * shares[key])) / shares[key]
            row |= {f"step, {by}": spread(of["blocks"] / of["layers"]) for by, of in step.items()}
            (_, low, high), (_, least, most) = row["step, share"], row["step, cycles"]
            row["reverses"] = "yes" if (low > 1 and most < 1) or (high < 1 and least > 1) else "no"
            lost = row["layers, in"][0] * 2 * CONTEXT * model.kv_token_bytes
            row["recompute"] = round(again * peak * float(shares["layers"].mean()) / lost, 1)
            rows[f"{card}, {link}, blocks of {block}"] = row
    return rows


def spread(found: FloatArray) -> list[float]:
    """Mean and 95 % interval."""
    mean, half = confidence_interval(found.tolist())
    return [round(mean + side * (half or 0.0), 4) for side in (0, -1, 1)]


def main() -> None:
    rows: dict[str, dict[str, Any]] = {}
    for card in CARDS:
        rows |= measure(*card)
    keep("contention", "python -m tools.contention", {"cost": rows})


if __name__ == "__main__":
    main()
