"""Every feature of serving, small enough to be served in a moment, and what shows that it is there.

A pair counts as running if both leave their trace in one run: a recorded quantity of each that is
not zero, and a run that differs from the run without it (a log is there to change nothing). Every
run is audited (`bankwise.conservation`), and a breach is a failure.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from bankwise.conservation import Auditor, watched_links
from hwmodel.description.description import DescriptionError
from hwmodel.description.files import steady
from hwmodel.description.library import find
from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.mlp import ExpertsSpec
from hwmodel.specs.state import StateLayers
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.registry import POLICIES
from policies.requests.requests import Requests
from policies.serving.recorder import Recorder
from policies.serving.serving import ServingResult, serve
from policies.serving.simulation import Watcher
from sweeps.run.sweep_run import apart as without_walls
from tests.policies.serving.test_moving import SHAPE
from tests.policies.small import FakeMemory, spec

LINK = "mooncake-rdma-400"
COUNT = 48
SIDES = ("prefill", "decode")


def stream() -> Requests:
    """Requests that come fast enough to fill a card of 2,048 tokens, some of them at once."""
    rng = np.random.default_rng(3)
    return Requests(
        np.cumsum(rng.exponential(1 / 4000, COUNT)),
        np.clip(rng.lognormal(5.0, 0.6, COUNT), 40, 400).astype(np.int64),
        np.clip(rng.lognormal(4.0, 0.8, COUNT), 4, 300).astype(np.int64),
    )


def few(given: Requests) -> Requests:
    """Half of them, where each step is simulated."""
    return given.take(np.arange(len(given) // 2))


def prefixes(given: Requests) -> Requests:
    """Behind one of two system prompts of 96 tokens, all turns of a session behind the same."""
    talk = np.where(given.session < 0, np.arange(len(given)), given.session)
    return dataclasses.replace(
        given, prompt_tokens=given.prompt_tokens + 96, prefix_id=talk % 2,
        prefix_tokens=np.full(len(given), 96),
    )  # fmt: skip


def sessions(given: Requests) -> Requests:
    """Twelve sessions of four turns, each of which begins with all of the one before."""
    turn, session = np.arange(len(given)) % 4, np.arange(len(given)) // 4
    made = np.clip(given.output_tokens, 4, 60)
    fresh = np.clip(given.prompt_tokens, 40, 90)
    whole = np.zeros(len(given), np.int64)
    for at in range(len(given)):
        whole[at] = fresh[at] + (whole[at - 1] + made[at - 1] if turn[at] else 0)
    return dataclasses.replace(
        given, arrival_s=np.zeros(len(given)), prompt_tokens=whole, output_tokens=made,
        session=session, context=session, think_s=np.where(turn > 0, 0.004, np.nan),
    )  # fmt: skip


def closed(given: Requests) -> Requests:
    """Sixteen clients, each of which sends when it is answered; one with sessions goes on with
    another when one is over."""
    if (given.session >= 0).any():
        first = given.turn_before < 0
        begins = np.where(np.cumsum(first) <= 6, np.nan, 0.002)
        return dataclasses.replace(given, think_s=np.where(first, begins, given.think_s))
    think_s = np.where(np.arange(len(given)) < 16, np.nan, 0.002)
    alone = np.full(len(given), -1)
    return dataclasses.replace(
        given, arrival_s=np.zeros(len(given)), think_s=think_s, session=alone, context=alone
    )


def samples(given: Requests) -> Requests:
    """Every third request draws two answers of one prompt."""
    many = 1 + (np.arange(len(given)) % 3 == 0)
    return dataclasses.replace(
        given, samples=many, output_tokens=np.minimum(given.output_tokens, 120)
    )


def beams(given: Requests) -> Requests:
    """Every third request searches with two beams."""
    several = samples(given)
    return dataclasses.replace(several, forks=np.where(several.samples > 1, 0.2, 0.0))


WINDOWS = {"window": AttentionWindow(tokens=64, pattern=["window", "full"])}
TWO_WINDOWS = {"window": AttentionWindow(tokens=64, pattern=["window", 160, "full", "window"])}
EXPERTS = {"experts": ExpertsSpec(count=16, per_token=2, intermediate=64)}
HYBRID = {
    "state": StateLayers(
        kind="gated_delta", pattern=["state", "full"], heads=4, head_dim=16, key_heads=4,
        key_dim=16,
    )
}  # fmt: skip


class Feature(NamedTuple):
    """`kind`: features of one kind exclude each other by being choices. `changes`: of the serving
    description. `shown(metrics)`: a quantity that is not zero where it is at work."""

    kind: str
    changes: dict[str, Any]
    shown: Callable[[dict[str, Any]], float]
    stream: Callable[[Requests], Requests] | None = None
    model: dict[str, Any] = {}
    tokens: int | None = None
    """Slots of a card, where it needs other than 2,048."""


def figure(*path: str) -> Callable[[dict[str, Any]], float]:
    """The number at a path of the metrics; 0 where there is none."""

    def shown(metrics: dict[str, Any]) -> float:
        found: Any = metrics
        for key in path:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return float(found) if isinstance(found, int | float) else 0.0

    return shown


def always(metrics: dict[str, Any]) -> float:
    return float(metrics["steps"])


def both_cards(metrics: dict[str, Any]) -> float:
    if "pools" in metrics:
        return float(min(metrics["pools"][side]["busy_s"]["least"] for side in SIDES))
    cards = metrics["node"]["cards"] if "node" in metrics else [{"requests": 0}]
    return float(min(card["requests"] for card in cards))


def read_of(phase: str) -> Callable[[dict[str, Any]], float]:
    """What a phase reads in a memory beside the main one."""
    places = ((), ("pools", "prefill"), ("pools", "decode"))

    def read(metrics: dict[str, Any]) -> float:
        return sum(figure(*place, "memory", "read", phase, "far")(metrics) for place in places)

    return read


read_far = read_of("attention")


def _policy(name: str, **options: Any) -> Feature:
    return Feature("allocator", {"policy": {"name": name, **options}}, always)


def _router(name: str) -> Feature:
    return Feature("router", {"cluster": {"cards": 2, "placement": name}}, both_cards)


TIERS = {"host": {"link": "nvme-pcie4", "cpu_bytes_to_use": "64MiB"}}


FEATURES: dict[str, Feature] = {
    **{name: _policy(name) for name in ("static", "odma", "odma-best", "s3", "orca", "oracle")},
    "ideal": _policy("ideal"),
    "vattention": _policy("vattention", frame="4KiB"),
    "radix": _policy("radix"),
    "engine v0": Feature("engine", {"engine": {"name": "v0"}}, always),
    "swap": Feature(
        "engine",  # lengths are guessed, so that reservations are outgrown
        {"engine": {"name": "v0", "preemption": "swap"}, "predictor": {
            "kind": "lognormal", "sigma": 1.0}},
        figure("swapped_tokens"), tokens=1024,
    ),
    "engine sglang": Feature("engine", {"engine": {"name": "sglang"}}, always),
    "async scheduling": Feature("engine", {"engine": {"async_scheduling": True}}, always),
    "prefixes": Feature("requests", {}, figure("cached_tokens"), prefixes),
    "sessions": Feature("requests", {}, always, sessions),
    "closed loop": Feature("requests", {}, always, closed),
    "samples": Feature("requests", {}, always, samples),
    "beams": Feature("requests", {}, figure("copied_tokens"), beams),
    "TP2": Feature("split", {"tensor_parallel": 2}, figure("phase_share", "all_reduce")),
    "stages": Feature("stages", {"cluster": {"stages": 2}}, figure("pipeline", "stages")),
    **{
        name: _router(name)
        for name in ("round_robin", "least_requests", "pressure", "prefix", "session",
                     "least_kv", "kv_aware")
    },
    "faults": Feature(
        "faults", {"faults": [{"mean_up_s": 0.09, "down_s": 0.002}]},
        lambda m: figure("node", "failures")(m) + figure("pools", "failures", "replicas")(m),
    ),
    "tier": Feature("tiers", {"tiers": TIERS}, figure("tiers", "store", "transfers")),
    "drive": Feature(
        "tiers", {"tiers": {**TIERS, "ssd": {"bytes": "256MiB"}}},
        figure("tiers", "write", "transfers"),
    ),
    "hcache": Feature(
        "tiers", {"tiers": {"host": {**TIERS["host"], "hcache": {}}}},
        figure("tiers", "store", "transfers"),
    ),
    "pauses": Feature(
        "tiers", {"tiers": {**TIERS, "pauses": {"policy": "swap"}}},
        figure("tiers", "pauses", "swap"), sessions,
    ),
    "pools": Feature(
        "pools", {"pools": {"prefill": {}, "decode": {}, "link": LINK}},
        figure("pools", "transfers", "count"),
    ),
    "pools, decode TP2": Feature(
        "pools", {"pools": {"prefill": {}, "decode": {"tensor_parallel": 2}, "link": LINK}},
        figure("pools", "transfers", "count"),
    ),
    "pools, decode in int8": Feature(
        "pools", {"pools": {"prefill": {}, "decode": {"kv": "int8"}, "link": LINK}},
        figure("pools", "transfers", "count"),
    ),
    "pools, unlike cards": Feature(
        "pools", {"pools": {"prefill": {}, "decode": {
            "device": "h100-sxm", "kv_tokens": 2048}, "link": LINK}},
        figure("pools", "transfers", "count"),
    ),
    "dropping": Feature(
        "dropping", {"cluster": {"cards": 2, "dropping": {
            "link": LINK, "every_s": 0.002, "frame": "64KiB"}}},
        lambda m: sum(figure(of, "dropping", "drops")(m) for of in ("node", "pools")), tokens=1536,
    ),
    "migration": Feature(
        "migration", {"cluster": {"cards": 2, "migration": {
            "link": LINK, "every_s": 0.002, "last_blocks": 3, "freeness": 16}}},
        lambda m: sum(figure(of, "migration", "moved")(m) for of in ("node", "pools")),
    ),
    "lending": Feature(
        "lending", {"cluster": {"cards": 2, "lending": {"link": LINK, "every_s": 0.002}}},
        lambda m: sum(figure(of, "lending", "lent_tokens")(m) for of in ("node", "pools")),
        tokens=1024,
    ),
    "drafts": Feature(
        "drafts", {"speculation": {
            "method": "ngram", "tokens": 2, "acceptance": [0.7, 0.4]}},
        figure("speculation", "accepted"),
    ),
    "states": Feature("model", {}, always, model=HYBRID),
    "windows": Feature("model", {}, always, model=WINDOWS),
    "windows of two lengths": Feature("model", {}, always, model=TWO_WINDOWS, tokens=1024),
    "experts placed": Feature(
        "split", {"expert_parallel": "linear", "tensor_parallel": 2},
        figure("phase_share", "all_reduce"), model=EXPERTS,
    ),
    "KV of int8": Feature("format", {"kv": "int8"}, always),
    "KV of oaken": Feature("format", {"kv": "oaken", "kv_layout": "layer_kv_head_block"}, always),
    "sampled memory": Feature(
        "memory", {"memory": {"fidelity": "sampled", "every_steps": 40, "probe_bytes": "64KiB"}},
        figure("memory", "probes"),
    ),
    "full memory": Feature(
        "memory", {"memory": {"fidelity": "full"}}, figure("memory", "probes"), few
    ),
    "KV in another memory": Feature(
        "memories", {"memories": {"kv": "far"}}, read_far
    ),
    "interleaved memories": Feature(
        "memories", {"memories": {"name": "interleaved"}}, read_far
    ),
    "KV by head": Feature(
        "memories",
        {"memories": {"name": "by_head", "kv": "far"}, "kv_layout": "layer_kv_token"}, read_far,
    ),
    "KV by request": Feature(
        "memories", {"memories": {"name": "by_request", "kv": "far"}}, read_far
    ),
    "experts by heat": Feature(
        "memories", {"memories": {"name": "by_heat", "experts": "far"}},
        read_of("weights"), model=EXPERTS,
    ),
    "logs": Feature("logs", {}, always),
}  # fmt: skip
"""By name. What a run has beside it: `paged` under v1, one card."""


LENDING: dict[str, dict[str, Any]] = {
    "v1": {"max_num_batched_tokens": 256, "max_num_seqs": 64},
    "v0": {"chunked_prefill": True, "max_num_batched_tokens": 256, "max_num_seqs": 64},
}
"""Steps small enough that a request waits while its KV grows elsewhere, by engine."""


WINDOWED = ("windows", "windows of two lengths")


CHUNKS = {"max_num_batched_tokens": 64, "max_num_seqs": 32}


def finds_prefixes(policy: dict[str, Any]) -> dict[str, Any]:
    """What asks an allocator for what requests have in common, where it can."""
    if policy["name"] == "paged":
        return {"name": "paged", "prefix_caching": True}
    if policy["name"] == "orca":
        return {"prefixes": "copy"}
    if policy["name"] in ("static", "odma", "odma-best", "s3", "oracle"):
        return {"prefixes": "copy", "compaction": "none"}
    return {}


ORDER: dict[Any, int] = {few: 0, closed: 2, prefixes: 3}
"""Of what streams are made by; what is not named goes between."""
PATIENCE_S = 20
"""What takes more of a core's time than this counts as failed."""


class Count(Recorder):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.events = 0

    def step(self, *what: Any) -> None:
        self.events += 1


def laid(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`base` with what `more` says, key by key."""
    out = dict(base)
    for key, value in more.items():
        both = isinstance(out.get(key), dict) and isinstance(value, dict)
        out[key] = laid(out[key], value) if both else value
    return out


class Setting(NamedTuple):
    """What features are served in."""

    requests: Requests
    device: str = "mlu370-x4"
    model: TransformerSpec = SHAPE
    tokens: int = 2048
    """Slots of a card."""
    changes: dict[str, Any] = {"engine": {"max_model_len": 1024, "too_long": "drop"}}
    """Of the serving description; those of features come on top."""
    seed: int = 1


@functools.cache
def card(
    tokens: int, model_bytes: int, token_bytes: int, memories: bool = False, name: str = "mlu370-x4"
) -> Device:
    """With room for so many tokens beside the weights, and with another memory as large."""
    capacity = (-(-model_bytes // (2 << 20)) << 21) + tokens * token_bytes
    described = f"memory: lpddr5-6400-x16, channels: 8, interleave: 512B, capacity: {capacity}B"
    more = [f"memories.far={{{described}}}"] * memories
    return load_device(name, [f"capacity={capacity}B", "derate=1", *more])


@functools.cache
def unlike_card(capacity: int) -> str:
    """The file of a card whose memory is given, of so many bytes."""
    text = find("accelerators", "b200").read_text(encoding="utf-8")
    file = Path(tempfile.mkdtemp()) / "small.yaml"
    file.write_text(re.sub(r"(?m)^capacity:.*$", f"capacity: {capacity}B", text))
    return str(file)


@steady
def run_of(
    names: tuple[str, ...], watchers: Iterable[Watcher] = (), setting: Setting | None = None
) -> ServingResult:
    """The run with these features, watched. Raises DescriptionError, or ValidationError, where they
    do not go together."""
    chosen = sorted((FEATURES[name] for name in names), key=lambda each: ORDER.get(each.stream, 1))
    setting = setting or Setting(stream())
    served, model, wanted, changes = (
        setting.requests, setting.model, setting.tokens, setting.changes
    )  # fmt: skip
    for each in chosen:
        changes = laid(changes, each.changes)
        model = model.model_copy(update=each.model)
        wanted = min(wanted, each.tokens or wanted)
        served = each.stream(served) if each.stream is not None else served
    if "pools" in changes and "cards" in changes.get("cluster", {}):
        sides = {side: {"replicas": 2} for side in SIDES}
        changes = laid(changes, {"cluster": {"cards": 4}, "pools": sides})
    if "prefixes" in names or ("sessions" in names and "states" not in names):
        changes = laid(
            changes, {"policy": finds_prefixes(changes.get("policy", {"name": "paged"}))}
        )
        keeps = POLICIES[changes["policy"].get("name", "paged")].Options.model_fields
        if "states" in names and "state_caching" in keeps:  # chunks end with the prefix's blocks
            changes = laid(changes, {"policy": {"state_caching": "align"}, "engine": CHUNKS})
    if "dropping" in names and any(FEATURES[name].kind == "router" for name in names):
        changes = laid(changes, {"cluster": {"cards": 4}})  # of which some stay as they are
    if "dropping" in names and {"states", *WINDOWED, "KV of oaken", "top_k"} & set(names):
        changes = laid(changes, {"cluster": {"dropping": {"frame": None}}})
    if "lending" in names:
        changes = laid(changes, {"engine": LENDING.get(changes["engine"].get("name", "v1"), {})})
    if {"dropping", "experts placed"} <= set(names):  # each replica has all experts, to drop
        changes = laid(changes, {"expert_group": "replica"})
    if {"dropping", "pools, unlike cards"} <= set(names):  # whose memory is what it is
        size = card(wanted, model.weight_bytes, setting.model.kv_token_bytes).capacity_bytes
        own = {"device": unlike_card(size), "kv_tokens": None}
        changes = laid(changes, {"pools": {"decode": own}, "gpu_memory_utilization": 1.0})
    recorder = Count() if "logs" in names else None
    split = changes.get("tensor_parallel", 1) * changes.get("cluster", {}).get("stages", 1)
    if {"dropping", "pools, decode TP2"} <= set(names):  # whose memory is to overflow
        changes = laid(changes, {"pools": {"prefill": {"tensor_parallel": 4}}})
        split *= 2
    sizes = model.weight_bytes // split, setting.model.kv_token_bytes // split
    device = card(wanted, *sizes, "memories" in changes, setting.device)
    found = serve(
        device,
        model,
        spec(**changes),
        served,
        seed=setting.seed,
        recorder=recorder,
        simulate=FakeMemory(),
        watchers=watchers,
    )
    assert recorder is None or recorder.events or not found.metrics["finished"]
    return found


class Audit(NamedTuple):
    """What is wrong with a run, and the transfers and bytes that went over links."""

    breaches: list[str]
    transfers: int = 0
    landed_bytes: int = 0
    lost_bytes: int = 0


def audited(names: tuple[str, ...], setting: Setting | None = None) -> tuple[ServingResult, Audit]:
    """The run with these features, and what is wrong with it. Raises as `run_of`."""
    auditor = Auditor()
    with watched_links() as links:
        found = run_of(names, [auditor], setting)
        breaches = [*auditor.breaches(), *links.breaches()]
    moved = len(links.put), links.landed_bytes, links.lost_bytes
    return found, Audit(breaches, *moved)


@contextmanager
def patience(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Raises TimeoutError in what takes more of a core's time."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not served within {seconds} s")

    signal.signal(signal.SIGVTALRM, late)
    # again and again: where a file is read, one is taken for an OSError, and passed over
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def reason(error: Exception) -> str:
    """Why features do not go together, in one line."""
    text = str(error).splitlines()
    said = next((line for line in text if "error, " in line), " ".join(text[:3]))
    return (said.partition("error, ")[2] or said).partition(" [type=")[0]


def repeated(names: tuple[str, ...], setting: Setting | None = None) -> Audit | str:
    """The audit of a run which is served twice, and has to be the same both times; or why these
    features do not go together."""
    try:
        with patience():
            found, audit = audited(names, setting)
        if told(found) != told(run_of(names, setting=setting)):
            audit.breaches.append("a second run with the same seed differs")
    except (DescriptionError, ValidationError) as error:
        return reason(error)
    except Exception as error:
        return Audit([f"{type(error).__name__}: {error}"])
    return audit


class Outcome(NamedTuple):
    """`how`: runs; unused, where a run says that one of them has nothing to do; refused, where a
    component says what it needs; idle, where one leaves no trace and nothing says why; or
    fails."""

    how: str
    why: str = ""


def told(found: ServingResult) -> str:
    """All that a run says, to the last digit, but for how long it took to compute."""
    return repr((found.finish_s.tolist(), without_walls(found.metrics)[0]))


def beside(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The others of a run's features; those that have several cards anyway route by another rule
    where one that routes is taken away."""
    others = tuple(each for each in names if each != name)
    cards = any("cards" in FEATURES[each].changes.get("cluster", {}) for each in others)
    if FEATURES[name].kind != "router" or not cards:
        return others
    return (*others, "least_requests" if name == "round_robin" else "round_robin")


@functools.cache
def without(names: tuple[str, ...]) -> str:
    """What the run with these alone says; nothing where there is none."""
    try:
        return told(run_of(names))
    except (DescriptionError, ValidationError):
        return ""


def outcome(names: tuple[str, ...]) -> Outcome:
    """Whether these features go together, lose nothing, and leave their traces."""
    try:
        with patience():
            found, audit = audited(names)
    except (DescriptionError, ValidationError) as error:
        return Outcome("refused", reason(error))
    except Exception as error:
        return Outcome("fails", f"{type(error).__name__}: {error}")
    if audit.breaches:
        return Outcome("fails", audit.breaches[0])
    served = np.isfinite(found.finish_s).sum()
    count = len(found.finish_s)
    if found.metrics["finished"] + found.metrics["dropped"] < count or not served:
        return Outcome("fails", f"{found.metrics['finished']} of {count} requests ended")
    idle = [
        name for name in names
        if not FEATURES[name].shown(found.metrics)
        or (name != "logs" and told(found) == without(beside(name, names)))
    ]  # fmt: skip
    if idle and (said := found.metrics["policy"].get("prefixes")):
        return Outcome("refused", f"prefixes {said}")
    if idle and (unused := found.metrics.get("without_use")):
        return Outcome("unused", unused[0])
    return Outcome("idle", ", ".join(idle)) if idle else Outcome("runs")


def pairs() -> list[tuple[str, str]]:
    """Those of two kinds."""
    return [
        (one, other)
        for one, other in combinations(FEATURES, 2)
        if FEATURES[one].kind != FEATURES[other].kind
    ]
