"""Whether a model fits a device, and what it leaves for the KV; how fast it would be: `rates`.

Memory is parted by the function that parts it in a serving run (`kv_region`); how many requests a
policy holds is asked of its allocator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Strict, checked
from hwmodel.specs.accelerator import HOST_HOP_NS
from hwmodel.specs.device import Device
from hwmodel.specs.mlp import ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat, number_format
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.capabilities import OnDemand
from policies.allocators.hybrid import Compact, TwoPools, Unified
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES, build
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.vllm_version import VersionName
from policies.memory.routing import Routing, RoutingSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.predictors.prediction import Prediction
from policies.serving.building import activation_bytes, kv_region, non_torch_bytes
from policies.serving.rates import Rate, Source, decode_rate, efficiency_of, prefill_rate
from policies.serving.serving_spec import ServingSpec, model_of_a_card

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
PROMPT, OUTPUT, LIMIT = 1000, 300, 1024
"""Tokens of a request, and the longest answer an operator allows, unless others are asked about:
about azure-conv's means, 1,155 and 211, and just above its longest answer (assumed)."""
NARROWER = ("int8", "w4a16")
"""Formats of weights that are tried where a model does not fit; then more CARDS, then KV."""
NARROWER_KV = "fp8"
CARDS = (2, 4, 8)
SKEW = 1.0
"""By which power tokens of benchmarks, drawn at random, choose experts (aiconfigurator collects its
tables of experts under 1.01 and 1.2)."""
PART = 0.1
"""Share of a step above which what it rests on is named (assumed)."""


class FitQuestion(Strict):
    """What is to be served, and in which formats; sizes in tokens."""

    prompt: Count = PROMPT
    output: Count = OUTPUT
    limit: Count = LIMIT
    """Longest answer that an operator allows."""
    weights: WeightFormat | None = None
    kv: KvFormat | None = None
    cards: Count = 1
    expert_parallel: ExpertPlacement = "none"
    """Of whole experts on these cards."""
    like: VersionName | None = None
    """A version of vLLM, whose defaults and memory beside KV it has."""
    gpu_memory_utilization: Share | None = None
    max_num_seqs: Count | None = None

    @checked
    def _allowed(self) -> None:
        if self.limit < self.output:
            raise ValueError(f"limit: is below the {self.output} tokens of an answer")

    def spec(self, model: TransformerSpec) -> ServingSpec:
        """The serving run that this is about."""
        engine: dict[str, Any] = {"name": "v1", "max_tokens": self.limit}
        engine["max_model_len"] = self.prompt + self.limit
        given = {"like": self.like, "max_num_seqs": self.max_num_seqs}
        engine |= {key: value for key, value in given.items() if value is not None}
        data: dict[str, Any] = {
            "model": model.name, "weights": self.weights, "kv": self.kv, "engine": engine,
            "tensor_parallel": self.cards, "expert_parallel": self.expert_parallel,
        }  # fmt: skip
        if self.gpu_memory_utilization is not None:
            data["gpu_memory_utilization"] = self.gpu_memory_utilization
        return ServingSpec.model_validate(data)


@dataclass(frozen=True)
class Fit:
    """What one card holds of the model, sizes in bytes, and rates of all cards together."""

    device: Device
    model: TransformerSpec
    """In the formats it is served in."""
    question: FitQuestion
    part: TransformerSpec
    """Of one card."""
    activations: int
    non_torch: int
    """Of a card, beside weights, activations and KV."""
    layout: KvLayout
    held: int
    """Requests at once as paged holds them at their full length, at most as many as may run; of
    hybrids as vLLM's pages do."""
    most: int
    """Requests that may run at once."""
    efficiency: Efficiency
    source: Source
    alone: Rate
    full: Rate
    """With `held` requests."""
    prefill: Rate
    beyond: frozenset[str] = frozenset()
    """Kinds of kernels whose shapes no table of the device has."""
    skewed: tuple[Rate, Rate, Rate] | None = None
    """Of a model with experts, the three rates where tokens choose them by a power of SKEW."""
    fits = True

    @property
    def delivered_gbps(self) -> float:
        """What reaches the engines of a card, of weights, GB/s."""
        return self.device.peak_gbps * self.efficiency.weights

    def interval_s(self, rate: Rate) -> tuple[float, float]:
        """Between which seconds 19 in 20 measured steps of the device's class of kernels are
        expected where the law says `rate.seconds`; of a model with experts from where tokens choose
        them by a power: real text lies between that and even routing."""
        assert self.device.accelerator is not None
        law, least = self.device.accelerator.kernels, rate.seconds
        if self.skewed is not None:
            ours = (self.alone, self.full, self.prefill)
            least = min(b.seconds for a, b in zip(ours, self.skewed, strict=True) if a is rate)
        return law.spread_low * min(least, rate.seconds), law.spread_high * rate.seconds

    def memory(self) -> dict[str, int]:
        """The parts of a card's memory."""
        taken = {
            "weights": self.part.weight_bytes, "activations": self.activations,
            "KV": self.layout.bytes,
        }  # fmt: skip
        if self.non_torch:
            taken["outside PyTorch"] = self.non_torch
        return taken | {"kept free": self.device.capacity_bytes - sum(taken.values())}

    def assumed(self) -> dict[str, dict[str, str]]:
        """By figure, the assumed numbers that it rests on: their paths and values."""
        rates = {"decode": (self.alone, self.full), "prefill": (self.prefill,)}
        found = {"capacity": {"capacity"}}
        for name, of in rates.items():
            found[name] = {path for rate in of for path in self._paths(name, rate)}
        known = self.device.assumed
        stated = {n: {p: known[p] for p in sorted(ps) if p in known} for n, ps in found.items()}
        for name, of in rates.items():
            if self._over_host and any(rate.parts["links"] >= PART for rate in of):
                stated[name]["link"] = f"as the host's, {HOST_HOP_NS / 1e3:g}us a message"
        return {name: paths for name, paths in stated.items() if paths}

    @property
    def _over_host(self) -> bool:
        """Whether its cards talk over the host, as no link is described."""
        assert self.device.accelerator is not None
        return self.device.accelerator.link is None and linked(self.device)

    def _paths(self, phase: str, rate: Rate) -> Iterator[str]:
        stored = number_format(self.model.weights).compute
        assert self.device.accelerator is not None
        peak = stored if getattr(self.device.accelerator.compute, stored) is not None else "fp16"
        rests = {
            "memory": ("channels", "memory:clock.tCK", "given.bandwidth", "given.efficiency",
                       "given.weights", "derate"),
            "compute": (f"compute.{peak}", f"compute.{phase}_efficiency"),
            "overhead": ("kernels.host", "kernels.product", "kernels.kernel", "kernels.attention"),
            "links": ("link.bandwidth", "link.latency"),
        }  # fmt: skip
        for name, paths in rests.items():
            if rate.parts[name] >= PART:
                yield from paths

    def policies(self) -> dict[str, tuple[int, int]]:
        """(slots of one request at its full length, requests that memory holds) of each policy; of
        each allocator for hybrids where the model has states. Those that refuse the device's KV
        layout are left out."""
        if self.part.state is not None:
            cap = EngineV1Spec().sequence_cap
            longest = self.question.prompt + self.question.output
            pools = Unified(self.part), TwoPools(self.part), Compact(self.part, cap)
            memory = self.layout.bytes
            held = {pool.name: pool.held(memory, [longest] * cap).requests for pool in pools}
            slots = longest + -(-self.part.state_bytes() // self.layout.token_bytes)
            return {name: (slots, count) for name, count in held.items()}
        found = {}
        for name in POLICIES:
            with suppress(DescriptionError):
                found[name] = _held(name, self)
        return found


@dataclass(frozen=True)
class Misfit:
    """Why a model cannot be served on a device, and the first change with which it can."""

    device: Device
    model: TransformerSpec
    question: FitQuestion
    why: str
    change: dict[str, Any] | None
    """Keys of `FitQuestion`."""
    fits = False


def fit(
    device: Device, model: TransformerSpec, question: FitQuestion, simulate: bool | None = None
) -> Fit | Misfit:
    """The sheet of a pair. simulate: do the short run, or use it if it is kept (None: neither).
    Raises DescriptionError where a model with states is to be simulated."""
    if model.state is not None:
        if simulate:
            raise DescriptionError(f"{model.name} has states; its sheet has no short run")
        simulate = None
    try:
        return _fit(device, model, question, simulate)
    except DescriptionError as error:
        change = next(_changes(device, model, question), None)
        own = model.stored_as(question.weights, None)
        return Misfit(device, own, question, error.message, change)


def _fit(
    device: Device, model: TransformerSpec, question: FitQuestion, simulate: bool | None
) -> Fit:
    if question.cards > 1 and not linked(device):
        raise DescriptionError(
            f"{device.name} describes no link, which {question.cards} cards need;"
            " --set 'link={bandwidth: 32GB/s, latency: 10us}' describes one"
        )
    spec = question.spec(model).on_device(device, model)
    part = model_of_a_card(spec, model)
    routing = None if part.experts is None else Routing(part.experts, spec.routing, 0)
    room = device.capacity_bytes * spec.gpu_memory_utilization - activation_bytes(spec, part)
    room -= non_torch_bytes(spec)
    if part.weight_bytes >= room:
        taken, left = part.weight_bytes / 2**30, max(room, 0) / 2**30
        raise DescriptionError(
            f"the weights take {taken:,.1f} GiB of a card, which has {left:,.1f} for weights and KV"
        )
    layout = kv_region(device, part, spec)
    steps = StepModel(device, part, question.cards, routing=routing, groups=layout.groups)
    longest = question.prompt + question.output
    if longest > part.max_position:
        raise DescriptionError(
            f"{longest:,} tokens are more than the {part.max_position:,} of {model.name}"
        )
    needs = _allocator("paged", layout, question, 1).needs(
        np.array([question.prompt]), np.array([question.output])
    )
    held = min(layout.slots // int(needs[0]), spec.engine.sequence_cap)
    if part.state is not None:
        most = [longest] * spec.engine.sequence_cap
        held = Unified(part).held(layout.bytes, most).requests
    if not held:
        raise DescriptionError(
            f"the weights leave {layout.tokens_in(layout.slots):,} tokens of KV;"
            f" a request has {longest:,}" + (" and states" if part.state is not None else "")
        )
    sizes = question.prompt, question.output
    source, efficiency = efficiency_of(device, model, spec, sizes, held, simulate)
    if steps.tabled is not None:
        steps.tabled.scaled = source == "simulated"  # a bound is of no layout
    windowed = layout.groups is not None
    budget = spec.engine.token_budget(longest)

    def rates(of: StepModel) -> tuple[Rate, Rate, Rate]:
        return (
            decode_rate(of, 1, sizes, efficiency, windowed),
            decode_rate(of, held, sizes, efficiency, windowed),
            prefill_rate(of, question.prompt, budget, efficiency),
        )

    skewed = None
    if part.experts is not None and steps.tabled is None:
        routing = Routing(part.experts, RoutingSpec(skew=SKEW), 0)
        skewed = rates(
            StepModel(device, part, question.cards, routing=routing, groups=layout.groups)
        )
    own = rates(steps)
    beyond = frozenset() if steps.tabled is None else frozenset(steps.tabled.beyond)
    return Fit(
        device,
        model.stored_as(question.weights, question.kv),
        question,
        part,
        activation_bytes(spec, part),
        non_torch_bytes(spec),
        layout,
        held,
        spec.engine.sequence_cap,
        efficiency,
        source,
        *own,
        beyond,
        skewed,
    )


def linked(device: Device) -> bool:
    """Whether it has a link to other cards, described or over the host."""
    return device.accelerator is not None and device.accelerator.card_link is not None


def _changes(
    device: Device, model: TransformerSpec, question: FitQuestion
) -> Iterator[dict[str, Any]]:
    """What would make it fit: narrower weights, more cards, or both; one card without a link; else
    narrower KV, alone or with narrower weights."""
    alone = question.cards > 1 and not linked(device)
    cards = [1] if alone else [n for n in CARDS if n > question.cards]
    own = model.stored_as(question.weights, None)
    narrower: list[dict[str, Any]] = [
        {"weights": name}
        for name in NARROWER
        if model.stored_as(name, None).weight_bytes < own.weight_bytes
    ]
    more: list[dict[str, Any]] = [{"cards": n} for n in cards]
    both = [{**a, **b} for b in more for a in narrower]
    kv: list[dict[str, Any]] = []
    if (
        model.stored_as(None, NARROWER_KV).kv_token_bytes
        < model.stored_as(None, question.kv).kv_token_bytes
    ):
        kv = [{**change, "kv": NARROWER_KV} for change in ({}, *narrower)]
    for change in [*narrower, *more, *both, *kv]:
        try:
            _fit(device, model, question.model_copy(update=change), None)
        except DescriptionError:
            continue
        yield change


def _allocator(name: str, layout: KvLayout, question: FitQuestion, requests: int) -> Allocator:
    """An empty one, which has learnt nothing."""
    limits = Limits(question.limit, question.prompt + question.limit, step=1)
    return build(layout, requests, limits, POLICIES[name].Options(name=name))


def _held(name: str, found: Fit) -> tuple[int, int]:
    """Requests of exact prediction come until one is refused; those that store as they grow with
    all that they will store."""
    question = found.question
    demand = Demand(question.prompt, 0, Prediction(float(question.output)), output=question.output)
    stored = question.prompt + question.output - 1
    layout = found.layout
    if layout.groups is not None:  # what windows keep is the policy's
        policy = {"policy": POLICIES[name].Options(name=name)}
        spec = question.spec(found.model).on_device(found.device, found.model)
        layout = kv_region(found.device, found.part, spec.model_copy(update=policy))
    most = layout.slots // int(layout.slots_of(stored)) + 1
    allocator = _allocator(name, layout, question, most)
    if layout.groups is not None and allocator.able(OnDemand) is not None:  # windows full
        lengths = np.array([[question.prompt], [question.output]])
        each = int(allocator.needs(*lengths)[0])
        return each, layout.slots // each
    count = 0
    while count < len(allocator.stored) and allocator.reserve(count, demand, stored):
        count += 1
    return (int(allocator.reserved[0]) if count else 0), count
