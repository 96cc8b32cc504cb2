"""What `bankwise.testing` does with a plug-in: serves with it, audits it, says what it breaks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from bankwise.conservation import Auditor, watched_links
from bankwise.contract_broken import ContractBroken
from bankwise.slot_contents import SlotContents
from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.kv_layout import KV_ALIGN_BYTES, KvLayout
from policies.allocators.registry import POLICIES
from policies.predictors.prediction import Prediction
from policies.predictors.predictor import PredictorSpec, predict
from policies.predictors.predictors import PREDICTORS
from policies.requests.requests import Requests
from policies.serving.plugin_faults import at_work, blamed, with_file
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.plugged import load_plugin

MODEL = TransformerSpec(
    kind="model", name="small", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16,
    intermediate=128, vocabulary=100, max_position=4096, qkv_bias=False, tied_embeddings=False,
)  # fmt: skip
"""256 bytes of KV a token, so that small memories hold some requests."""
SLOTS, COUNT = 1024, 40
"""Token slots of a card, and requests, of which about ten fit at once."""
LAYOUT = KvLayout(base=4096, slots=SLOTS, layers=2, kv_heads=2, head_bytes=256)
LIMITS = Limits(max_tokens=128, max_model_len=256)
CACHING: dict[str, Any] = {"name": "paged", "prefix_caching": True}
IN_A_SERVING: dict[str, Any] = {
    "policy": lambda name, own: {"policy": {"name": name, **own}},
    "scheduler": lambda name, own: {"engine": {"name": name, **own}},
    "predictor": lambda name, own: {"policy": {"name": "odma"}, "predictor": {"kind": name, **own}},
    "placement": lambda name, own: {"cluster": {"cards": 3, "placement": name, **own}},
    "connector": lambda name, own: {"policy": CACHING, "connectors": {name: own}},
    "controller": lambda name, own: {"cluster": {"cards": 3, "controllers": {name: own}}},
}
"""Kind of plug-in -> the part of a description that has it at work."""


def check_file(
    file: str | Path, options: Mapping[str, Mapping[str, Any]] | None = None, seconds: float = 60.0
) -> list[str]:
    """As `bankwise.testing.check`."""
    said = []
    for kind, name in load_plugin(file).defined:
        own, who = dict((options or {}).get(name, {})), f"{kind} {name}"
        try:
            with _within(seconds, who):
                said.append(f"{who}: {check_one(kind, name, own)}")
        except DescriptionError as error:
            raise DescriptionError(with_file(str(error))) from error
        except ContractBroken as error:
            raise ContractBroken(f"{file}: {who}: {error}") from None
        except Exception as error:
            if (fault := blamed(error)) is None:
                raise
            raise fault from error
    return said


@contextmanager
def _within(seconds: float, who: str) -> Iterator[None]:
    """Raises DescriptionError in what takes longer, with the line of the plug-in that it is at.
    Threads but the main one have no limit, and systems without such a timer."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        place = at_work(frame)
        said = f"{who} is not done after {seconds:g} s"
        raise DescriptionError(f"{place}: {said}" if place else said)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, where what is raised is swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_one(kind: str, name: str, options: Mapping[str, Any] | None = None) -> str:
    """As `bankwise.testing.check_named`."""
    own = dict(options or {})
    if kind == "rule":
        return _audited(name, own)
    said = []
    if kind == "policy":
        said.append(_lives(POLICIES[name].Options.model_validate({"name": name, **own})))
    if kind == "predictor":
        said.append(_draws(PREDICTORS[name].model_validate({"kind": name, **own})))
    said.append(_served(IN_A_SERVING[kind](name, own)))
    return "; ".join(said)


def _audited(name: str, options: dict[str, Any]) -> str:
    """Reads of a channel that open a bank again and again, under a rule of the controller, audited:
    by every timing rule, and by what the rule itself says is illegal."""
    from hwmodel.measure.open_loop import OpenLoop
    from hwmodel.oracle.audit import audit
    from hwmodel.oracle.command_log import CommandLog

    memory, logs = load_device("lpddr5-6400-x16").memory, list[CommandLog]()
    own = memory.controller.model_copy(update={"rules": {name: options}})
    memory = memory.model_copy(update={"controller": own})
    loop = OpenLoop(memory, log=lambda _, log: logs.append(log))
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 64, COUNT * 10) << 20  # of one bank, mostly
    loop.feed(0, rows % memory.organisation.capacity_bytes, np.zeros(len(rows), np.int64))
    loop.finish()
    log = CommandLog(*map(np.concatenate, zip(*logs, strict=True)))
    if found := audit(memory, log, end_tick=loop.end_tick):
        raise ContractBroken(f"command {found[0].index}, {found[0].command}: {found[0].rule}")
    return f"{len(log.tick):,} commands, audited"


def card(slots: int = SLOTS) -> Device:
    """An LPDDR5 card with room for so many token slots of `MODEL`."""
    capacity = KV_ALIGN_BYTES + slots * MODEL.kv_token_bytes
    return load_device("mlu370-x4", [f"capacity={capacity}B", "derate=1"])


def workload(count: int = COUNT, seed: int = 0) -> Requests:
    """Poisson arrivals that fill a card, lognormal lengths, and six prefixes that prompts share."""
    rng = np.random.default_rng(seed)
    prompt = np.clip(rng.lognormal(4.5, 0.8, count), 40, 500).astype(np.int64)
    output = np.clip(rng.lognormal(4.0, 0.9, count), 1, 300).astype(np.int64)
    return Requests(
        np.cumsum(rng.exponential(1e-3, count)), prompt, output,
        np.arange(count) % 6, np.minimum(prompt - 1, 32),
    )  # fmt: skip


def _served(part: Mapping[str, Any]) -> str:
    """Serve twice under the auditor, in a card that is full and in one that never is."""
    for slots in (SLOTS, 16 * SLOTS):
        first, again = _run(part, slots), _run(part, slots)
        if first != again:
            key = next(key for key in first if first[key] != again.get(key))
            raise ContractBroken(
                f"two runs of one seed differ: {key}; is there a draw without a seed, or what "
                "outlasts a run?"
            )
    return f"{COUNT} requests served four times, alike and conserved"


def _run(part: Mapping[str, Any], slots: int) -> dict[str, Any]:
    spec = ServingSpec.model_validate({
        "model": "small", "gpu_memory_utilization": 1.0, "activation_bytes": "0B",
        "memory": {"efficiency": 1.0}, **part,
        "engine": {"max_model_len": 832, **part.get("engine", {})},
    })  # fmt: skip
    auditor = Auditor()
    with watched_links() as links:
        found = serve(card(slots), MODEL, spec, workload(), seed=1, watchers=[auditor])
        breaches = [*auditor.breaches(), *links.breaches()]
    if breaches:
        raise ContractBroken(breaches[0])
    return found.metrics


def _draws(spec: PredictorSpec) -> str:
    """The n-th prediction belongs to the n-th request, whoever comes after it."""
    lengths = np.random.default_rng(3).integers(1, 2000, 200)
    whole, part = predict(spec, lengths, 1), predict(spec, lengths[:50], 1)
    if not np.array_equal(np.asarray(whole.length)[:50], np.asarray(part.length)):
        raise ContractBroken("a prediction changes with the requests that come after it")
    if not np.array_equal(predict(spec, lengths, 1).length, whole.length):
        raise ContractBroken("two predictions of one seed differ")
    return "200 lengths predicted, each by a draw of its own"


def _lives(options: PolicyOptions, steps: int = 400) -> str:
    """Random lives of requests, beside a table of who holds which slot."""
    rng = np.random.default_rng(7)
    allocator = POLICIES[options.name](LAYOUT, steps, LIMITS, options)
    empty, held = allocator.free_slots, dict[int, Demand]()
    contents = SlotContents(allocator)
    for request in range(steps):
        prompt, output = int(rng.integers(1, 120)), int(rng.integers(1, 120))
        demand = Demand(prompt, 0, Prediction(float(output)), output=output)
        before = _state(allocator)
        if allocator.reserve(request, demand, prompt):
            held[request] = demand
            most = int(np.max(allocator.needs(np.array([prompt]), np.array([LIMITS.max_tokens]))))
            if allocator.reserved[request] > most:
                raise ContractBroken(
                    f"reserve({request}) took {allocator.reserved[request]} slots; needs says at"
                    f" most {most} for an answer of any length"
                )
            _holds(allocator, held, empty)
            contents.after(f"reserve({request})", list(held))
        elif _state(allocator) != before:
            raise ContractBroken(f"reserve({request}) returned False and changed something")
        for other in list(held):
            most = held[other].prompt + held[other].output - 1
            before = _state(allocator)
            tokens = min(int(rng.integers(1, 30)), most - int(allocator.stored[other]))
            if tokens > 0 and not allocator.grow(other, tokens) and _state(allocator) != before:
                raise ContractBroken(
                    f"grow({other}, {tokens}) returned False and changed something"
                )
            _holds(allocator, held, empty)
            contents.after(f"grow({other}, {tokens})", list(held))
        for other in [each for each in held if rng.random() < 0.2]:
            reserved = int(allocator.reserved[other])
            if allocator.release(other) != reserved:
                raise ContractBroken(f"release({other}) returned other slots than were reserved")
            del held[other]
            contents.after(f"release({other})", list(held))
        _holds(allocator, held, empty)
    for other in held:
        allocator.release(other)
    _holds(allocator, {}, empty)
    return f"{steps} random reservations kept"


def _state(allocator: Allocator) -> tuple[Any, ...]:
    """Everything visible of an allocator."""
    places = {
        request: [column.tolist() for column in allocator.units(request)]
        for request in np.flatnonzero(allocator.resident).tolist()
    }
    return places, allocator.free_slots, allocator.reserved_total, allocator.stored.tolist()


def _holds(allocator: Allocator, held: Mapping[int, Demand], empty: int) -> None:
    """Raise ContractBroken unless each slot has one owner, and those that are free are counted."""
    owner = np.full(LAYOUT.slots, -1)
    if (found := np.flatnonzero(allocator.resident).tolist()) != sorted(held):
        raise ContractBroken(f"resident are {found}; {sorted(held)} hold memory")
    for request in held:
        units = allocator.units(request)
        if int(units.tokens.sum()) != int(allocator.stored[request]):
            raise ContractBroken(f"units({request}) hold other tokens than are stored")
        for first, size in zip(units.start.tolist(), units.size.tolist(), strict=True):
            if first < 0 or first + size > LAYOUT.slots:
                raise ContractBroken(f"units({request}) leave the memory: {first} + {size}")
            if (owner[first : first + size] >= 0).any():
                raise ContractBroken(f"units({request}) hold a slot that another holds")
            owner[first : first + size] = request
    taken = int((owner >= 0).sum())
    if taken != allocator.reserved_total or taken + allocator.free_slots != empty:
        raise ContractBroken(
            f"{taken} slots are held; reserved_total is {allocator.reserved_total}, free_slots "
            f"{allocator.free_slots} of {empty}"
        )
