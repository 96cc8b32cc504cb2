"""What allocators for hybrid models hold of workloads, and what they waste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.hybrid import USES, Compact, MemoryUse, Mode, TwoPools, Unified
from policies.requests.request_stream import generate
from policies.requests.workload import WorkloadSpec, workload_document
from sweeps.ask.fit import FitQuestion, Misfit, fit
from sweeps.ask.fit_library import of_library, question_of
from sweeps.ask.question import CardName, Count, ModelName, Question, Several, Text, Typed
from sweeps.sections.section import Grid, Say, Section

WORKLOADS = ("alpaca", "azure-conv", "azure-code", "r1-reasoning", "mooncake-conversation")
"""Whose lengths are compared."""

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

    def record(self) -> dict[str, Any]:
        """Bytes, tokens and shares."""
        pages = self.pages
        return {
            "model": pages.model.name, "memory_bytes": self.memory,
            "kv_bytes_a_token": pages.model.kv_token_bytes,
            "state_bytes_a_request": pages.model.state_bytes(pages.drafts),
            "block_tokens": pages.block, "page_bytes": pages.page,
            "padding_share": pages.padding / pages.page, "group_layers": pages.group,
            "workloads": {
                name: {
                    "mean_tokens": self.length[name], "even_ratio": self.even[name],
                    "allocators": {
                        pool: {"requests": held.requests, "waste": held.waste, "bytes": held.bytes}
                        for pool, held in each.items()
                    },
                }
                for name, each in self.held.items()
            },
        }  # fmt: skip


def lengths_of(workload: str, longest: int) -> list[int]:
    """Prompt and output of requests of a workload, as far as the model allows, tokens."""
    spec = workload_document(workload).build(WorkloadSpec)
    at_once = spec.arrivals.model_copy(update={"process": "all_at_once"})
    plain = spec.lengths.sessions is None and spec.lengths.drift != "clock"
    chosen = spec.model_copy(update={"arrivals": at_once}) if plain else spec
    made = generate(chosen, REQUESTS, None if plain else 1.0, SEED)
    tokens = (made.prompt_tokens + made.output_tokens).tolist()
    return [min(each, longest) for each in tokens]


class FitStatesQuestion(Question):
    """Say what three allocators hold of a model with states, and what each waste."""

    device: Annotated[CardName, Typed("DEVICE", ("accelerators",), argument=True)]
    """A shipped accelerator, or a YAML file."""
    model: Annotated[ModelName, Typed("MODEL", ("models",), argument=True)]
    """A shipped model with states, or a YAML file."""
    workload: Annotated[tuple[Text, ...], Several, Typed("NAME", ("workloads",))] = WORKLOADS
    """Workloads whose lengths are compared."""
    mode: Mode = "none"
    """What vLLM keeps for prefixes."""
    drafts: Annotated[int, Field(ge=0, le=16)] = 0
    """Speculative tokens of a step."""
    ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.9
    """Bytes of SGLang's pool of states over those of its pool of KV."""
    slots: Count = 1
    """States that SGLang keeps for a running request."""
    sequences: Count = 256
    """Slots of the compact allocator."""
    weights: Annotated[WeightFormat, Typed("FORMAT")] | None = None
    """Number format of the weights (default: the model's)."""
    kv: Annotated[KvFormat, Typed("FORMAT")] | None = None
    """Number format of the KV (default: the model's)."""
    cards: Count = 1
    """Cards that share the model."""

    def answer(self) -> StatesAnswer:
        (device,), (model,) = of_library([self.device, self.model], list(self.set))
        question = question_of({"weights": self.weights, "kv": self.kv, "cards": self.cards})
        options = Options(self.mode, self.drafts, self.ratio, self.slots, self.sequences)
        return states(device, model, list(self.workload), question, options)

    def section(self, findings: StatesAnswer) -> Section:
        """A line a workload and allocator."""
        return _section(findings)


def _section(findings: StatesAnswer) -> Section:
    record = findings.record()
    about = (
        f"{record['model']}: {record['memory_bytes'] / 2**30:,.1f} GiB for KV of"
        f" {record['kv_bytes_a_token'] / 1024:,.4g} KiB a token and states of"
        f" {record['state_bytes_a_request'] / 2**20:,.1f} MiB a request. vLLM: blocks of"
        f" {record['block_tokens']:,} tokens, {record['padding_share']:.2%} of a state's page is"
        f" padding, {record['group_layers']} layers a group."
    )
    rows = []
    for name, each in record["workloads"].items():
        for pool, held in each["allocators"].items():
            most = max(USES[2:], key=held["bytes"].__getitem__)
            share = held["bytes"][most] / findings.memory
            rows.append([
                name, f"{each['mean_tokens']:,.0f}", pool, f"{held['requests']:,}",
                f"{held['waste']:.1%}", f"{most}, {share:.1%}", f"{each['even_ratio']:.2f}",
            ])  # fmt: skip
    columns = [
        "workload",
        "tokens",
        "allocator",
        "requests",
        "waste",
        "most of it",
        "even ratio",
    ]
    note = (
        "waste: memory with neither tokens nor the state of a running request. even ratio: of"
        " SGLang's pools, at which both run out together. Requests at their full length."
    )
    return Section("Models with states", [Say(about), Grid("", columns, rows), Say(note)])


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
