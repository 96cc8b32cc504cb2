"""Workloads: what lengths requests have, how they arrive, and the stream that follows from a seed.

A workload says nothing about the load: the experiment gives the count of requests and their rate.
Lengths and arrivals have random streams of their own: the same requests come at every rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description.description import DescriptionError, Document, KeyPath, Strict, find, load
from hwmodel.description.written import NAME_TOO
from policies.requests.arrivals import Arrivals, arrival_times, read_envelope, think_times
from policies.requests.length_table import Drift, LengthTable
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray, Requests, Trace, load_trace
from policies.requests.sessions import LognormalLength, Sessions, in_turn, turns_of

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = int | Sequence[int]

_GOLDEN = (5**0.5 - 1) / 2
TRACE_SUFFIXES = (".csv", ".jsonl", ".gz")


class ConstantLengths(Strict):
    """Every request alike."""

    prompt_tokens: Tokens
    output_tokens: Tokens


class LognormalLengths(Strict):
    """Lognormal prompts and outputs whose logarithms have the given correlation."""

    prompt_tokens: LognormalLength
    output_tokens: LognormalLength
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0


class UniformLengths(Strict):
    """Any whole number of tokens between the mean less and plus its share `range`, all alike, as
    vLLM's random data set has it."""

    prompt_tokens: Tokens
    output_tokens: Tokens
    range: Annotated[float, Field(ge=0, lt=1)]


class Part(Strict):
    """One of the workloads a splice is made of."""

    workload: Annotated[WorkloadSpec, Field(json_schema_extra=NAME_TOO)]
    """A shipped workload, a workload file or a trace; its arrivals do not count here."""
    share: Positive = 1.0
    """Of the requests, in proportion to the other parts."""
    sha256: str | None = None
    """Of a trace, noted when the workload is read."""


class Splice(Strict):
    """Lengths, prefixes and samples from several workloads.

    `sequence`: one after another; `interleave`: each request from one of them at random;
    `drift`: from the first of two to the second, whose share grows evenly over the run.
    """

    parts: Annotated[list[Part], Field(min_length=2)]
    order: Literal["sequence", "interleave", "drift"] = "sequence"

    @model_validator(mode="after")
    def _drift_is_between_two(self) -> Splice:
        if self.order == "drift" and len(self.parts) != 2:
            raise ValueError(f"parts: drift goes from one to another; got {len(self.parts)} parts")
        if any(part.workload.lengths.sessions is not None for part in self.parts):
            raise ValueError("parts: sessions cannot be spliced; their turns follow answers")
        if self.order == "drift" and any(part.share != 1 for part in self.parts):
            raise ValueError("parts: share does not go with drift")
        return self


class Prefixes(Strict):
    """System prompts that requests share: each of `count` is `tokens` long, before the prompt."""

    count: Tokens
    tokens: Tokens
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of the requests that have one, any of them alike (assumed)."""


class Lengths(Strict):
    """Where lengths come from: exactly one of `table`, `trace`, `constant`, `uniform`,
    `lognormal`, `splice`, `sessions`."""

    table: LengthTable | None = None
    window: Annotated[int, Field(ge=0)] | None = None
    """With `table`: stay in this window (counted from 0) instead of walking through the drift."""
    drift: Drift | None = None
    """With `table`: how a run walks through the windows; None: `squeezed`, all of them in one run.
    With `clock` each replication starts at another time of the trace."""
    trace: str | None = None
    """A trace file, taken in its order; a relative path starts at the workload's file."""
    repeat: bool = False
    """With `trace`: begin again at its end when more requests are asked for than it has."""
    constant: ConstantLengths | None = None
    uniform: UniformLengths | None = None
    lognormal: LognormalLengths | None = None
    splice: Splice | None = None
    sessions: Sessions | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        names = ("table", "trace", "constant", "uniform", "lognormal", "splice", "sessions")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of {', '.join(names)}; got {got}")
        if self.window is not None:
            if self.table is None:
                raise ValueError(f"window belongs to table lengths, not to {given[0]}")
            if self.window >= len(self.table.windows):
                last = len(self.table.windows) - 1
                raise ValueError(f"no window {self.window}; the table has 0 to {last}")
        if self.drift is not None:
            self._refuse_drift(given[0])
        if self.repeat and self.trace is None:
            raise ValueError(f"repeat belongs to trace lengths, not to {given[0]}")
        return self

    def _refuse_drift(self, given: str) -> None:
        if self.table is None:
            raise ValueError(f"drift belongs to table lengths, not to {given}; null drops it")
        if self.window is not None:
            raise ValueError("drift does not go with window, which has none")
        if self.drift == "clock":
            self.table.windows_at(np.zeros(0), 0.0)


class Limits(Strict):
    """Caps that truncate: a longer prompt (with its prefix) or output is cut to the cap; no request
    is dropped."""

    max_prompt_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None


class WorkloadSpec(Strict):
    """A workload description (`yaml/workloads`)."""

    kind: Literal["workload"] = "workload"
    name: str
    summary: str
    lengths: Lengths
    arrivals: Arrivals = Arrivals()
    limits: Limits = Limits()
    prefixes: Prefixes | None = None
    samples: Tokens | None = None
    """Outputs drawn at once from each prompt. None: 1, or in a splice what its parts say."""

    @model_validator(mode="after")
    def _trace_times_need_a_trace(self) -> WorkloadSpec:
        if self.arrivals.process == "trace" and self.lengths.trace is None:
            raise ValueError("arrivals.process: trace needs lengths.trace")
        if self.lengths.sessions is not None:
            for name in ("limits", "prefixes", "samples"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name}: does not go with sessions, whose laws bound them")
        return self


Lengths.model_rebuild()
WorkloadSpec.model_rebuild()


def workload_document(
    name_or_path: str, relative_to: str | Path | None = None, _within: tuple[str, ...] = ()
) -> Document:
    """The document of a shipped workload by name, a user's own or a trace file by path. Its paths
    are made absolute, and the parts of a splice replace their names.

    A trace file (.csv, .jsonl, .gz) gives a workload of its own lengths and times; without times,
    Poisson arrivals. Raises DescriptionError when a file is missing or does not read.
    """
    if name_or_path.endswith(TRACE_SUFFIXES):
        return _trace_document(name_or_path, relative_to)
    document = load(find("workloads", name_or_path, relative_to))
    _find_file(document, ("lengths", "trace"))
    envelope: KeyPath = ("arrivals", "rate_over_time")
    if path := _find_file(document, (*envelope, "envelope")):
        read_envelope(path)
        _note_digest(document, envelope, path)
    here = str(Path(document.file).resolve())
    if here in _within:
        raise DescriptionError("a splice cannot hold itself")
    parts = document.get(("lengths", "splice", "parts"), [])
    for index in range(len(parts) if isinstance(parts, list) else 0):
        _insert_part(document, ("lengths", "splice", "parts", index), (*_within, here))
    return document


def _find_file(document: Document, place: KeyPath) -> Path | None:
    """The file named at `place`, relative to the document; its absolute path is put there."""
    name = document.get(place)
    if not isinstance(name, str):
        return None
    path = (Path(document.file).parent / name).absolute()
    if not path.is_file():
        raise document.error(f"no such file: {name}", place)
    document.put(place, str(path), document.mark(place))
    return path


def _note_digest(document: Document, place: KeyPath, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    document.put((*place, "sha256"), digest, document.mark(place))


def _insert_part(document: Document, place: KeyPath, within: tuple[str, ...]) -> None:
    """The workload that a part names, in the place of its name."""
    name = document.get((*place, "workload"))
    if not isinstance(name, str):
        return
    try:
        part = workload_document(name, document.file, within)
    except DescriptionError as error:
        if error.file is not None:
            raise
        raise document.error(error.message, (*place, "workload")) from None
    part.build(WorkloadSpec)
    document.graft((*place, "workload"), part)
    if trace := part.get(("lengths", "trace")):
        _note_digest(document, place, Path(trace))


def _trace_document(name_or_path: str, relative_to: str | Path | None) -> Document:
    path = Path(name_or_path)
    if relative_to is not None and not path.exists():
        path = Path(relative_to).parent / name_or_path
    trace = load_trace(path.absolute() if path.exists() else name_or_path)
    times = "trace" if trace.arrival_s is not None else "poisson"
    data = {
        "kind": "workload",
        "name": path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".jsonl"),
        "summary": f"the trace {path.name}, {len(trace)} requests",
        "lengths": {"trace": str(trace.path)},
        "arrivals": {"process": times},
    }
    return Document(data, str(path), digest=hashlib.sha256(path.read_bytes()).hexdigest())


def generate(
    spec: WorkloadSpec, count: int, rate_per_s: float | None = None, seed: Seed = 0,
    stretch: int = 0,
) -> Requests:  # fmt: skip
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
        return _sessions(spec.lengths.sessions, spec.arrivals, count, rate_per_s, seed)
    rng = _stream(seed, "arrivals")
    times = arrival_times(spec.arrivals, trace, count, rate_per_s, rng, stretch)
    body = _body(spec, times, seed, stretch, trace)
    think_s = think_times(spec.arrivals, count, _stream(seed, "think"))
    return Requests(times, *body[:-1], think_s, tree=body.tree)


def _sessions(
    law: Sessions, arrivals: Arrivals, count: int, rate_per_s: float | None, seed: Seed
) -> Requests:
    """`count` turns; sessions begin as requests arrive, at the rate that makes `rate_per_s` turns a
    second. Rows are in order of arrival if answers took no time, or in a closed loop all the
    same."""
    turns = turns_of(law, count, lambda purpose: _stream(seed, f"sessions.{purpose}"))
    sessions = int(turns.session[-1]) + 1
    rate = None if rate_per_s is None else rate_per_s * sessions / count
    begins = arrival_times(arrivals, None, sessions, rate, _stream(seed, "arrivals"))
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
        think_s=turns.pause_s, session=turns.session, tree=turns.tree,
    )  # fmt: skip


class _Body(NamedTuple):
    """All of `Requests` but the times, int64 (n,) each; `tree` as there."""

    prompt_tokens: IntArray
    output_tokens: IntArray
    prefix_id: IntArray
    prefix_tokens: IntArray
    samples: IntArray
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
    return _Body(prompt_tokens, output_tokens, nothing - 1, nothing, nothing + 1)


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
    columns = _Body(*(np.zeros(count, np.int64) for _ in _Body._fields[:-1]))
    trees, ids = [np.zeros((0, 2), np.int64)], 0
    for k, each in enumerate(splice.parts):
        rows = np.flatnonzero(where == k)
        if not len(rows):
            continue
        trace = (
            None if each.workload.lengths.trace is None else load_trace(each.workload.lengths.trace)
        )
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
