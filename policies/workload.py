"""Workloads: what lengths requests have, how they arrive, and the stream that follows from a seed.

A workload says nothing about the load: the experiment gives the count of requests and their rate.
Lengths and arrivals have random streams of their own: the same requests come at every rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from hwmodel.description import DescriptionError, Document, Strict, find, load
from policies.length_table import LengthTable
from policies.requests import MAX_TOKENS, FloatArray, IntArray, Requests, Trace, load_trace

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = int | Sequence[int]

TRACE_SUFFIXES = (".csv", ".gz")


class ConstantLengths(Strict):
    """Every request alike."""

    prompt_tokens: Tokens
    output_tokens: Tokens


class LognormalLength(Strict):
    """ln(tokens) is normal: `median` tokens, standard deviation `sigma` of the logarithm."""

    median: Positive
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LognormalLengths(Strict):
    """Lognormal prompts and outputs whose logarithms have the given correlation."""

    prompt_tokens: LognormalLength
    output_tokens: LognormalLength
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0


class Lengths(Strict):
    """Where lengths come from: exactly one of `table`, `trace`, `constant`, `lognormal`."""

    table: LengthTable | None = None
    window: Annotated[int, Field(ge=0)] | None = None
    """With `table`: stay in this window (counted from 0) instead of walking through the drift."""
    trace: str | None = None
    """A trace file, taken in its order; a relative path starts at the workload's file."""
    repeat: bool = False
    """With `trace`: begin again at its end when more requests are asked for than it has."""
    constant: ConstantLengths | None = None
    lognormal: LognormalLengths | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        names = ("table", "trace", "constant", "lognormal")
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
        if self.repeat and self.trace is None:
            raise ValueError(f"repeat belongs to trace lengths, not to {given[0]}")
        return self


class Arrivals(Strict):
    """How requests arrive; the first at time 0.

    `poisson`; `gamma`: independent gaps with coefficient of variation `cv`; `fixed`: equal gaps;
    `all_at_once`: all at time 0, whatever the rate; `trace`: the trace's times, scaled to the rate.
    """

    process: Literal["poisson", "gamma", "fixed", "all_at_once", "trace"] = "poisson"
    cv: Positive | None = None

    @model_validator(mode="after")
    def _cv_is_gammas(self) -> Arrivals:
        if self.process == "gamma" and self.cv is None:
            raise ValueError("gamma arrivals need cv, the gaps' coefficient of variation")
        if self.process != "gamma" and self.cv is not None:
            raise ValueError(f"cv belongs to gamma arrivals, not to {self.process}")
        return self


class Limits(Strict):
    """Caps that truncate: a longer prompt or output is cut to the cap; no request is dropped."""

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

    @model_validator(mode="after")
    def _trace_times_need_a_trace(self) -> WorkloadSpec:
        if self.arrivals.process == "trace" and self.lengths.trace is None:
            raise ValueError("arrivals.process: trace needs lengths.trace")
        return self


def resolve_workload(name_or_path: str, relative_to: str | Path | None = None) -> WorkloadSpec:
    """A shipped workload by name, the user's own by path, or a trace file by path.

    Raises DescriptionError as `workload_document` and `Document.build` do.
    """
    return workload_document(name_or_path, relative_to).build(WorkloadSpec)


def workload_document(name_or_path: str, relative_to: str | Path | None = None) -> Document:
    """The document behind `resolve_workload`, its trace path made absolute.

    A trace file (.csv, .gz) gives a workload of its own lengths and times; without times, Poisson
    arrivals. Raises DescriptionError when a file is missing or a trace does not read.
    """
    if name_or_path.endswith(TRACE_SUFFIXES):
        return _trace_document(name_or_path, relative_to)
    document = load(find("workloads", name_or_path, relative_to))
    place = ("lengths", "trace")
    trace = document.get(place)
    if isinstance(trace, str):
        path = (Path(document.file).parent / trace).absolute()
        if not path.is_file():
            raise document.error(f"no such file: {trace}", place)
        document.data["lengths"]["trace"] = str(path)
    return document


def _trace_document(name_or_path: str, relative_to: str | Path | None) -> Document:
    path = Path(name_or_path)
    if relative_to is not None and not path.exists():
        path = Path(relative_to).parent / name_or_path
    trace = load_trace(path.absolute() if path.exists() else name_or_path)
    times = "trace" if trace.arrival_s is not None else "poisson"
    data = {
        "kind": "workload",
        "name": path.name.removesuffix(".gz").removesuffix(".csv"),
        "summary": f"the trace {path.name}, {len(trace)} requests",
        "lengths": {"trace": str(trace.path)},
        "arrivals": {"process": times},
    }
    return Document(data, str(path), digest=hashlib.sha256(path.read_bytes()).hexdigest())


def generate(
    spec: WorkloadSpec, count: int, rate_per_s: float | None = None, seed: Seed = 0
) -> Requests:
    """The first `count` requests of a workload at `rate_per_s` requests a second on average.

    `seed` is an int, or several (experiment, replication; trailing zeros do not count). Neither
    rate nor arrivals change the lengths, and gaps at two rates differ by a factor only. The rate
    may be None for `all_at_once`, which ignores it, and for `trace`, which then keeps its times.
    Raises DescriptionError when count or rate do not suit the workload.
    """
    if count < 1:
        raise DescriptionError(f"expected a count of at least 1 request; got {count}")
    if rate_per_s is not None and not 0 < rate_per_s < np.inf:
        raise DescriptionError(f"expected a request rate above 0 a second; got {rate_per_s}")
    trace = None if spec.lengths.trace is None else load_trace(spec.lengths.trace)
    if trace is not None and len(trace) < count and not spec.lengths.repeat:
        raise DescriptionError(
            f"the trace has {len(trace)} requests and {count} are asked for; "
            "ask for fewer or set repeat: true",
            trace.path,
            path="lengths.repeat",
        )
    prompt_tokens, output_tokens = _lengths(spec.lengths, trace, count, _stream(seed, "lengths"))
    arrival_s = _arrivals(spec.arrivals, trace, count, rate_per_s, _stream(seed, "arrivals"))
    limits = spec.limits
    return Requests(
        arrival_s,
        np.minimum(prompt_tokens, limits.max_prompt_tokens or MAX_TOKENS),
        np.minimum(output_tokens, limits.max_output_tokens or MAX_TOKENS),
    )


def _stream(seed: Seed, purpose: str) -> np.random.Generator:
    """A generator that depends on the seed and on what it is for, and on nothing else."""
    key = tuple(f"workload.{purpose}".encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _lengths(
    lengths: Lengths, trace: Trace | None, count: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    if trace is not None:
        rows = np.arange(count) % len(trace)
        return trace.prompt_tokens[rows], trace.output_tokens[rows]
    if lengths.table is not None:
        return lengths.table.sample(count, rng, lengths.window)
    if lengths.constant is not None:
        constant = lengths.constant
        return (
            np.full(count, constant.prompt_tokens, np.int64),
            np.full(count, constant.output_tokens, np.int64),
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


def _arrivals(
    arrivals: Arrivals,
    trace: Trace | None,
    count: int,
    rate_per_s: float | None,
    rng: np.random.Generator,
) -> FloatArray:
    if arrivals.process == "all_at_once":
        return np.zeros(count)
    if arrivals.process == "trace":
        assert trace is not None
        return _trace_arrivals(trace, count, rate_per_s)
    if rate_per_s is None:
        raise DescriptionError(f"{arrivals.process} arrivals need a request rate", path="arrivals")
    if arrivals.process == "fixed":
        return np.arange(count) / rate_per_s
    if arrivals.process == "gamma":
        assert arrivals.cv is not None
        shape = arrivals.cv**-2
        gaps = rng.standard_gamma(shape, count - 1) / shape
    else:
        gaps = rng.standard_exponential(count - 1)
    return np.concatenate(([0.0], np.cumsum(gaps))) / rate_per_s


def _trace_arrivals(trace: Trace, count: int, rate_per_s: float | None) -> FloatArray:
    """The trace's first `count` times from 0; a repeat follows after the trace's mean gap."""
    own = trace.requests().arrival_s - trace.requests().arrival_s[0]
    size = len(own)
    period = own[-1] * size / max(size - 1, 1)
    index = np.arange(count)
    times: FloatArray = own[index % size] + period * (index // size)
    if rate_per_s is None or count == 1:
        return times
    if times[-1] == 0:
        raise DescriptionError("all requests arrive at once; no rate to scale", trace.path)
    scaled: FloatArray = times * ((count - 1) / (times[-1] * rate_per_s))
    return scaled
