"""The question that `bankwise size` and `bankwise.size` put, and its answer.

Each described device is asked for the largest load that it carries; then one of them for the least
bandwidth, by capacity and format of the weights. With a link: for the fewest replicas, prefill
apart and together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, Document, dotted, nearest
from hwmodel.description.files import steady
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import parse_assignment
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import PolicyOptions
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.serving_spec import ServingSpec
from sweeps.ask import pool_sizing as pools
from sweeps.ask.as_one import as_one
from sweeps.ask.fit import NARROWER
from sweeps.ask.pool_sizing import Apart, Both, PoolAsked
from sweeps.ask.sizing import (
    Asked,
    Target,
    answer,
    attained,
    closed_rate,
    confirmation,
    delivered,
    mean_output,
)
from sweeps.run.capacity import answered
from sweeps.run.progress import Progress

CAPACITIES = (0.5, 1, 2, 4)
"""Times the base device's own."""


class SizeQuestion(NamedTuple):
    """What is asked; names are shipped ones or paths."""

    model: str
    workload: str
    slo: str | None = None
    """`ttft=2s,tpot=100ms`; None: any latency will do."""
    rate: float | None = None
    """Requests/s, with `slo`; 1 by default."""
    tokens_per_s: float | None = None
    """Output tokens/s, instead."""
    users: int | None = None
    """Who each wait for an answer and then think for `think` seconds, instead; with `slo`."""
    think: float = 0.0
    device: str | None = None
    """Whose memory is varied; None: of the cheapest that meets it."""
    cards: int = 1
    devices: tuple[str, ...] = ()
    """Only these; none: all that ship."""
    weights: str | None = None
    kv: str | None = None
    policy: str = "paged"
    """A name, or options in YAML."""
    prices: tuple[str, ...] = ()
    """`DEVICE=AMOUNT`, of a card; as are `watts`."""
    watts: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    """Overrides of the devices, `dotted.path=value`."""


class Sized(NamedTuple):
    """What was asked and found. `loads`: of each device; `found`: of each of `asked`; a figure,
    None, or a sentence."""

    target: Target
    devices: dict[str, Device]
    loads: list[Any]
    base: Device | None = None
    asked: list[Asked] = []
    found: list[Any] = []
    prices: dict[str, float] = {}
    """Of a card, by device; devices that have none come last."""
    watts: dict[str, float] = {}
    """Of a card, by device; they decide where prices do not."""
    confirmed: tuple[float, list[float]] | None = None
    """A load of the base, requests/s, and what share attained it in each replication of a sweep;
    none where it has no load."""

    @property
    def formats(self) -> list[str]:
        """Of the weights: the one that was asked about, or the model's own and narrower ones."""
        model = self.target.model
        if self.target.weights is not None:
            return [self.target.weights]
        own = model.weight_bytes
        narrower = [f for f in NARROWER if model.stored_as(f, None).weight_bytes < own]
        return [model.weights, *narrower]

    @property
    def meeting(self) -> list[str]:
        """Devices that meet the target, the least price first, then the least power, then the least
        bandwidth x capacity."""
        loads = zip(self.devices.items(), self.loads, strict=True)
        good = [
            d for (_, d), load in loads if isinstance(load, float) and load >= self.target.per_s
        ]

        def costs(device: Device) -> tuple[float, float, float]:
            given = [each.get(device.name, math.inf) for each in (self.prices, self.watts)]
            return given[0], given[1], device.peak_gbps * device.capacity_bytes

        return [device.name for device in sorted(good, key=costs)]

    @property
    def cheapest(self) -> str | None:
        return next(iter(self.meeting), None)


class PoolSized(NamedTuple):
    """What was found; None: `MOST` replicas do not do. `least`: of each pool beside an ample one;
    `shares`: of the requests that attain the objective, in the order of `rows`."""

    asked: PoolAsked
    wanted: str
    """The load and the objective in words."""
    least: tuple[int | None, int | None]
    apart: Apart | None
    both: Both | None
    same: Both | None
    """As many replicas as `apart`, together."""
    shares: list[float]

    @property
    def rows(self) -> dict[str, Apart | Both]:
        """The arrangements that were run."""
        named = {"apart": self.apart, "together": self.both, "together, as many": self.same}
        return {name: each for name, each in named.items() if each is not None}


@steady
def sized(asked: SizeQuestion, workers: int, confirm: bool = False) -> Sized:
    """Which devices meet the load, and what of one would. confirm: with a sweep at the load that
    was found. Raises DescriptionError, CapacityFailed."""
    target = target_of(asked)
    if confirm and asked.slo is None:
        raise DescriptionError("needs --slo", "--confirm")
    base = None if asked.device is None else as_one(load_device(asked.device, asked.sets))
    wanted = list(asked.devices) or names("accelerators")
    asked_of = {each.name: each for each in (as_one(load_device(n, asked.sets)) for n in wanted)}
    if base is not None:
        asked_of.setdefault(base.name, base)
    prices = _amounts(asked.prices, asked_of, "--price")
    power = _amounts(asked.watts, asked_of, "--watts")
    loads = _answers("devices", [Asked("load", target, d) for d in asked_of.values()], workers,
                     answer)  # fmt: skip
    of = Sized(target, asked_of, loads, prices=prices, watts=power)
    if base is None:
        best = max(asked_of.values(), key=delivered).name
        base = of.devices[of.cheapest or best]
    of = _varied(of, base, workers)
    if not confirm:
        return of
    load = loads[list(asked_of).index(base.name)]
    if not isinstance(load, float):
        return of._replace(confirmed=(0.0, []))
    named = dict(zip(asked_of, wanted, strict=False)).get(base.name, asked.device or "")
    tasks = confirmation(
        Asked("load", target, base), named, asked.model, asked.workload, _dotted(asked.sets), load
    )
    shares = _answers(f"a sweep at {load:.3g}/s", tasks, workers, attained)
    return of._replace(confirmed=(load, shares))


def _varied(of: Sized, base: Device, workers: int) -> Sized:
    """The least bandwidth of a device by capacity and format, and the least gather ratio."""
    target = of.target
    frontier = [
        Asked("bandwidth", target, base, weights, round(share * base.capacity_bytes))
        for share in CAPACITIES
        for weights in of.formats
    ]
    scattered = of.formats if target.gathers else []
    asked = [*frontier, *(Asked("gather", target, base, weights) for weights in scattered)]
    found = _answers(f"{base.name}, least bandwidth and gather", asked, workers, answer)
    return of._replace(base=base, asked=asked, found=found)


def pooled(asked: SizeQuestion, link: str, workers: int) -> PoolSized:
    """The fewest replicas of a device, apart over a link and together. Raises DescriptionError,
    CapacityFailed."""
    if asked.device is None or asked.slo is None:
        raise DescriptionError("needs --device and --slo", "--pools")
    target = target_of(asked)
    load_device(asked.device, asked.sets)
    load_link(link)
    assert target.slo is not None
    described = {"device": asked.device, "device_set": _dotted(asked.sets), "model": asked.model}
    serving = {"policy": target.policy, "weights": target.weights, "kv": target.kv}
    mean = mean_output(target)
    of = PoolAsked(
        {**described, "workload": asked.workload}, serving, target.slo, target.per_s, mean, link,
        target.cards,
    )  # fmt: skip
    questions = [pools.Question(of, "both", chunk) for chunk in pools.CHUNKS]
    questions += [pools.Question(of, kind) for kind in ("prefill", "decode")]
    *both, prefill, decode = _answers("least replicas", questions, workers, pools.least)
    if words := next((each for each in (*both, prefill, decode) if isinstance(each, str)), None):
        raise DescriptionError(words, "--pools")
    done = [Both(n, chunk) for n, chunk in zip(both, pools.CHUNKS, strict=True) if n]
    together = min(done, default=None)
    apart = pools.fewest(of, prefill, decode) if prefill and decode else None
    same = None
    if apart is not None and together is not None and sum(apart) != together.replicas:
        same = together._replace(replicas=sum(apart))
    found = PoolSized(of, wanted(target, mean), (prefill, decode), apart, together, same, [])
    return found._replace(shares=[pools.share(of, each) for each in found.rows.values()])


def target_of(asked: SizeQuestion) -> Target:
    """What is to be served. Raises DescriptionError, with the option at fault."""
    _refuse(asked)
    objective = None if asked.slo is None else slo_of(asked.slo)
    spec = workload_document(asked.workload).build(WorkloadSpec)
    target = Target(load_model(asked.model), spec, objective, 0.0, asked.cards, asked.weights,
                    asked.kv, _policy(asked.policy, asked.model))  # fmt: skip
    target.model.stored_as(asked.weights, asked.kv)  # says which format is none
    mean = mean_output(target)
    if asked.users is not None and objective is not None:
        per_s, words = closed_rate(asked.users, asked.think, objective, mean)
        return target._replace(per_s=per_s, users=words)
    if (tokens := asked.tokens_per_s) is not None:
        return target._replace(per_s=tokens / mean if objective else tokens)
    return target._replace(per_s=asked.rate or 1.0)


def _refuse(asked: SizeQuestion) -> None:
    """Raise DescriptionError for options that do not go together, and numbers that are none."""
    rate, tokens = asked.rate, asked.tokens_per_s
    if asked.users is not None and (asked.slo is None or rate is not None or tokens is not None):
        raise DescriptionError("needs --slo, and neither --rate nor --tokens-per-s", "--users")
    if asked.think and asked.users is None:
        raise DescriptionError("needs --users", "--think")
    if not 0 <= asked.think < math.inf:
        raise DescriptionError(f"expected 0 or more seconds; got {asked.think:g}", "--think")
    if (asked.slo is None) == (tokens is None) and (asked.slo is None or rate is not None):
        raise DescriptionError("expected --slo, --tokens-per-s, or both instead of --rate", "size")
    for option, value in (("--rate", rate), ("--tokens-per-s", tokens), ("--cards", asked.cards),
                          ("--users", asked.users)):  # fmt: skip
        if value is not None and not 0 < value < math.inf:
            raise DescriptionError(f"expected more than 0; got {value:g}", option)
    if asked.slo is None and rate is not None:
        raise DescriptionError("needs --slo", "--rate")


def slo_of(text: str) -> Slo:
    """`ttft=2s,tpot=100ms,attainment=0.95`. Raises DescriptionError."""
    if not isinstance(text, str):
        raise DescriptionError(f"expected ttft=2s,tpot=100ms; got {text!r}", "--slo")
    pairs = (parse_assignment(part) for part in text.split(","))
    return Document({str(path[0]): value for path, value in pairs}, "--slo").build(Slo)


def wanted(target: Target, mean: float) -> str:
    """The load and the objective in words."""
    if target.slo is None:
        return f"{target.model.name}: {target.per_s:,.0f} output tokens/s, at any latency."
    slo = target.slo
    return (
        f"{target.model.name}: {target.per_s:,.3g} requests/s ({target.per_s * mean:,.0f} output"
        f" tokens/s), first token within {slo.ttft / 1e9:g} s and then {slo.tpot / 1e6:g} ms a"
        f" token for {slo.attainment:.0%} of requests." + f" {target.users}" * bool(target.users)
    )


def _policy(text: str, model: str) -> PolicyOptions:
    """The options of a policy by its name, or in YAML."""
    _, value = parse_assignment(f"policy={text}")
    chosen = {"name": value} if isinstance(value, str) else value
    return Document({"model": model, "policy": chosen}, "--policy").build(ServingSpec).policy


def _dotted(sets: Iterable[str]) -> dict[str, Any]:
    """Overrides as a sweep has them."""
    return {dotted(path): value for path, value in map(parse_assignment, sets)}


def _amounts(given: Iterable[str], devices: Iterable[str], option: str) -> dict[str, float]:
    """Of a card, by device."""
    found = {}
    for each in given:
        name, _, amount = each.partition("=")
        if name not in (known := list(devices)):
            raise DescriptionError(f"no device {name!r} is asked about; {nearest(name, known)}",
                                   option)  # fmt: skip
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < float("inf"):
            raise DescriptionError(f"expected NAME=AMOUNT, above 0; got {each!r}", option)
    return found


def _answers(stage: str, asked: list[Any], workers: int, answer: Callable[[Any], Any]) -> list[Any]:
    """A figure each, None, or in words why the question has no answer."""
    found: list[Any] = [None] * len(asked)
    with Progress().stage(stage, len(asked)) as step:
        for index, value in answered(answer, asked, workers):
            found[index] = value
            step()
    return found
