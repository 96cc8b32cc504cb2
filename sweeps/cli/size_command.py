"""`bankwise size`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.cli.options import Jobs, Json, Plugin, Set, mistake, slo_of

if TYPE_CHECKING:
    from policies.allocators.allocator import PolicyOptions
    from sweeps.ask.sizing import Target
    from sweeps.report.pool_size_sheet import PoolSized
    from sweeps.report.size_sheet import Sized


CAPACITIES = (0.5, 1, 2, 4)
"""Times the base device's own."""


def size(
    model: Annotated[str, typer.Option(help="A shipped model, or a YAML file.")],
    workload: Annotated[str, typer.Option(help="A shipped workload, a YAML file, or a trace.")],
    slo: Annotated[
        str | None, typer.Option(metavar="ttft=2s,tpot=100ms", help="What 9 of 10 requests attain.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, with --slo; 1 by default.")
    ] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option("--tokens-per-s", help="Output tokens a second, instead.")
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Users who each wait for an answer, instead; with --slo.")
    ] = None,
    think: Annotated[
        float, typer.Option(help="Seconds from an answer to the user's next request.")
    ] = 0.0,
    device: Annotated[
        str | None, typer.Option(help="Whose memory is varied; the cheapest that meets it.")
    ] = None,
    cards: Annotated[int, typer.Option(help="Cards that share the model.")] = 1,
    devices: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these; all by default.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Only this format of the weights.")] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV; the model's own.")] = None,
    policy: Annotated[
        str, typer.Option(help="A KV policy, or {name: paged, block: 64}.")
    ] = "paged",
    price: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Of a card; repeatable.")
    ] = None,
    watts: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Of a card; repeatable.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Run a sweep at the load that was found.")
    ] = False,
    pools: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="Instead: replicas of --device, prefill apart."),
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Find which device, bandwidth, capacity and weights meet an objective.

    Each described device, then the least bandwidth of one by capacity and format of the weights.
    With --pools the fewest replicas of one, prefill and decode apart over a link, and together.
    """
    from sweeps.report.pool_size_sheet import pool_record, pool_sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.size_sheet import record, sheet

    if pools is not None:
        if device is None or slo is None:
            raise mistake("needs --device and --slo", "--pools")
        for option, given in (("--devices", devices), ("--price", price), ("--watts", watts),
                              ("--confirm", confirm)):  # fmt: skip
            if given:
                raise mistake("not with --pools", option)
        target = _target(model, workload, slo, rate, tokens_per_s, cards, users, think, weights,
                         kv, policy)  # fmt: skip
        sized_pools = pooled(target, device, model, workload, pools, overrides or [], jobs)
        print_json(pool_record(sized_pools)) if json else print_section(pool_sheet(sized_pools))
        return
    found = sized(
        model, workload, slo, rate, tokens_per_s, device, cards,
        devices.split(",") if devices else (), weights, kv, price or (), overrides or (), jobs,
        users, think, policy, watts or (), confirm,
    )  # fmt: skip
    print_json(record(found)) if json else print_section(sheet(found))


def sized(
    model: str, workload: str, slo: str | None = None, rate: float | None = None,
    tokens_per_s: float | None = None, device: str | None = None, cards: int = 1,
    devices: Iterable[str] = (), weights: str | None = None, kv: str | None = None,
    price: Iterable[str] = (), overrides: Iterable[str] = (), jobs: int | None = None,
    users: int | None = None, think: float = 0.0, policy: str = "paged",
    watts: Iterable[str] = (), confirm: bool = False,
) -> Sized:  # fmt: skip
    """What `size` answers. Raises DescriptionError, CapacityFailed."""
    from hwmodel.description.library import names
    from hwmodel.specs.device import load_device
    from sweeps.ask.sizing import Asked, answer, attained, confirmation, delivered
    from sweeps.report.size_sheet import Sized
    from sweeps.run.executor import worker_count

    sets = list(overrides)
    target = _target(model, workload, slo, rate, tokens_per_s, cards, users, think, weights, kv,
                     policy)  # fmt: skip
    if confirm and slo is None:
        raise mistake("needs --slo", "--confirm")
    base = None if device is None else load_device(device, sets)
    workers = worker_count(jobs)
    wanted = list(devices) or names("accelerators")
    asked_of = {each.name: each for each in (load_device(n, sets) for n in wanted)}
    if base is not None:
        asked_of.setdefault(base.name, base)
    prices = _amounts(price, asked_of, "--price")
    power = _amounts(watts, asked_of, "--watts")
    loads = _answers("devices", [Asked("load", target, d) for d in asked_of.values()], workers,
                     answer)  # fmt: skip
    of = Sized(target, asked_of, loads, prices=prices, watts=power)
    if base is None:
        best = max(asked_of.values(), key=delivered).name
        base = of.devices[of.cheapest or best]
    frontier = [
        Asked("bandwidth", target, base, weights, round(share * base.capacity_bytes))
        for share in CAPACITIES
        for weights in of.formats
    ]
    scattered = of.formats if target.gathers else []
    asked = [*frontier, *(Asked("gather", target, base, weights) for weights in scattered)]
    found = _answers(f"{base.name}, least bandwidth and gather", asked, workers, answer)
    of = of._replace(base=base, asked=asked, found=found)
    load = loads[list(asked_of).index(base.name)]
    if not confirm:
        return of
    if not isinstance(load, float):
        return of._replace(confirmed=(0.0, []))
    named = dict(zip(asked_of, wanted, strict=False)).get(base.name, device or "")
    asks = Asked("load", target, base)
    tasks = confirmation(asks, named, model, workload, _dotted(sets), load)
    shares = _answers(f"a sweep at {load:.3g}/s", tasks, workers, attained)
    return of._replace(confirmed=(load, shares))


def pooled(
    target: Target, device: str, model: str, workload: str, link: str, sets: list[str],
    jobs: int | None,
) -> PoolSized:  # fmt: skip
    """The fewest replicas of a device, apart and together. Raises DescriptionError,
    CapacityFailed."""
    from hwmodel.specs.device import load_device
    from hwmodel.specs.link import load_link
    from sweeps.ask import pool_sizing as ask
    from sweeps.ask.sizing import mean_output
    from sweeps.report.pool_size_sheet import PoolSized
    from sweeps.report.size_sheet import wanted
    from sweeps.run.executor import worker_count

    load_device(device, sets)
    load_link(link)
    assert target.slo is not None
    described = {"device": device, "device_set": _dotted(sets), "model": model}
    serving = {"policy": target.policy, "weights": target.weights, "kv": target.kv}
    mean = mean_output(target)
    asked = ask.PoolAsked(
        {**described, "workload": workload}, serving, target.slo, target.per_s, mean, link,
        target.cards,
    )  # fmt: skip
    workers = worker_count(jobs)
    questions = [ask.Question(asked, "both", chunk) for chunk in ask.CHUNKS]
    questions += [ask.Question(asked, of) for of in ("prefill", "decode")]
    *both, prefill, decode = _answers("least replicas", questions, workers, ask.least)
    if words := next((each for each in (*both, prefill, decode) if isinstance(each, str)), None):
        raise mistake(words, "--pools")
    done = [ask.Both(n, chunk) for n, chunk in zip(both, ask.CHUNKS, strict=True) if n]
    together = min(done, default=None)
    apart = ask.fewest(asked, prefill, decode) if prefill and decode else None
    same = None
    if apart is not None and together is not None and sum(apart) != together.replicas:
        same = together._replace(replicas=sum(apart))
    found = PoolSized(asked, wanted(target, mean), (prefill, decode), apart, together, same, [])
    return found._replace(shares=[ask.share(asked, each) for each in found.rows.values()])


def _policy(text: str, model: str) -> PolicyOptions:
    """The options of a policy by its name, or in YAML."""
    from hwmodel.description.description import Document
    from hwmodel.description.yaml_reader import parse_assignment
    from policies.serving.serving_spec import ServingSpec

    _, value = parse_assignment(f"policy={text}")
    chosen = {"name": value} if isinstance(value, str) else value
    return Document({"model": model, "policy": chosen}, "--policy").build(ServingSpec).policy


def _dotted(sets: list[str]) -> dict[str, Any]:
    """Overrides as a sweep has them."""
    from hwmodel.description.description import dotted
    from hwmodel.description.yaml_reader import parse_assignment

    return {dotted(path): value for path, value in map(parse_assignment, sets)}


def _amounts(given: Iterable[str], devices: Iterable[str], option: str) -> dict[str, float]:
    """Of a card, by device."""
    from hwmodel.description.description import DescriptionError, nearest

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


def _target(
    model: str, workload: str, slo: str | None, rate: float | None, tokens_per_s: float | None,
    cards: int, users: int | None, think: float, weights: str | None, kv: str | None, policy: str,
) -> Target:  # fmt: skip
    from hwmodel.description.description import DescriptionError
    from hwmodel.specs.transformer import load_model
    from policies.requests.workload import WorkloadSpec, workload_document
    from sweeps.ask.sizing import Target, closed_rate, mean_output

    if users is not None and (slo is None or rate is not None or tokens_per_s is not None):
        raise DescriptionError("needs --slo, and neither --rate nor --tokens-per-s", "--users")
    if think and users is None:
        raise DescriptionError("needs --users", "--think")
    if not 0 <= think < float("inf"):
        raise DescriptionError(f"expected 0 or more seconds; got {think:g}", "--think")
    if (slo is None) == (tokens_per_s is None) and (slo is None or rate is not None):
        raise DescriptionError("expected --slo, --tokens-per-s, or both instead of --rate", "size")
    for option, value in (("--rate", rate), ("--tokens-per-s", tokens_per_s), ("--cards", cards),
                          ("--users", users)):  # fmt: skip
        if value is not None and not 0 < value < float("inf"):
            raise DescriptionError(f"expected more than 0; got {value:g}", option)
    objective = None
    if slo is not None:
        objective = slo_of(slo)
    elif rate is not None:
        raise DescriptionError("needs --slo", "--rate")
    spec = workload_document(workload).build(WorkloadSpec)
    target = Target(load_model(model), spec, objective, 0.0, cards, weights, kv,
                    _policy(policy, model))  # fmt: skip
    target.model.stored_as(weights, kv)  # says which format is none
    mean = mean_output(target)
    if users is not None and objective is not None:
        per_s, words = closed_rate(users, think, objective, mean)
        return target._replace(per_s=per_s, users=words)
    if tokens_per_s is not None:
        return target._replace(per_s=tokens_per_s / mean if objective else tokens_per_s)
    return target._replace(per_s=rate or 1.0)


def _answers(stage: str, asked: list[Any], workers: int, answer: Callable[[Any], Any]) -> list[Any]:
    """A figure each, None, or in words why the question has no answer."""
    from sweeps.run.capacity import answered
    from sweeps.run.progress import Progress

    found: list[Any] = [None] * len(asked)
    with Progress().stage(stage, len(asked)) as step:
        for index, value in answered(answer, asked, workers):
            found[index] = value
            step()
    return found
