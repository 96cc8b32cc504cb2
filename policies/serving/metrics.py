"""Metrics of a serving run: sums over steps, times of requests, and figures from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import OnDemand
from policies.allocators.kv_layout import KvLayout
from policies.engines.engine import Engine
from policies.engines.scheduled_step import STEP_LIMITS, Step
from policies.memory.step import PHASES, StepTimes
from policies.memory.step_energy import Transfer, serving_energy
from policies.memory.traffic import reading
from policies.requests.percentiles import quantiles, summary
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.timeline import Stretch, Timeline

SLOT_STATES = ("used", "unfilled", "unneeded", "holes", "head_of_line", "free")
"""What a token slot is at any time. Reserved: `used` holds a stored token, `unfilled` will hold one
of its request, `unneeded` never will (a policy that reserves as it stores has none: the rest of its
last blocks counts as unfilled). Free while KV memory limits the batch: `holes`, which the next
requests in line would reserve if all free slots were one run, and `head_of_line`, fewer than the
next one then needs. Free at other times: `free`."""

_INDEXED = ("attention", "prefill", "migration", "copy", "swap")


@dataclass
class Sums:
    """Sums over steps; a difference of two is what happened in between. Times in seconds."""

    seconds: float = 0.0
    steps: int = 0
    output_tokens: int = 0
    prefill_tokens: int = 0
    prefill_kv_tokens: float = 0
    """Tokens of KV read or written by prompt chunks; mean over the layers."""
    cached_tokens: int = 0
    """Tokens that requests found in memory, instead of prefilling them."""
    attention_tokens: float = 0
    """Tokens of KV read or written by the attention of decoding requests; mean over the layers."""
    batch_seconds: float = 0.0
    stored_seconds: float = 0.0
    reserved_seconds: float = 0.0
    """Slots that hold a token, and slots that are reserved, times seconds; shared ones once."""
    weight_bytes: int = 0
    """Of the weights read."""
    draft_bytes: int = 0
    """Read by a drafter."""
    drafted: int = 0
    """Drafts that were verified."""
    accepted: int = 0
    """Those of them that are output."""
    verified: int = 0
    """Sequences whose drafts were verified, times steps."""
    index_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_INDEXED, 0))
    """Moved of what tokens are chosen by."""
    compute_s: float = 0.0
    """Time of phases whose FLOPs take longer than their bytes."""
    hole_seconds: float = 0.0
    slot_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SLOT_STATES, 0.0))
    """Slots in each state times seconds of steps."""
    binding_slot_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(SLOT_STATES, 0.0)
    )
    """The same of steps that KV memory limited."""
    preemptions: int = 0
    migrations: int = 0
    migrated_tokens: float = 0
    copied_tokens: int = 0
    """Tokens copied on write."""
    swapped_tokens: int = 0
    """Tokens copied to host memory, and back."""
    phase_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((*PHASES, "overhead"), 0.0)
    )
    limit_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((*STEP_LIMITS, "idle"), 0.0)
    )

    def moved(self, model: TransformerSpec) -> dict[str, int]:
        """Bytes that each phase read or wrote in memory; what several engines read counts once."""
        tokens = {
            "attention": self.attention_tokens,
            "prefill": self.prefill_kv_tokens,
            "migration": 2 * self.migrated_tokens,
            "copy": 2 * self.copied_tokens,
            "swap": self.swapped_tokens,
        }
        kv = {
            phase: round(count * model.kv_token_bytes) + self.index_bytes[phase]
            for phase, count in tokens.items()
        }
        drafted = {"draft": self.draft_bytes} if self.draft_bytes else {}
        return {"weights": self.weight_bytes, **kv, **drafted}

    def copy(self) -> Sums:
        return deepcopy(self)

    def plus(self, other: Sums, times: int = 1) -> Sums:
        """With so many times what another has."""
        out = Sums()
        for name, value in self.__dict__.items():
            more = other.__dict__[name]
            if isinstance(value, dict):
                keys = {**value, **more}
                out.__dict__[name] = {
                    key: value.get(key, 0) + times * more.get(key, 0) for key in keys
                }
            else:
                out.__dict__[name] = value + times * more
        return out

    def since(self, earlier: Sums) -> Sums:
        """What was added after `earlier`."""
        return self.plus(earlier, -1)


class Known(NamedTuple):
    """What engines know of requests that have ended; see `Engine`."""

    reserved_ever: IntArray
    run_tokens: FloatArray
    allocator: KvLayout
    """Whose `slots` are the card's."""


class Metrics:
    """Collects a run. `warmup`: the first requests to end and to arrive do not count as steady.
    `first_sample`, int64: where samples are requests of their own, the first one of each request
    that `figures` and `times` are of."""

    def __init__(
        self,
        requests: Requests,
        output_tokens: IntArray,
        warmup: int,
        first_sample: IntArray | None = None,
    ) -> None:
        self.arrival_s = requests.arrival_s.copy()
        """When each arrived; in a closed loop known once it is sent."""
        self.prompt = requests.prompt_tokens
        self.output = output_tokens
        self.needed = self.prompt + requests.samples * (output_tokens - 1)
        """Tokens that each request has stored at its end."""
        self.outputs = output_tokens * requests.samples
        """Output tokens of all samples of each request."""
        self.warmup = warmup
        self.first_s: FloatArray = np.full(len(requests), np.nan)
        self.end_s: FloatArray = np.full(len(requests), np.nan)
        self.sums = Sums()
        self.timeline = Timeline()
        self.ended = 0
        self.begin: tuple[float, Sums] = (0.0, Sums())
        self.close: tuple[float, int] = (0.0, 0)
        self._first_sample = first_sample
        self._filled: tuple[IntArray | None, int, int] = (None, 0, 0)
        """The requests that ran last, what was reserved then, and `_unneeded` of it."""
        self._shares = bool((requests.prefix_id >= 0).any() or (requests.samples > 1).any())
        self._shares |= first_sample is not None
        self._sessions = bool((requests.session >= 0).any())

    def merge(self, parts: Sequence[tuple[Metrics, IntArray]]) -> None:
        """Make this, which has collected nothing, what parts have that served the requests of these
        rows. The steady part is between the means of where theirs begin and end."""
        share = 1 / len(parts)
        begin_s = close_s = 0.0
        begin, made = Sums(), 0
        for part, rows in parts:
            for name in ("arrival_s", "first_s", "end_s"):
                getattr(self, name)[rows] = getattr(part, name)
            self.sums = self.sums.plus(part.sums)
            self.timeline.merge(part.timeline)
            self.ended += part.ended
            begin_s, begin = begin_s + share * part.begin[0], begin.plus(part.begin[1])
            close_s, made = close_s + share * part.close[0], made + part.close[1]
        self.begin, self.close = (begin_s, begin), (close_s, made)

    def idle(self, seconds: float) -> None:
        """Nothing ran for this long."""
        self.sums.limit_s["idle"] += seconds

    def saturated(self, now: float) -> None:
        """Requests wait or are still to arrive: the steady part reaches at least to `now`."""
        self.close = (now, self.sums.output_tokens)

    def steps(
        self, step: Step, times: StepTimes, allocator: Allocator, running: IntArray, begin_s: float,
        reserved: int, fitting: int = 0, holders: IntArray | None = None,
    ) -> None:  # fmt: skip
        """Add consecutive equal steps, from `begin_s` on; `reserved` slots in the first of them,
        `allocator` as it is at the end of the last; `fitting`, `holders`: see `Engine`."""
        sums, rounds, batch = self.sums, len(times.total_s), step.tokens
        total = _total(times.total_s)
        stored = self._stored(step, allocator, running, rounds, holders)
        sums.seconds += total
        sums.steps += rounds
        sums.weight_bytes += times.weight_bytes * rounds
        begun = self._prefill(step, allocator.layout)
        made = batch - step.overrun + step.accepted
        sums.output_tokens += made * rounds + begun
        if step.rows is not None:
            sums.drafted += step.drafts
            sums.accepted += step.accepted
            sums.verified += len(step.decode)
        sums.attention_tokens += self._attended(step, allocator.layout, rounds)
        sums.batch_seconds += len(running) * total
        steps_s = float(np.arange(rounds) @ times.total_s) if rounds > 1 else 0.0
        stored_s = stored * total + batch * steps_s
        self._slots(step, times, allocator, running, stored_s, fitting * total)
        holes = allocator.fragmentation
        sums.hole_seconds += holes * total
        self._moves(step, allocator.layout)
        self._phases(times, rounds)
        sums.limit_s[step.limit] += total
        self.timeline.add(
            Stretch(
                begin_s, times.total_s, total, steps_s, len(running), batch, stored, reserved,
                allocator.reserved_total, holes, made + begun, made,
            )
        )  # fmt: skip

    def _stored(
        self, step: Step, allocator: Allocator, running: IntArray, rounds: int,
        holders: IntArray | None,
    ) -> int:  # fmt: skip
        """Slots that hold a token in the first of the steps; shared ones once."""
        layout = allocator.layout
        if layout.groups is None and len(step.decode) == len(running):  # all, before they grew
            stored = step.context + step.tokens
        else:
            stored = int(layout.slots_of(allocator.stored[running]).sum())
            stored -= step.tokens * (rounds - 1)
        others = () if holders is None else holders
        if len(others):
            stored += int(layout.slots_of(allocator.stored[others]).sum())
        if self._shares:
            held = int(allocator.reserved[running].sum())
            held += int(allocator.reserved[others].sum()) if len(others) else 0
            stored -= max(held - allocator.reserved_total, 0)
        return stored

    def _prefill(self, step: Step, layout: KvLayout) -> int:
        """Add the prompt chunks of a step; the output tokens that they lead to."""
        sums, groups, begun = self.sums, layout.groups, 0
        for chunk in step.chunks:
            sums.prefill_tokens += chunk.tokens
            if groups is None:
                sums.prefill_kv_tokens += chunk.start + chunk.tokens
            else:
                span = groups.span(chunk.start, chunk.tokens)
                sums.prefill_kv_tokens += span.read + span.written
            begun += chunk.samples if chunk.last else 0
        sums.cached_tokens += step.cached
        return begun

    def _attended(self, step: Step, layout: KvLayout, rounds: int) -> float:
        """Tokens of KV that the attention of decoding requests reads or writes in all the steps."""
        batch, groups = step.tokens, layout.groups
        if layout.sparse is not None and step.lengths is not None:
            return self._chosen(layout, step, layout.sparse.steps(step.lengths, rounds))
        if groups is not None and step.lengths is not None:
            return groups.read(step.lengths) + batch
        once = step.context + batch + step.drafts
        return once * rounds + batch * (rounds * (rounds - 1) // 2)

    def _slots(
        self, step: Step, times: StepTimes, allocator: Allocator, running: IntArray,
        stored_s: float, fitting_s: float,
    ) -> None:  # fmt: skip
        """Add the slots in each state times seconds; `stored_s` and `fitting_s` are such sums."""
        rounds, total = len(times.total_s), _total(times.total_s)
        reserved_s, unneeded = allocator.reserved_total * total, 0
        if not isinstance(allocator, OnDemand):
            unneeded = self._unneeded(allocator, running)
        elif rounds > 1:
            reserved_s -= float(allocator.grown(step.decode, rounds) @ times.total_s)
        self.sums.stored_seconds += stored_s
        self.sums.reserved_seconds += reserved_s
        free_s, unneeded_s = allocator.slots * total - reserved_s, unneeded * total
        bound = step.limit == "kv_memory"
        holes_s = fitting_s if bound else 0.0
        for states in (self.sums.slot_s, self.sums.binding_slot_s)[: 1 + bound]:
            states["used"] += stored_s
            states["unfilled"] += reserved_s - stored_s - unneeded_s
            states["unneeded"] += unneeded_s
            states["holes"] += holes_s
            states["head_of_line" if bound else "free"] += free_s - holes_s

    def _moves(self, step: Step, layout: KvLayout) -> None:
        """Add preemptions, and tokens that are copied."""
        sums, groups = self.sums, layout.groups
        sums.preemptions += step.preempted
        for migration in step.migrations:
            sums.migrations += 1
            whole = migration.tokens
            sums.migrated_tokens += whole if groups is None else groups.copied(whole)
        sums.copied_tokens += step.copied
        sums.swapped_tokens += step.swapped

    def _phases(self, times: StepTimes, rounds: int) -> None:
        """Add the time of each phase."""
        phase_s = self.sums.phase_s
        phase_s["weights"] += times.weights_s * rounds
        phase_s["attention"] += _total(times.attention_s)
        phase_s["prefill"] += times.prefill_s * rounds
        phase_s["migration"] += times.migration_s * rounds
        phase_s["copy"] += times.copy_s * rounds
        phase_s["swap"] += times.swap_s * rounds
        phase_s["all_reduce"] += times.all_reduce_s * rounds
        phase_s["overhead"] += times.overhead_s * rounds
        if times.draft_s:
            phase_s["draft"] = phase_s.get("draft", 0.0) + times.draft_s * rounds
            self.sums.draft_bytes += times.draft_bytes * rounds
        if times.stall_s is not None:
            phase_s["overhead"] += _total(times.stall_s)
        self.sums.compute_s += _total(times.compute_s)

    def _chosen(self, layout: KvLayout, step: Step, moved: tuple[Any, Any]) -> int:
        """Tokens of KV that steps read or wrote which read so many and the index of so many
        (`Sparse.steps`); adds what is moved of the index."""
        assert layout.sparse is not None
        read, indexed = (int(np.sum(each)) for each in moved)
        written, reads = step.tokens * np.size(moved[0]), not layout.sparse.whole_prompts
        tokens = {
            "attention": indexed + written,
            "prefill": sum(chunk.start * reads + chunk.tokens for chunk in step.chunks),
            "migration": 2 * sum(migration.tokens for migration in step.migrations),
            "copy": 2 * step.copied,
            "swap": step.swapped,
        }
        for phase, count in tokens.items():
            self.sums.index_bytes[phase] += count * layout.index_bytes
        return read + written

    def _unneeded(self, allocator: Allocator, running: IntArray) -> int:
        """Slots reserved for `running`, of which reservations are made once, that never hold a
        token."""
        before, reserved, unneeded = self._filled
        if running is not before or allocator.reserved_total != reserved:
            reserved = allocator.reserved_total
            needed = allocator.layout.slots_of(self.needed[running])
            filled = np.minimum(allocator.reserved[running], needed)
            unneeded = reserved - int(filled.sum())
            self._filled = (running, reserved, unneeded)
        return unneeded

    def end(self, requests: list[int], now: float) -> bool:
        """These requests ended; True if the warm-up ended with them."""
        self.end_s[requests] = now
        self.ended += len(requests)
        warm = self.ended - len(requests) < self.warmup <= self.ended
        if warm:
            self.begin = (now, self.sums.copy())
        return warm

    def moved_bytes(self, model: TransformerSpec) -> int:
        """Bytes that decoding moved in the whole run: weights in each step, and the attention's
        KV."""
        moved = self.sums.moved(model)
        return moved["weights"] + moved["attention"]

    def energy(
        self, device: Device, model: TransformerSpec, transfers: Mapping[str, Transfer], cards: int
    ) -> dict[str, Any] | None:
        """DRAM energy of an output token after the warm-up, of all `cards`, each of which holds
        such a `model`; see `policies.memory.step_energy`."""
        after = self.sums.since(self.begin[1])
        moved = after.moved(model)
        again = reading(device, model).repeats - 1
        moved["attention"] += again * (moved["attention"] - after.index_bytes["attention"])
        moved["migration"] += moved.pop("copy") + moved.pop("swap")
        moved["weights"] += moved.pop("draft", 0)
        idle_s = after.limit_s["idle"]
        figures = serving_energy(
            device, moved, transfers, after.seconds, idle_s, after.output_tokens
        )
        return figures if figures is None or cards == 1 else _times(figures, cards)

    def tokens_per_joule(
        self, device: Device, energy: Mapping[str, Any] | None, cards: int
    ) -> dict[str, float]:
        """Output tokens after the warm-up for a joule of DRAM, with the ends of what its constants
        may be (`hwmodel.measure.energy.SPREAD`), where `energy` is known; `board`: for a joule of
        the `cards` at their power limit, at least, where the description states it."""
        rates = {}
        if energy is not None:
            ends = {"dram": "", "dram_low": "high_", "dram_high": "low_"}
            rates = {name: 1000 / energy[f"{end}mj_per_token"] for name, end in ends.items()}
        after = self.sums.since(self.begin[1])
        board = device.accelerator
        power_mw = None if board is None else board.power
        seconds = after.seconds + after.limit_s["idle"]
        if power_mw is not None and seconds > 0:
            rates["board"] = after.output_tokens / (seconds * cards * power_mw / 1000)
        return rates

    def times(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds of each request's arrival, first token, of any sample, and last, of all."""
        first = (self._whole(np.minimum, times) for times in (self.arrival_s, self.first_s))
        return (*first, self._whole(np.maximum, self.end_s))

    def _whole(self, combine: np.ufunc, values: Any) -> Any:
        """Values of samples that are requests of their own, combined for each request."""
        if self._first_sample is None:
            return values
        return combine.reduceat(values, self._first_sample)

    def figures(
        self, engines: Sequence[Engine | Known], model: TransformerSpec, layout: KvLayout
    ) -> dict[str, Any]:
        """All metrics by name; times in seconds, rates a second, shares from 0 to 1.

        `output_tokens_per_s` is that of the steady part: from the end of the warm-up until the last
        time that a request waits or is still to arrive. `backlog_share`: of the counted requests,
        those that had no token when the last one arrived. `cached_share`, of sessions: tokens found
        in memory over those that requests came with, to be computed or not.

        engines: those of all cards, each with `model` and room as in `layout`. Seconds of
        steps add up over the cards, so that shares and means are those of a card. `phase_gbps`:
        what a phase moved over its time, which is less than its memory's where FLOPs take longer.
        """
        arrival_s, first_s, end_s = self.times()
        output = self._whole(np.maximum, self.output)
        counted = self._whole(np.minimum, np.arange(len(self.output))) >= self.warmup
        done = counted & np.isfinite(end_s)
        late = first_s[done] > np.max(arrival_s, initial=0.0)
        finished = int(np.isfinite(end_s).sum())
        start_s = float(self.arrival_s[0]) if len(self.arrival_s) else 0.0
        makespan = float(np.nanmax(self.end_s, initial=0.0)) - start_s if len(output) else 0.0
        made, steady_s = self.steady()
        each = (end_s - first_s) / np.maximum(output - 1, 1)
        seconds = {
            "ttft_s": (first_s - arrival_s)[done],
            "tpot_s": each[done & (output > 1)],
            "latency_s": (end_s - arrival_s)[done],
        }
        return {
            "requests": len(output),
            "finished": finished,
            "output_tokens_per_s": _rate(made, steady_s),
            "makespan_output_tokens_per_s": _rate(
                int(self.outputs[np.isfinite(self.end_s)].sum()), makespan
            ),
            "makespan_s": makespan,
            "steady_s": steady_s,
            "requests_per_s": _rate(finished, makespan),
            "backlog_share": _mean(late.astype(np.float64)),
            **{name: summary(values) for name, values in seconds.items()},
            **self._memory_figures(engines, layout, done),
            **self._step_figures(model),
            **self._acceptance(),
            "kv_capacity_tokens": layout.slots // layout.parts,
            "quantiles": {name: quantiles(values) for name, values in seconds.items()},
            "over_time": {"warm_s": self.begin[0], **self.timeline.figures(layout.slots)},
        }

    def steady(self) -> tuple[int, float]:
        """Output tokens of the steady part, and its seconds."""
        begin_s, begin = self.begin
        if self.warmup == 0 and len(self.arrival_s):
            begin_s = float(self.arrival_s[0])
        # if no request waited after the warm-up, everything after it is the steady part
        close_s, made = self.close
        if close_s <= begin_s:
            close_s, made = float(np.nanmax(self.end_s, initial=0.0)), self.sums.output_tokens
        return made - begin.output_tokens, close_s - begin_s

    def _acceptance(self) -> dict[str, Any]:
        """Drafts that were verified and output, and tokens a sequence and step, of the whole run;
        nothing where none were."""
        sums = self.sums
        if not sums.verified:
            return {}
        found = {"drafted": sums.drafted, "accepted": sums.accepted}
        return {"speculation": {**found, "tokens_a_step": 1 + sums.accepted / sums.verified}}

    def _memory_figures(
        self, engines: Sequence[Engine | Known], layout: KvLayout, done: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """How KV memory was used after the warm-up; `done`: the requests that count."""
        reserved = self._whole(np.add, np.sum([engine.reserved_ever for engine in engines], axis=0))
        own = self._whole(np.add, layout.slots_of(self.prompt + self.outputs))
        held = np.minimum(own, reserved)
        runs = [engine.run_tokens for engine in engines]
        run_tokens = np.where(np.isnan(runs).all(axis=0), np.nan, np.nansum(runs, axis=0))
        run_tokens = self._whole(np.add, run_tokens) / self._whole(np.add, np.ones(len(run_tokens)))
        after = self.sums.since(self.begin[1])
        busy = max(after.seconds, 1e-300)
        slots: float = layout.slots
        if any(engine.allocator.slots != slots for engine in engines):  # cards that joined
            slots = sum(after.slot_s.values()) / busy
        return {
            "utilization": _rate(int(held[done].sum()), int(reserved[done].sum())),
            "time_weighted_utilization": _rate(after.stored_seconds, after.reserved_seconds),
            "kv_stored_share": after.stored_seconds / busy / slots,
            "external_fragmentation": after.hole_seconds / busy,
            "kv_slots": {
                "binding": _shares(after.binding_slot_s) if after.limit_s["kv_memory"] else {},
                "overall": _shares(after.slot_s),
            },
            "mean_run_tokens": _mean(run_tokens[done]),
        }

    def _step_figures(self, model: TransformerSpec) -> dict[str, Any]:
        """What was done after the warm-up, and what of the time it took."""
        after = self.sums.since(self.begin[1])
        busy = max(after.seconds, 1e-300)
        gbps = {
            name: _rate(size, after.phase_s[name]) / 1e9
            for name, size in after.moved(model).items()
        }
        counts = (
            "preemptions", "migrations", "migrated_tokens", "copied_tokens", "swapped_tokens",
            "prefill_tokens", "cached_tokens",
        )  # fmt: skip
        came = after.cached_tokens + after.prefill_tokens
        cached = {"cached_share": _rate(after.cached_tokens, came)} if self._sessions else {}
        return {
            "batch": after.batch_seconds / busy,
            "steps": after.steps,
            "step_s": after.seconds / max(after.steps, 1),
            **{name: getattr(after, name) for name in counts},
            **cached,
            "kv_gbps": gbps["attention"],
            "phase_gbps": gbps,
            "phase_share": {name: seconds / busy for name, seconds in after.phase_s.items()},
            "compute_share": after.compute_s / busy,
            "limit_share": _shares(after.limit_s),
        }


def _times(energy: dict[str, Any], cards: int) -> dict[str, Any]:
    """The energy of `cards` equal cards."""
    parts = {name: cards * each for name, each in energy["parts_mj_per_token"].items()}
    ends = ("mj_per_token", "low_mj_per_token", "high_mj_per_token")
    return {**energy, **{name: cards * energy[name] for name in ends}, "parts_mj_per_token": parts}


def _total(seconds: FloatArray) -> float:
    """Their sum; mostly there is one."""
    return float(seconds[0]) if len(seconds) == 1 else float(np.add.reduce(seconds))


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0


def _shares(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {name: _rate(value, total) for name, value in seconds.items()}
