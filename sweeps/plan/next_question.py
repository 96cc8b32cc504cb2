"""The next question: what a gap holds fixed, each changed alone.

A winner on one page was measured at one limit, on one workload, with one chunk, one room for KV.
Each entry of `QUESTIONS` changes one such thing for both sides, or says what the one side's users
would answer. To add one: a generator of `ProposedChange`, and its line.

    >>> held = Held(winner, loser, ("paged", "odma"), kv_slots=457_216)
    >>> [each.name for each in QUESTIONS["limit"].ask(held)]
    ['limit 2,048', 'limit 4,096', 'limit 16,384']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.registry import policy_class
from policies.routers.routers import ROUTERS
from sweeps.plan.counterfactual import losses
from sweeps.plan.experiment import ExperimentSpec, model_of

CHATS = ("r1-reasoning", "sharegpt", "azure-conv", "azure-code", "alpaca")
"""Workloads without a memory of earlier requests: short and long prompts and answers."""
SESSIONS = ("chat-sessions", "agents")
LIMIT_OF_CHATS = 1024
"""Most tokens of an answer that a server of chats or completions allows (assumed)."""
CHUNKS = (256, 1024, 4096, 16384)
CAPS = (16, 64, 256)
FORMATS = ("int8", "w4a16")
"""Of the weights, where they are narrower than the model's own."""
DEVIATIONS = (0.1, 0.8)
"""Log-sd of a lognormal predictor."""
BELOW = 0.8
"""Of capacity: a load that the best can serve."""
_ENGINE = "serving.engine."
_CHUNK = ("max_num_batched_tokens", "chunked_prefill_size")
"""Options of a scheduler that say how many tokens a step has at most: vLLM's and SGLang's."""


class GapSides(NamedTuple):
    """The two sides of a gap."""

    winner: ExperimentSpec
    loser: ExperimentSpec
    names: tuple[str, str]
    kv_slots: int | None
    """Tokens that the winner has room for, where that is known."""

    @property
    def spec(self) -> ExperimentSpec:
        """What both have alike is read from the winner."""
        return self.winner


class ProposedChange(NamedTuple):
    """One change."""

    name: str
    set: dict[str, Any]
    """Dotted path of the experiment -> value."""
    of: str | None = None
    """The one side that is changed; None: both."""


class NextChange(NamedTuple):
    """What is changed, in words, and the changes."""

    words: str
    ask: Callable[[GapSides], Iterator[ProposedChange]]


def _limit(held: GapSides) -> Iterator[ProposedChange]:
    own = held.spec.serving.engine.max_tokens
    for value in (2048, 8192) if own is None else (own // 4, own // 2, 2 * own):
        yield ProposedChange(f"limit {value:,}", {f"{_ENGINE}max_tokens": value})


def _workload(held: GapSides) -> Iterator[ProposedChange]:
    own = held.spec.workload
    now = held.spec.workload_set
    kept = {key: now[key] for key in now if key.startswith("arrivals") or key == "lengths.drift"}
    reset: dict[str, Any] = {"workload_set": kept} if kept != now else {}
    for name in SESSIONS if own in SESSIONS else CHATS:
        if name == own:
            continue
        asked: dict[str, Any] = {"workload": name, **reset}
        limit = held.spec.serving.engine.max_tokens
        if name in CHATS[1:] and (limit is None or limit > LIMIT_OF_CHATS):
            asked[f"{_ENGINE}max_tokens"] = limit = LIMIT_OF_CHATS
        told = name if limit is None or name in SESSIONS else f"{name} at a limit of {limit:,}"
        yield ProposedChange(told, asked)


def _chunk(held: GapSides) -> Iterator[ProposedChange]:
    options = held.spec.serving.engine.model_dump()
    for key in (each for each in _CHUNK if each in options):
        for value in CHUNKS:
            if value != options[key]:
                yield ProposedChange(f"chunk {value:,}", {f"{_ENGINE}{key}": value})


def _kv_size(held: GapSides) -> Iterator[ProposedChange]:
    if held.spec.serving.kv_tokens is not None:
        yield ProposedChange("the card's own room for KV", {"serving.kv_tokens": None})
    elif held.kv_slots:
        yield ProposedChange("half the room for KV", {"serving.kv_tokens": held.kv_slots // 2})


def _cap(held: GapSides) -> Iterator[ProposedChange]:
    own = held.spec.serving.engine.max_num_seqs
    for value in CAPS:
        if value != own:
            yield ProposedChange(f"at most {value} sequences", {f"{_ENGINE}max_num_seqs": value})


def _clients(held: GapSides) -> Iterator[ProposedChange]:
    arrivals = held.spec.arrivals
    if arrivals is None or arrivals.process != "closed" or arrivals.clients is None:
        return
    for value in (arrivals.clients // 4, 4 * arrivals.clients):
        if value >= 1:
            yield ProposedChange(f"{value:,} clients", {"arrivals.clients": value})
            if value > arrivals.clients and held.spec.serving.kv_tokens is not None:
                asked = {"arrivals.clients": value, "serving.kv_tokens": None}
                yield ProposedChange(f"{value:,} clients and the card's own room for KV", asked)


def _seed(held: GapSides) -> Iterator[ProposedChange]:
    for value in (held.spec.seed + 1, held.spec.seed + 2):
        yield ProposedChange(f"seed {value}", {"seed": value})


def _weights(held: GapSides) -> Iterator[ProposedChange]:
    shape, serving = model_of(held.spec), held.spec.serving
    now = shape.stored_as(serving.weights, serving.kv).weight_bytes
    for value in FORMATS:
        if value != serving.weights and shape.stored_as(value, serving.kv).weight_bytes < now:
            yield ProposedChange(f"weights {value}", {"serving.weights": value})


def _router(held: GapSides) -> Iterator[ProposedChange]:
    cluster = held.spec.serving.cluster
    for value in ROUTERS if cluster.cards > held.spec.serving.tensor_parallel else ():
        if value != cluster.placement:
            yield ProposedChange(f"router {value}", {"serving.cluster.placement": value})


def _load(held: GapSides) -> Iterator[ProposedChange]:
    load = held.spec.load
    if load is None or (load.relative is not None and load.relative > BELOW):
        yield ProposedChange(f"load of {BELOW} of capacity", {
            "arrivals": {"process": "poisson"}, "load": {"relative": BELOW, "of": "best"},
        })  # fmt: skip


def _predictor(held: GapSides) -> Iterator[ProposedChange]:
    if not any("prediction" in losses(side.serving) for side in (held.winner, held.loser)):
        return
    for value in DEVIATIONS:
        predictor = {"kind": "lognormal", "sigma": value}
        yield ProposedChange(f"predictor's log-sd {value}", {"serving.predictor": predictor})
    yield ProposedChange("lengths known", {"serving.predictor": {"kind": "oracle"}})


def _layout(held: GapSides) -> Iterator[ProposedChange]:
    serving = held.spec.serving
    if serving.memory.fidelity == "analytic":
        return
    for value in ("layer_kv_token", "layer_kv_block_head"):
        if serving.kv_layout != LAYOUTS[value]:
            yield ProposedChange(f"KV layout {value}", {"serving.kv_layout": value})


def _answer(held: GapSides) -> Iterator[ProposedChange]:
    for name, side in zip(held.names, (held.winner, held.loser), strict=True):
        policy = side.serving.policy
        for words, options in policy_class(policy).answers.items():
            changed = {k: v for k, v in options.items() if getattr(policy, k) != v}
            paths = {f"serving.policy.{key}": value for key, value in changed.items()}
            if paths:
                yield ProposedChange(f"{name} with {words}", paths, name)


QUESTIONS: dict[str, NextChange] = {
    "limit": NextChange("the longest answer that is allowed", _limit),
    "workload": NextChange("whose requests", _workload),
    "chunk": NextChange("tokens of a step", _chunk),
    "kv": NextChange("the room for KV", _kv_size),
    "cap": NextChange("sequences at once", _cap),
    "clients": NextChange("clients that wait for answers", _clients),
    "seed": NextChange("other requests of the same kind", _seed),
    "weights": NextChange("the format of the weights", _weights),
    "router": NextChange("which replica a request goes to", _router),
    "load": NextChange("what is offered", _load),
    "predictor": NextChange("how well lengths are predicted", _predictor),
    "layout": NextChange("the order of KV in memory", _layout),
    "answer": NextChange("what a side's users would set", _answer),
}
"""By the name that `bankwise explain next` takes."""


def chosen(text: str) -> list[str]:
    """The questions that a list between commas names; `all`: each. Raises DescriptionError."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == ["all"]:
        return list(QUESTIONS)
    for name in names:
        if name == "all":
            raise DescriptionError("all stands alone", "--questions")
        if name not in QUESTIONS:
            hint = nearest(name, ["all", *QUESTIONS])
            raise DescriptionError(f"no question {name!r}; {hint}", "--questions")
    if not names:
        raise DescriptionError(f"expected all, or some of {', '.join(QUESTIONS)}", "--questions")
    return list(dict.fromkeys(names))
