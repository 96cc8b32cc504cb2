"""What allocators for hybrid models hold of workloads, and what they waste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.hybrid import Compact, MemoryUse, Mode, TwoPools, Unified
from policies.requests.request_stream import generate
from policies.requests.workload import WorkloadSpec, workload_document
from sweeps.ask.fit import FitQuestion, Misfit, fit

REQUESTS, SEED = 4000, (1, 1)
"""Drawn of each workload: more than any card holds (assumed)."""


class Options(NamedTuple):
    """Of the allocators; `policies.allocators.hybrid` says what each is."""

    mode: Mode = "none"
    drafts: int = 0
    ratio: float = 0.9
    slots: int = 1
    sequences: int = 256


@dataclass(frozen=True)
class StatesAnswer:
    """`memory`: bytes for KV and states of a card. `held`: by workload and allocator. `even`: by
    workload, the ratio at which both of SGLang's pools run out together; `length`: mean tokens."""

    pages: Unified
    memory: int
    held: dict[str, dict[str, MemoryUse]]
    even: dict[str, float]
    length: dict[str, float]


def lengths_of(workload: str, longest: int) -> list[int]:
    """Prompt and output of requests of a workload, as far as the model allows, tokens."""
    spec = workload_document(workload).build(WorkloadSpec)
    at_once = spec.arrivals.model_copy(update={"process": "all_at_once"})
    plain = spec.lengths.sessions is None and spec.lengths.drift != "clock"
    chosen = spec.model_copy(update={"arrivals": at_once}) if plain else spec
    made = generate(chosen, REQUESTS, None if plain else 1.0, SEED)
    tokens = (made.prompt_tokens + made.output_tokens).tolist()
    return [min(each, longest) for each in tokens]


def states(
    device: Device, model: TransformerSpec, workloads: list[str], question: FitQuestion,
    options: Options,
) -> StatesAnswer:  # fmt: skip
    """The answer for a device and a model in the formats and on the cards of `question`. Raises
    DescriptionError if the model has no states, or does not fit."""
    if model.state is None:
        raise DescriptionError(f"{model.name} has no layers with a state")
    found = fit(device, model, question)
    if isinstance(found, Misfit):
        raise DescriptionError(f"{model.name} does not fit {device.name}: {found.why}")
    part, memory = found.part, found.layout.bytes
    pages = Unified(part, options.mode, options.drafts)
    pools = TwoPools(part, options.ratio, options.slots, options.drafts)
    each = pages, pools, Compact(part, options.sequences, drafts=options.drafts)
    lengths = {name: lengths_of(name, model.max_position) for name in workloads}
    held = {
        name: {pool.name: pool.held(memory, tokens) for pool in each}
        for name, tokens in lengths.items()
    }
    even = {name: pools.even(tokens) for name, tokens in lengths.items()}
    means = {name: sum(tokens) / len(tokens) for name, tokens in lengths.items()}
    return StatesAnswer(pages, memory, held, even, means)
