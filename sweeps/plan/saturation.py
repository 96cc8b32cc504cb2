"""Capacity: the largest offered load at which what waits does not grow.

It is what a server does while requests always wait, in requests a second of the workload as it is
on average. All requests are there from the start. Sessions keep their turns, their pauses and what
is found of them: of these it is the most turns a second that any number of sessions at a time gets.
Few leave the card idle while their users read; too many push each other's KV out of it.

A request takes seconds for its prompt and seconds for its answer. Both are measured for a token,
between the first generation of requests and the first card whose line is empty, and multiplied by
the mean lengths of many requests of the workload: so a few long answers that this run happened to
draw do not count. What that leaves unexplained of equal parts of the time gives the
interval (ratio estimators by regression: Cochran, Sampling Techniques, chapter 6; batch means). A
run is lengthened until its interval is `ENOUGH` and its requests are `GENERATIONS` of those served
at once; where no run is long enough, there is no capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.measure.student import t_quantile
from policies.allocators.columns import total_of
from policies.engines.scheduled_step import STEP_LIMITS
from policies.requests.arrivals import Arrivals
from policies.requests.requests import FloatArray, Requests
from policies.requests.workload import WorkloadSpec
from policies.serving.cells import ServingResult
from policies.serving.node import Node
from policies.serving.simulation import Simulation, Watcher
from policies.serving.stretch_rows import Stretches
from policies.serving.unit import ReplicaSteps
from sweeps.analyse.figures import KV_MEMORY

ENOUGH, LONG, ROUGH = 0.05, 4_000, 0.08
"""Half of an interval of 95 %, as a share of the capacity; requests from which a run must be so
good; and what will do in shorter ones, which cost less (assumed)."""
GENERATIONS = 8.0
"""Requests that end while it is measured, for each that is served at once, at least (assumed)."""
WARM = 1.5
"""Requests that have ended as it begins, for each that is served then (assumed)."""
LENGTHENED, FEWER = 3, 0.7
"""How often a run of sessions is lengthened before fewer are tried, and how many times fewer: a
number of them that now and then pushes all KV out of memory has no steady rate (assumed)."""
LEAST_SLICES, MOST_SLICES = 8, 16
"""Parts of the measured time whose differences give the interval: a generation each, so that they
are independent, or longer."""
FEW_SESSIONS, GAIN, ROUGHLY, SESSION_GENERATIONS = 8, 0.03, 1.5, 3.0
"""Sessions at a time of a card that are tried first; what more of them must bring; generations of
sessions that show it, and that are measured at first (assumed)."""
MOST = 40_000
"""Requests of a run at most (assumed)."""
MANY = 100_000
"""Requests whose mean lengths stand for the workload (assumed)."""
CLINGS = 1.5
"""Times that slices vary more than if they were independent: long answers are of several (assumed;
in docs/sizing.md how often intervals hold)."""
CLEAR = 3.0
"""Half intervals by which a capacity differs from a load beyond doubt (assumed)."""
STARTS = 0.04
"""What is left of the start, all at once, as a share of a generation (assumed)."""


class Capacity(NamedTuple):
    """A capacity and how well it is known."""

    per_s: float
    """Requests a second; of sessions, turns."""
    half: float
    """Of its interval of 95 %, as a share of it."""
    requests: int
    """Of the run that measured it."""
    output_tokens: float
    """Of a request, of all its samples, on average."""
    at_once: float
    """Sequences that are served at once while others wait."""


class Means(NamedTuple):
    """Of a request that is offered: tokens of its prompt, output tokens after the first of each
    sample, KV tokens of a sample times its steps, and all output tokens."""

    prompt: float
    further: float
    stored: float
    output: float
    errors: tuple[float, float]
    """Standard errors of the means of prompts and of outputs, as shares of them."""


class Served(NamedTuple):
    """What was served, with outputs as the engine cuts them, and how."""

    requests: Requests
    result: ServingResult
    cells: int = 1
    """Alike, of which this is one."""


def average(workload: WorkloadSpec) -> WorkloadSpec:
    """The workload without what changes over a run: each request is of any part of it."""
    lengths = workload.lengths
    if lengths.table is not None and lengths.window is None and lengths.drift != "clock":
        lengths = lengths.model_copy(update={"drift": "mixed"})
    if lengths.splice is not None:
        parts = [
            part.model_copy(update={"workload": average(part.workload)})
            for part in lengths.splice.parts
        ]
        splice = lengths.splice.model_copy(update={"order": "interleave", "parts": parts})
        lengths = lengths.model_copy(update={"splice": splice})
    if lengths.trace is not None:
        lengths = lengths.model_copy(update={"repeat": True})
    return workload.model_copy(update={"lengths": lengths})


ALL_AT_ONCE = Arrivals(process="all_at_once")


class Pace(Watcher):
    """Watches how fast requests are served, and until when there are enough of them."""

    by_rows = True

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[float, float, float, int, float, float]]] = {}
        """Of each node, a row a stretch: begin, end, seconds of prefill, tokens decoded, sequences
        times seconds, seconds in which KV memory was full."""
        self._until: dict[str, float] = {}
        """When the first card of a node had no line any more; of sessions, when the last began."""
        self._cards: dict[str, int] = {}
        self._clients = False

    def join(self, simulation: Simulation) -> None:
        super().join(simulation)
        self._rows = {node.name: [] for node in simulation.nodes}
        self._cards = {node.name: len(node.own) for node in simulation.nodes}
        self._clients = simulation.source.more

    def done(self, node: Node, part: ReplicaSteps, begin_s: float, ended: list[int]) -> None:
        times, step = part.times, part.step
        rounds, seconds = len(times.total_s), total_of(times.total_s)
        self._rows[node.name].append((
            begin_s, begin_s + seconds, rounds * times.prefill_s, rounds * step.output,
            step.tokens * seconds, seconds * (step.limit == KV_MEMORY),
        ))  # fmt: skip
        goes_on = self.simulation.source.more if self._clients else part.replica.waits
        if not goes_on and node.name not in self._until:
            self._until[node.name] = begin_s + seconds

    def rows(self, node: Node, rows: Stretches, waits: NDArray[np.bool_]) -> None:
        begin_s, seconds = rows.begin_s, rows.seconds
        full = rows.limit == STEP_LIMITS.index(KV_MEMORY)
        columns = (
            begin_s, begin_s + seconds, rows.steps * rows.prefill_s, rows.steps * rows.tokens,
            rows.tokens * seconds, seconds * full,
        )  # fmt: skip
        self._rows[node.name] += zip(*(each.tolist() for each in columns), strict=True)
        if node.name not in self._until and not waits.all():
            over = int(waits.argmin())
            self._until[node.name] = float(begin_s[over] + seconds[over])

    @property
    def cards(self) -> int:
        """Of the node that bounds."""
        return self._cards[self.bound[1]]

    @property
    def bound(self) -> tuple[float, str]:
        """Until when requests waited, and for which node: that whose line lasted longest."""
        return max((at_s, name) for name, at_s in self._until.items())

    def over(self, edges: FloatArray) -> tuple[FloatArray, ...]:
        """Seconds of prefill, tokens decoded, sequences times seconds, and seconds in which KV
        memory was full, of all cards of the node that bounds, between these times: float64
        (len(edges) - 1,) each."""
        name = self.bound[1]
        begin, end, *columns = np.array(self._rows[name], np.float64).T
        share = (edges[:, None] - begin) / np.maximum(end - begin, 1e-300)
        parts = np.diff(np.clip(share, 0.0, 1.0), axis=0)
        return tuple(parts @ column for column in columns)


def means(requests: Requests) -> Means:
    """Of these requests."""
    prompt, output = requests.prompt_tokens, requests.output_tokens * requests.samples
    errors = [float(each.std() / each.mean()) / math.sqrt(len(each)) for each in (prompt, output)]
    return Means(
        float(prompt.mean()), float((output - requests.samples).mean()),
        float(_stored(requests, requests.output_tokens - 1).mean()), float(output.mean()),
        (errors[0], errors[1]),
    )  # fmt: skip


def _stored(requests: Requests, made: NDArray[Any]) -> FloatArray:
    """KV tokens times steps of a sample of each, which has made so many tokens."""
    stored: FloatArray = made * (requests.prompt_tokens + 0.5 * made)
    return stored


def capacity(
    serve: Callable[[Requests, Pace], Served], draw: Callable[[int, Arrivals], Requests],
    first: int, cards: int, against: float | None = None,
) -> Capacity:  # fmt: skip
    """The capacity, from a run of `first` requests, or longer ones. serve: these requests, of which
    it may leave some to other cells; draw: so many requests of the workload; cards: that requests
    come to; against: a load that it is enough to tell it from. Raises DescriptionError where no
    run of `MOST` is long enough."""
    whole = draw(MANY, ALL_AT_ONCE)
    if (whole.session >= 0).any():
        return _of_sessions(serve, draw, len(whole) / len(np.unique(whole.session)), cards, whole)
    workload, count = means(whole), min(first, MOST)
    while True:
        pace = Pace()
        found = _measured(serve(draw(count, ALL_AT_ONCE), pace), pace, workload)
        if found.longer <= 1.0 or _differs(found, against):
            return found.capacity(count)
        if count >= MOST:
            raise DescriptionError(_uncertain(found, count))
        count = min(math.ceil(count * min(max(1.2 * found.longer, 1.5), 8.0)), MOST)


def _of_sessions(
    serve: Callable[[Requests, Pace], Served], draw: Callable[[int, Arrivals], Requests],
    turns: float, cards: int, whole: Requests,
) -> Capacity:  # fmt: skip
    """As `capacity`. Sessions at a time are doubled while that brings more; then the best number of
    them is measured for longer."""
    output = means(whole).output

    def run(sessions: int, generations: float) -> tuple[int, _Measured]:
        count = min(math.ceil(turns * sessions * (1 + WARM + generations)), MOST)
        pace, clients = Pace(), Arrivals(process="closed", clients=sessions)
        found = _measured_turns(serve(draw(count, clients), pace), pace, sessions, output)
        return count, found

    sessions, best, rate = FEW_SESSIONS * cards, FEW_SESSIONS * cards, 0.0
    while (found := run(sessions, ROUGHLY)[1]).per_s > rate * (1 + GAIN):
        best, rate, sessions = sessions, found.per_s, 2 * sessions
    first = best
    for factor in (0.7, 1.4):
        sessions = max(round(factor * first / cards), 1) * cards
        if (found := run(sessions, ROUGHLY)[1]).per_s > rate * (1 + GAIN):
            best, rate = sessions, found.per_s
    while True:
        generations = SESSION_GENERATIONS
        for _ in range(LENGTHENED + 1):
            count, found = run(best, generations)
            if found.longer <= 1.0:
                return found.capacity(count)
            if count >= MOST:
                break
            generations *= min(max(1.2 * found.longer, 1.5), 8.0)
        if best <= cards:
            raise DescriptionError(_uncertain(found, count))
        # so many hold out for a while, until by chance too much is asked of memory at once
        best = max(round(FEWER * best / cards), 1) * cards


class _Measured(NamedTuple):
    per_s: float
    half: float
    longer: float
    """How many times as many requests would be enough; 1 or less: these are."""
    output_tokens: float
    at_once: float = 0.0

    def capacity(self, count: int) -> Capacity:
        """As one of a run of so many requests."""
        return Capacity(self.per_s, self.half, count, self.output_tokens, self.at_once)


def _longer(half: float, requests: Requests, generations: float, least: float) -> float:
    """How many times as many requests would be enough."""
    enough = ROUGH if len(requests) < LONG else ENOUGH
    return max((half / enough) ** 2, least / max(generations, 0.1))


def _differs(found: _Measured, against: float | None) -> bool:
    """Whether even a short run shows on which side of a load the capacity is."""
    if against is None or found.per_s == 0.0:
        return False
    return abs(math.log(found.per_s / against)) > CLEAR * max(found.half, ENOUGH)


def _uncertain(found: _Measured, count: int) -> str:
    if found.half < math.inf:
        what = f"{count:,} requests leave the capacity uncertain by {found.half:.0%}"
    else:
        what = f"with {count:,} requests no line lasts"
    return f"{what}, more than {ENOUGH:.0%}: ask for more requests, or shorter ones"


def _measured(served: Served, pace: Pace, workload: Means) -> _Measured:
    """The capacity as one run has it."""
    requests, result = served.requests, served.result
    counted = np.isfinite(result.finish_s)
    if not counted.any():
        raise DescriptionError(f"none of {len(requests):,} requests can be served")
    offered = float(counted.mean())
    if offered < 1.0:
        workload = means(requests.take(counted))
    begin_s, (end_s, _) = _warm(result.first_token_s, result.finish_s), pace.bound
    none = _Measured(0.0, math.inf, 4.0, workload.output)
    if not begin_s < end_s:
        return none
    seconds, of = end_s - begin_s, requests.take(counted)
    first_s, finish_s = result.first_token_s[counted], result.finish_s[counted]
    at_once = float(pace.over(np.array([begin_s, end_s]))[2][0]) / seconds
    ended = float(((finish_s > begin_s) & (finish_s <= end_s)).sum())
    generations = ended * float(of.samples.mean()) / max(at_once, 1.0)
    slices = int(min(max(generations, LEAST_SLICES), MOST_SLICES))
    edges = np.linspace(begin_s, end_s, slices + 1)
    prefill_s, made, _, full_s = pace.over(edges)
    work = [
        np.histogram(first_s, edges, weights=of.prompt_tokens)[0] / workload.prompt,
        made / max(workload.further, 1e-300),
        _grown(of, first_s, finish_s, edges) / max(workload.stored, 1e-300),
    ]
    card_seconds = seconds * pace.cards
    prefill = min(float(prefill_s.sum()) / card_seconds, 1.0)
    full, rest = float(full_s.sum()) / card_seconds, 1.0 - prefill
    # where memory is full, requests take it by their tokens or by a fixed amount each
    ways = [[prefill, rest * (1 - kept), rest * kept] for kept in (0.0, full)]
    explained = [_explained(shares, work, edges) for shares in ways]
    each_s, half = min(explained, key=lambda each: each[1])
    drawn = 2 * math.hypot(prefill * workload.errors[0], rest * workload.errors[1])
    half = math.hypot(CLINGS * half, drawn, STARTS / max(generations, 1.0))
    longer = _longer(half, requests, generations, GENERATIONS)
    return _Measured(
        served.cells / each_s / offered, half, longer, workload.output * offered,
        served.cells * at_once,
    )  # fmt: skip


def _explained(
    shares: list[float], work: list[FloatArray], edges: FloatArray
) -> tuple[float, float]:
    """(seconds of a request; half of their interval of 95 %, as a share). shares: of the time that
    each kind of work takes; work: of each kind, what is done in each slice, in mean requests. What
    is not done at all takes no time."""
    seconds = float(edges[-1] - edges[0])
    kinds = [(share, done) for share, done in zip(shares, work, strict=True) if done.sum() > 0]
    total = sum(share for share, _ in kinds) or 1.0
    rates = [share / total / float(done.sum()) for share, done in kinds]
    left = np.diff(edges)
    for rate, (_, done) in zip(rates, kinds, strict=True):
        left = left - seconds * rate * done
    half = t_quantile(len(left) - 1) * float(left.std(ddof=1)) * math.sqrt(len(left)) / seconds
    return seconds * sum(rates), half


def _grown(
    requests: Requests, first_s: FloatArray, finish_s: FloatArray, edges: FloatArray
) -> FloatArray:
    """KV tokens times steps of all requests between these times, float64 (len(edges) - 1,), if each
    decodes evenly."""
    span_s = np.maximum(finish_s - first_s, 1e-300)
    at = np.clip((edges[:, None] - first_s) / span_s, 0.0, 1.0)
    return np.diff(_stored(requests, at * (requests.output_tokens - 1)).sum(axis=1))


def _measured_turns(served: Served, pace: Pace, sessions: int, output: float) -> _Measured:
    """The turns a second of so many sessions at a time, as one run has it."""
    requests, result = served.requests, served.result
    ids, at = np.unique(requests.session, return_inverse=True)
    begun, over = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.fmin.at(begun, at, result.first_token_s)
    np.fmax.at(over, at, result.finish_s)
    end_s = pace.bound[0]
    # long sessions gather, and contexts grow, for some generations
    begin_s = max(_warm(begun, over), end_s / 2)
    if not begin_s < end_s:
        return _Measured(0.0, math.inf, 4.0, output)
    seconds, edges = end_s - begin_s, np.linspace(begin_s, end_s, LEAST_SLICES + 1)
    turns = np.histogram(result.finish_s, edges)[0].astype(np.float64)
    each_s, half = _explained([1.0], [turns], edges)
    generations = float(((over > begin_s) & (over <= end_s)).sum()) / sessions * served.cells
    half = math.hypot(CLINGS * half, STARTS / max(generations, 1.0))
    longer = _longer(half, requests, generations, SESSION_GENERATIONS / 2)
    at_once = float(pace.over(edges)[2].sum()) / seconds
    return _Measured(served.cells / each_s, half, longer, output, served.cells * at_once)


def _warm(first_s: FloatArray, finish_s: FloatArray) -> float:
    """When the first generation is over: `WARM` times as many requests, or sessions, that began and
    ended then have ended as are under way. inf: never."""
    ends = np.sort(finish_s[np.isfinite(finish_s)])
    over = np.arange(1, len(ends) + 1)
    begun = np.searchsorted(np.sort(first_s[np.isfinite(first_s)]), ends, "right")
    warm = np.flatnonzero(over >= WARM * (begun - over))
    return float(ends[warm[0]]) if len(warm) else math.inf
