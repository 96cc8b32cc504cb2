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
from sweeps.ask.pool_sizing import Both, PoolAsked, SidesApart
from sweeps.ask.sizing import answer, answer_where_it_fits, attained, confirmation, with_users
from sweeps.ask.sizing_runs import SizingQuestion, SizingRun, Target, delivered, mean_output
from sweeps.run.capacity import answered
from sweeps.run.progress import Progress

CAPACITIES = (0.5, 1, 2, 4)
"""Times the base device's own."""
PATIENT = "1000000s"
_PATIENT_NS = 1e15
"""The longest wait for a first token, where an objective names none."""


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
    at_once: bool = False
    """Whether it is asked how many requests are served at once within `slo`, instead of a load."""
    device: str | None = None
    """Whose memory is varied; None: of the cheapest that meets it."""
    cards: int | None = None
    """That share the model; None: the fewest of 1, 2, 4 and 8 that hold it."""
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


class SizedDevice(NamedTuple):
    """Of a device: what a replica carries and how many carry the target."""

    cards: int
    """Of a replica."""
    load: float | None
    """The largest of a replica; None: none attains the objective."""
    replicas: int | None = None
    """The fewest that carry the target; None: none do."""
    runs: tuple[SizingRun, ...] = ()
    """With the most users: what became of them on requests that no search has seen."""


class Sized(NamedTuple):
    """What was asked and found. `loads`: of each device, or why there is none; `found`: of each of
    `asked`; a figure, None, or a sentence."""

    target: Target
    devices: dict[str, Device]
    loads: dict[str, SizedDevice | str]
    base: Device | None = None
    asked: list[SizingQuestion] = []
    found: list[Any] = []
    prices: dict[str, float] = {}
    """Of a card, by device; devices that have none come last."""
    watts: dict[str, float] = {}
    """Of a card, by device; they decide where prices do not."""
    confirmed: tuple[float, list[float]] | None = None
    """A load of the base, and what share attained it in each replication of a sweep; none where it
    has no load."""

    @property
    def formats(self) -> list[str]:
        """Of the weights: the one that was asked about, or the model's own and narrower ones."""
        model = self.target.model
        if self.target.weights is not None:
            return [self.target.weights]
        own = model.weight_bytes
        narrower = [f for f in NARROWER if model.stored_as(f, None).weight_bytes < own]
        return [model.weights, *narrower]

    def fleet(self, name: str) -> int:
        """Cards of the fewest replicas that meet the target; 0: none do."""
        found = self.loads[name]
        return 0 if isinstance(found, str) else (found.replicas or 0) * found.cards

    @property
    def meeting(self) -> list[str]:
        """Devices of which some replicas meet the target, the least price of all their cards first,
        then the least power, then the least bandwidth x capacity."""

        def costs(name: str) -> tuple[float, float, float]:
            cards, device = self.fleet(name), self.devices[name]
            given = [cards * each.get(name, math.inf) for each in (self.prices, self.watts)]
            return given[0], given[1], cards * device.peak_gbps * device.capacity_bytes

        return sorted(filter(self.fleet, self.devices), key=costs)

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
    apart: SidesApart | None
    both: Both | None
    same: Both | None
    """As many replicas as `apart`, together."""
    shares: list[float]

    @property
    def rows(self) -> dict[str, SidesApart | Both]:
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
    of = Sized(target, asked_of, _loads(target, asked_of, workers), prices=prices, watts=power)
    if base is None:
        alone = (name for name in of.meeting if of.fleet(name) == 1)
        best = max(asked_of.values(), key=delivered).name
        base = of.devices[next(alone, of.cheapest or best)]
    of = of._replace(base=base) if target.at_once else _varied(of, base, workers)
    if not confirm:
        return of
    found = of.loads[base.name]
    if isinstance(found, str) or found.load is None:
        return of._replace(confirmed=(0.0, []))
    named = dict(zip(asked_of, wanted, strict=False)).get(base.name, asked.device or "")
    tasks = confirmation(
        SizingQuestion("load", target._replace(cards=found.cards), base), named, asked.model,
        asked.workload, _dotted(asked.sets), found.load,
    )  # fmt: skip
    shares = _answers(f"a sweep at {found.load:.3g}", tasks, workers, attained)
    return of._replace(confirmed=(found.load, shares))


def _loads(
    target: Target, devices: dict[str, Device], workers: int
) -> dict[str, SizedDevice | str]:
    """What each device carries, and how many replicas of it carry the target."""
    asked = [SizingQuestion("load", target, device) for device in devices.values()]
    loads = _answers("devices", asked, workers, answer_where_it_fits)
    pairs = zip(devices, loads, strict=True)
    found = {name: each if isinstance(each, str) else SizedDevice(*each) for name, each in pairs}
    some = {
        name: each for name, each in found.items() if isinstance(each, SizedDevice) and each.load
    }
    fleets, loops = [], []
    for name, each in some.items():
        of = SizingQuestion("load", target._replace(cards=each.cards), devices[name])
        assert each.load is not None
        fleets.append(of._replace(what="replicas", guess=math.ceil(target.load / each.load)))
        loops.append((of, each.load))
    if not target.at_once:
        numbers = _answers("replicas", fleets, workers, answer)
        for (name, each), number in zip(some.items(), numbers, strict=True):
            found[name] = each._replace(replicas=None if number is None else int(number))
    if target.think_s is not None:
        for name, runs in zip(some, _answers("users", loops, workers, with_users), strict=True):
            now = found[name]
            found[name] = now if isinstance(now, str) else now._replace(runs=tuple(runs))
    return found


def _varied(of: Sized, base: Device, workers: int) -> Sized:
    """The least bandwidth of a device by capacity and format, and the least gather ratio; users
    think for times that are drawn."""
    found = of.loads.get(base.name)
    target = of.target._replace(
        cards=found.cards if isinstance(found, SizedDevice) else of.target.cards, drawn=True
    )
    frontier = [
        SizingQuestion("bandwidth", target, base, weights, round(share * base.capacity_bytes))
        for share in CAPACITIES
        for weights in of.formats
    ]
    scattered = of.formats if target.gathers else []
    asked = [*frontier, *(SizingQuestion("gather", target, base, weights) for weights in scattered)]
    answers = _answers(f"{base.name}, least bandwidth and gather", asked, workers, answer)
    return of._replace(base=base, asked=asked, found=answers)


def pooled(asked: SizeQuestion, link: str, workers: int) -> PoolSized:
    """The fewest replicas of a device, apart over a link and together. Raises DescriptionError,
    CapacityFailed."""
    if asked.device is None or asked.slo is None:
        raise DescriptionError("needs --device and --slo", "--pools")
    if asked.users is not None or asked.at_once:
        raise DescriptionError("needs --rate", "--pools")
    target = target_of(asked)
    load_device(asked.device, asked.sets)
    load_link(link)
    assert target.slo is not None
    described = {"device": asked.device, "device_set": _dotted(asked.sets), "model": asked.model}
    serving = {"policy": target.policy, "weights": target.weights, "kv": target.kv}
    mean = mean_output(target)
    of = PoolAsked(
        {**described, "workload": asked.workload}, serving, target.slo, target.load, mean, link,
        asked.cards or 1,
    )  # fmt: skip
    questions = [pools.ReplicaCount(of, "both", chunk) for chunk in pools.CHUNKS]
    questions += [pools.ReplicaCount(of, kind) for kind in ("prefill", "decode")]
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
    objective = None if asked.slo is None else slo_of(asked.slo, patient=asked.at_once)
    spec = workload_document(asked.workload).build(WorkloadSpec)
    target = Target(load_model(asked.model), spec, objective, 0.0, asked.cards, asked.weights,
                    asked.kv, _policy(asked.policy, asked.model))  # fmt: skip
    target.model.stored_as(asked.weights, asked.kv)  # says which format is none
    mean = mean_output(target)
    if asked.at_once:
        return target._replace(load=1.0, think_s=0.0, at_once=True)
    if asked.users is not None:
        return target._replace(load=float(asked.users), think_s=asked.think)
    if (tokens := asked.tokens_per_s) is not None:
        return target._replace(load=tokens / mean if objective else tokens)
    return target._replace(load=asked.rate or 1.0)


def _refuse(asked: SizeQuestion) -> None:
    """Raise DescriptionError for options that do not go together, and numbers that are none."""
    rate, tokens = asked.rate, asked.tokens_per_s
    if asked.users is not None and (asked.slo is None or rate is not None or tokens is not None):
        raise DescriptionError("needs --slo, and neither --rate nor --tokens-per-s", "--users")
    if asked.at_once and (asked.slo is None or any(
        given is not None for given in (rate, tokens, asked.users)
    )):  # fmt: skip
        raise DescriptionError("needs --slo, and no load", "--at-once")
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


def slo_of(text: str, patient: bool = False) -> Slo:
    """`ttft=2s,tpot=100ms,attainment=0.95`; patient: it may leave out the first. Raises
    DescriptionError."""
    if not isinstance(text, str):
        raise DescriptionError(f"expected ttft=2s,tpot=100ms; got {text!r}", "--slo")
    pairs = (parse_assignment(part) for part in text.split(","))
    given = {str(path[0]): value for path, value in pairs}
    return Document({"ttft": PATIENT, **given} if patient else given, "--slo").build(Slo)


def wanted(target: Target, mean: float) -> str:
    """The load and the objective in words."""
    name, slo = target.model.name, target.slo
    if slo is None:
        return f"{name}: {target.load:,.0f} output tokens/s, at any latency."
    if target.at_once:
        load = f"{name}: as many requests at once as"
    elif target.think_s is not None:
        load = f"{name}: {target.load:,.0f} users who each think {target.think_s:g} s,"
    else:
        load = f"{name}: {target.load:,.3g} requests/s ({target.load * mean:,.0f} output tokens/s),"
    first = f"first token within {slo.ttft / 1e9:g} s and then "
    first *= slo.ttft < _PATIENT_NS
    allow = "allow " * target.at_once
    return (
        f"{load} {allow}{first}{slo.tpot / 1e6:g} ms a token for {slo.attainment:.0%} of requests."
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
