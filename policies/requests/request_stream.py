"""The requests of a workload that follow from a seed.

Lengths and arrivals have random streams of their own: the same requests come at every rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.arrivals import Arrivals, arrival_times, think_times
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray, Requests, Trace, load_trace
from policies.requests.sessions import Turns, in_turn, turns_of
from policies.requests.workload import (
    BEAM_FORKS,
    Lengths,
    LognormalLengths,
    Prefixes,
    Splice,
    WorkloadSpec,
)

Seed = int | Sequence[int]

_GOLDEN = (5**0.5 - 1) / 2


def generate(
    spec: WorkloadSpec,
    count: int,
    rate_per_s: float | None = None,
    seed: Seed = 0,
    stretch: int = 0,
) -> Requests:
    """`count` requests of a workload at `rate_per_s` requests a second on average.

    `seed` is an int, or several (experiment, replication; trailing zeros do not count). Neither
    rate nor arrivals change the lengths, except where they drift by the clock, and gaps at two
    rates differ by a factor only, where the rate does not move. The rate may be None for
    `all_at_once` and `closed`, which ignore it, and for `trace`, which then keeps its times.
    `stretch`: which run of as many requests to take of each trace, from 0. Raises DescriptionError
    when count or rate do not suit the workload.
    """
    if count < 1:
        raise DescriptionError(f"expected a count of at least 1 request; got {count}")
    if rate_per_s is not None and not 0 < rate_per_s < np.inf:
        raise DescriptionError(f"expected a request rate above 0 a second; got {rate_per_s}")
    trace = None if spec.lengths.trace is None else load_trace(spec.lengths.trace)
    if spec.lengths.drift == "clock" and spec.arrivals.process == "closed":
        raise DescriptionError(
            "clock needs times of arrival; closed has none", path="lengths.drift"
        )
    if spec.lengths.sessions is not None:
        turns = turns_of(
            spec.lengths.sessions, count, lambda purpose: _stream(seed, f"sessions.{purpose}")
        )
        return _sent(turns, spec.arrivals, None, rate_per_s, seed)
    if trace is not None and trace.session is not None:
        return _agents(spec, trace, count, rate_per_s, seed, stretch)
    rng = _stream(seed, "arrivals")
    times = arrival_times(spec.arrivals, trace, count, rate_per_s, rng, stretch)
    body = _body(spec, times, seed, stretch, trace)
    think_s = think_times(spec.arrivals, count, _stream(seed, "think"))
    return Requests(times, *body[:-2], think_s, forks=body.forks, tree=body.tree)


def _agents(
    spec: WorkloadSpec, trace: Trace, count: int, rate_per_s: float | None, seed: Seed, stretch: int
) -> Requests:
    """The turns of a trace of sessions; of one that a run begins within, those that are left.
    Raises DescriptionError."""
    assert trace.session is not None and trace.pause_s is not None and trace.goes_on is not None
    for name in ("limits", "prefixes", "samples", "beams"):
        if getattr(spec, name) != WorkloadSpec.model_fields[name].default:
            raise DescriptionError("does not go with a trace of sessions", trace.path, path=name)
    body, at = _traced(trace, count, stretch, spec.lengths.repeat), count * stretch
    again, rows = np.divmod(np.arange(at, at + count), len(trace))
    sessions = int(trace.session[-1]) + 1
    first = np.diff(again * sessions + trace.session[rows], prepend=-1) != 0
    session = np.cumsum(first) - 1
    turns = Turns(
        session, body.prompt_tokens, body.output_tokens,
        np.where(first, np.nan, trace.pause_s[rows]), body.prefix_id, body.prefix_tokens,
        np.where(trace.goes_on[rows], session, -1),
        np.zeros((0, 2), np.int64) if body.tree is None else body.tree,
    )  # fmt: skip
    own = trace.requests().arrival_s
    period = own[-1] * sessions / max(sessions - 1, 1)  # as of other traces that are repeated
    begins = (own[rows] + period * again)[first]
    begun = Trace(begins, turns.prompt[first], turns.output[first], 0, trace.path)
    return _sent(turns, spec.arrivals, begun, rate_per_s, seed)


def _sent(
    turns: Turns, arrivals: Arrivals, trace: Trace | None, rate_per_s: float | None, seed: Seed
) -> Requests:
    """Sessions begin as requests arrive, at the rate that makes `rate_per_s` turns a second. Rows
    are in order of arrival if answers took no time, or in a closed loop all the same."""
    count, sessions = len(turns.session), int(turns.session[-1]) + 1
    rate = None if rate_per_s is None else rate_per_s * sessions / count
    begins = arrival_times(arrivals, trace, sessions, rate, _stream(seed, "arrivals"))
    think_s = turns.pause_s.copy()
    first = np.flatnonzero(np.isnan(think_s))
    passed = np.cumsum(np.nan_to_num(think_s))
    times = begins[turns.session] + passed - passed[first][turns.session]
    order = np.argsort(times, kind="stable")
    if arrivals.clients is not None:
        times, order = np.zeros(count), in_turn(turns.session, arrivals.clients)
        # clients send their first sessions at once, and each further one after a pause
        think_s[first] = think_times(arrivals, sessions, _stream(seed, "think"))
    turns = turns._replace(pause_s=think_s).rows(order)
    return Requests(
        times[order], turns.prompt, turns.output, turns.prefix_id, turns.prefix_tokens,
        think_s=turns.pause_s, session=turns.session, context=turns.context, tree=turns.tree,
    )  # fmt: skip


class _Body(NamedTuple):
    """All of `Requests` but the times, int64 (n,) each; `forks` and `tree` as there."""

    prompt_tokens: IntArray
    output_tokens: IntArray
    prefix_id: IntArray
    prefix_tokens: IntArray
    samples: IntArray
    forks: FloatArray
    tree: IntArray | None = None


def _body(
    spec: WorkloadSpec, times: FloatArray, seed: Seed, stretch: int, trace: Trace | None,
    part: str = "",
) -> _Body:  # fmt: skip
    """What the requests are that arrive at `times`. `part` sets the streams of a splice's part
    apart."""
    count = len(times)
    if spec.lengths.splice is not None:
        body = _spliced(spec.lengths.splice, times, seed, stretch, part)
    elif trace is not None:
        body = _traced(trace, count, stretch, spec.lengths.repeat)
    else:
        where = _windows(spec.lengths, times, seed, stretch, part)
        body = _alone(*_lengths(spec.lengths, where, count, _stream(seed, f"{part}lengths")))
    if spec.prefixes is not None:
        body = _prefixed(body, spec.prefixes, _stream(seed, f"{part}prefixes"))
    if spec.samples is not None:
        body = body._replace(samples=np.full(count, spec.samples, np.int64))
    if spec.beams is not None:
        body = body._replace(
            samples=np.full(count, spec.beams, np.int64),
            forks=np.full(count, spec.beam_forks or BEAM_FORKS),
        )
    prompts = np.minimum(body.prompt_tokens, spec.limits.max_prompt_tokens or MAX_TOKENS)
    return body._replace(
        prompt_tokens=prompts,
        output_tokens=np.minimum(body.output_tokens, spec.limits.max_output_tokens or MAX_TOKENS),
        prefix_tokens=np.minimum(body.prefix_tokens, prompts),
    )


def _alone(prompt_tokens: IntArray, output_tokens: IntArray) -> _Body:
    """Requests that share nothing, of one sample."""
    count = len(prompt_tokens)
    nothing = np.zeros(count, np.int64)
    return _Body(prompt_tokens, output_tokens, nothing - 1, nothing, nothing + 1, np.zeros(count))


def _traced(trace: Trace, count: int, stretch: int, repeat: bool) -> _Body:
    last = count * (stretch + 1)
    if len(trace) < last and not repeat:
        raise DescriptionError(
            f"the trace has {len(trace)} requests and {last} are asked for; "
            "ask for fewer or set repeat: true",
            trace.path,
            path="lengths.repeat",
        )
    rows = np.arange(count * stretch, last) % len(trace)
    body = _alone(trace.prompt_tokens[rows], trace.output_tokens[rows])
    if trace.prefix_id is None or trace.prefix_tokens is None:
        return body
    tokens = trace.prefix_tokens[rows]
    return body._replace(prefix_id=trace.prefix_id[rows], prefix_tokens=tokens, tree=trace.tree)


def _spliced(splice: Splice, times: FloatArray, seed: Seed, stretch: int, part: str) -> _Body:
    """Requests of the parts, each part's in its own order and with prefixes of its own."""
    count = len(times)
    where = _parts_of(splice, count, _stream(seed, f"{part}splice"))
    columns = _alone(np.zeros(count, np.int64), np.zeros(count, np.int64))
    trees, ids = [np.zeros((0, 2), np.int64)], 0
    for k, each in enumerate(splice.parts):
        rows = np.flatnonzero(where == k)
        if not len(rows):
            continue
        trace = (
            None if each.workload.lengths.trace is None else load_trace(each.workload.lengths.trace)
        )
        if trace is not None and trace.session is not None:
            raise DescriptionError("sessions cannot be spliced; their turns follow answers",
                                   trace.path)  # fmt: skip
        body = _body(each.workload, times[rows], seed, stretch, trace, f"{part}part{k}.")
        shared = body.prefix_id >= 0
        body = body._replace(prefix_id=np.where(shared, body.prefix_id + ids, -1))
        own = np.full((max(int(body.prefix_id.max()) + 1 - ids, 0), 2), [-1, 0])
        if body.tree is not None:
            own = body.tree + np.where(body.tree[:, :1] >= 0, [ids, 0], 0)
        trees.append(own)
        ids += len(own)
        for column, values in zip(columns[:-1], body[:-1], strict=True):
            column[rows] = values
    return columns._replace(tree=np.concatenate(trees))


def _parts_of(splice: Splice, count: int, rng: np.random.Generator) -> IntArray:
    """The part each of `count` requests comes from, int64 (count,)."""
    position = (np.arange(count) + 0.5) / count
    chance = rng.random(count)
    if splice.order == "drift":
        return (chance < position).astype(np.int64)
    shares = np.cumsum([part.share for part in splice.parts])
    at = position if splice.order == "sequence" else chance
    return np.searchsorted(shares[:-1] / shares[-1], at, side="right").astype(np.int64)


def _prefixed(body: _Body, prefixes: Prefixes, rng: np.random.Generator) -> _Body:
    """The requests with system prompts before their own."""
    if (body.prefix_id >= 0).any():
        raise DescriptionError("the lengths come with prefixes of their own", path="prefixes")
    draw = rng.random((len(body.prefix_id), 2))
    shared = draw[:, 0] < prefixes.share
    tokens = np.where(shared, prefixes.tokens, 0)
    return body._replace(
        prompt_tokens=np.minimum(body.prompt_tokens + tokens, MAX_TOKENS),
        prefix_id=np.where(shared, (draw[:, 1] * prefixes.count).astype(np.int64), -1),
        prefix_tokens=tokens,
    )


def _stream(seed: Seed, purpose: str) -> np.random.Generator:
    """A generator that depends on the seed and on what it is for, and on nothing else."""
    key = tuple(f"workload.{purpose}".encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _windows(
    lengths: Lengths, times: FloatArray, seed: Seed, stretch: int, part: str
) -> int | IntArray | None:
    """The windows of a length table that requests are from, as `LengthTable.sample` takes them.

    By the clock, the golden ratio sets replications apart: it spreads any number of them over the
    trace, and one more leaves the others where they were. The first start is the experiment's.
    """
    table = lengths.table
    if table is None or lengths.drift is None or lengths.drift == "squeezed":
        return lengths.window
    if lengths.drift == "mixed":
        return table.windows_drawn(len(times), _stream(seed, f"{part}windows"))
    experiment = seed if isinstance(seed, int) else list(seed)[:1]
    start = _stream(experiment, "start").random() + stretch * _GOLDEN
    return table.windows_at(times, start)


def _lengths(
    lengths: Lengths, where: int | IntArray | None, count: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    if lengths.table is not None:
        return lengths.table.sample(count, rng, where)
    if lengths.constant is not None:
        constant = lengths.constant
        return (
            np.full(count, constant.prompt_tokens, np.int64),
            np.full(count, constant.output_tokens, np.int64),
        )
    if lengths.uniform is not None:
        law = lengths.uniform
        return tuple(  # type: ignore[return-value]
            rng.integers(
                round(mean * (1 - law.range)), round(mean * (1 + law.range)), count, endpoint=True
            )
            for mean in (law.prompt_tokens, law.output_tokens)
        )
    assert lengths.lognormal is not None
    return _lognormal(lengths.lognormal, count, rng)


def _lognormal(
    law: LognormalLengths, count: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    normal = rng.standard_normal((count, 2))
    rho = law.correlation
    scores = normal[:, 0], rho * normal[:, 0] + np.sqrt(1 - rho**2) * normal[:, 1]
    prompts, outputs = (
        np.exp(np.minimum(np.log(part.median) + part.sigma * score, np.log(MAX_TOKENS)))
        for part, score in zip((law.prompt_tokens, law.output_tokens), scores, strict=True)
    )
    return _whole_tokens(prompts), _whole_tokens(outputs)


def _whole_tokens(tokens: FloatArray) -> IntArray:
    return np.clip(np.rint(tokens), 1, MAX_TOKENS).astype(np.int64)
