"""How fast a batch runs on a device, by the closed forms of docs/memory-time.md.

Times are those of `policies.memory.step`. They differ from a run's in one thing alone: requests
here are all of one length, and a batch runs without arrivals. The efficiency of memory is

- given, where the device's is;
- simulated, in a short serving run with `sampled` memory: on demand, or if that has been kept; of
  several memories that are taken as one, with all of them interleaved in proportion to bandwidth;
- else an upper limit: the closed-form bound of sequential reads times `derate`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.measure.bounds import read_bound
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.fidelity import FidelitySpec, Simulate
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.placements.placements import InterleavedOptions
from policies.requests.requests import Requests
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec

SHORT = FidelitySpec(fidelity="sampled", max_probes=4)
"""Memory of a short simulated run: a few windows of each phase (assumed)."""
SHORT_TOKENS = 32
"""Output tokens of that run, around the middle of an answer (assumed)."""

Source = Literal["given", "simulated", "bound"]


class Rate(NamedTuple):
    """Steps of a batch. `parts`: shares of their time by what bounds it."""

    batch: int
    tokens_per_s: float
    """Of all of the batch."""
    seconds: float
    """Of a decode step; of prefill, until the first token."""
    parts: dict[str, float]

    @property
    def bound(self) -> str:
        """What takes most of the time."""
        return max(self.parts, key=lambda name: self.parts[name])


def efficiency_of(
    device: Device, model: TransformerSpec, spec: ServingSpec, sizes: tuple[int, int], held: int,
    simulate: bool | None,
) -> tuple[Source, Efficiency]:  # fmt: skip
    """Shares of the peak that reach the engines, and where they come from. sizes: prompt and output
    tokens of a request; held: requests at once; simulate: as in `fit`."""
    own = device.described_as or device
    if own.given is None and simulate is not None:
        from policies.memory.probe_cache import NotKept, kept, simulate_once  # compiles kernels

        try:
            run = simulate_once if simulate else kept
            found = _simulated(own, model, spec, sizes, held, run)
            scale = own.peak_gbps / device.peak_gbps  # shares are of the main memory's peak
            return "simulated", Efficiency(*(share * scale for share in found))
        except NotKept:
            pass
    source: Source = "bound" if device.given is None else "given"
    return source, closed_form(device)


def require_room(device: Device, model: TransformerSpec, tokens: int, what: str) -> None:
    """Raises DescriptionError where a card has no room for the weights and the KV of so many
    tokens, and for layers with windows, which are not `what`: copied, restored."""
    needed = model.weight_bytes + tokens * model.kv_token_bytes
    if needed > device.capacity_bytes:
        raise DescriptionError(
            f"{model.name} with {tokens:,} tokens takes {needed / 2**30:,.1f} GiB;"
            f" {device.name} has {device.capacity_bytes / 2**30:,.1f}"
        )
    if model.window is not None:
        raise DescriptionError(f"{model.name}: layers with windows are not {what}")


def closed_form(device: Device) -> Efficiency:
    """`closed_form_share` of each phase; of the weights their own where one is given."""
    shares = Efficiency(*[closed_form_share(device)] * 4)
    return shares if device.given is None else shares._replace(weights=device.given.of_weights)


def closed_form_share(device: Device) -> float:
    """Share of the peak that reaches the engines: given, or at most by the bound of sequential
    reads times `derate`."""
    if device.given is not None:
        return device.given.efficiency
    return read_bound(device.memory, "sequential").fraction * device.derate


def _simulated(
    device: Device, model: TransformerSpec, spec: ServingSpec, sizes: tuple[int, int], held: int,
    simulate: Simulate,
) -> Efficiency:  # fmt: skip
    """What a short run of a full batch finds, in the middle of its answers."""
    prompt, output = sizes
    prompt += max(output - SHORT_TOKENS, 0) // 2
    each = np.ones(held, np.int64)
    requests = Requests(np.zeros(held), each * prompt, each * min(output, SHORT_TOKENS))
    memories = InterleavedOptions() if device.memories else None
    short = spec.model_copy(update={"memory": SHORT, "memories": memories})
    found = serve(device, model, short, requests, seed=0, simulate=simulate)
    return Efficiency(**found.metrics["memory"]["efficiency"])


def decode_rate(
    steps: StepModel, batch: int, sizes: tuple[int, int], efficiency: Efficiency, windowed: bool
) -> Rate:
    """From the first token of an answer to its last, of a batch that began together."""
    prompt, output = sizes
    rounds = max(output - 1, 1)
    step = Step(np.arange(batch), batch * prompt, [], [], 0, "kv_memory")
    if windowed:  # lengths in a window do not grow alike: one step after another
        found = []
        for stored in range(prompt, prompt + rounds):
            lengths = np.full(batch, stored)
            now = step._replace(context=batch * stored, lengths=lengths)
            found.append(steps.times(now, 1, efficiency))
    else:
        found = [steps.times(step, rounds, efficiency)]
    seconds = sum(float(times.total_s.sum()) for times in found)
    return Rate(batch, batch * rounds / seconds, seconds / rounds, _parts(found))


def prefill_rate(steps: StepModel, prompt: int, budget: int, efficiency: Efficiency) -> Rate:
    """Of one prompt, in chunks of the token budget."""
    times = []
    for start in range(0, prompt, budget):
        tokens = min(budget, prompt - start)
        chunk = Chunk(0, start, tokens, start + tokens == prompt)
        step = Step(np.zeros(0, np.int64), 0, [chunk], [], 0, "token_budget")
        times.append(steps.times(step, 1, efficiency))
    seconds = sum(float(each.total_s[0]) for each in times)
    return Rate(1, prompt / seconds, seconds, _parts(times))


def _parts(times: list[StepTimes]) -> dict[str, float]:
    """Shares of the time of steps by what bounds them."""
    total = sum(float(each.total_s.sum()) for each in times)
    compute = sum(float(each.compute_s.sum()) for each in times)
    overhead = sum(each.overhead_s * len(each.total_s) for each in times)
    links = sum(each.all_reduce_s * len(each.total_s) for each in times)
    memory = total - compute - overhead - links
    parts = {"memory": memory, "compute": compute, "overhead": overhead, "links": links}
    return {name: seconds / total for name, seconds in parts.items()}
